"""How a policy's wish becomes a replica count: straight away, or through KEDA and the HPA as they were observed.

The behaviours here are what each policy's own manifest carries: ours lets a jump through and overlooks nothing
(deploy/examples), llm-d's is its guide's, everybody else's is the HPA's default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from scaler.lab.hpa import Behaviour, Hpa, Remembered, ScalingPolicy, ScalingRules, sync
from scaler.lab.keda import Answer, KedaStatus, ScaledObject, metric_for_hpa, poll, pushed
from scaler.lab.simulate import Wish
from scaler.value import frozen

#: Ours: a jump goes through in one sync and no step is too small; the way down is paced by the decision itself.
OUR_BEHAVIOUR = Behaviour(
    up=ScalingRules((ScalingPolicy("Percent", 900, 15.0), ScalingPolicy("Pods", 100, 15.0)), "Max", 0.0, tolerance=0.0),
    down=ScalingRules((ScalingPolicy("Percent", 100, 15.0),), "Max", 0.0, tolerance=0.0),
)
OUR_POLLING_SECONDS, OUR_COOLDOWN_SECONDS = 15.0, 30.0
#: llm-d, guides/workload-autoscaling/slo-aware: max(100 %, 4 pods) per 60 s up after 30 s, one per 120 s down, 180 s.
LLMD_BEHAVIOUR = Behaviour(
    up=ScalingRules((ScalingPolicy("Percent", 100, 60.0), ScalingPolicy("Pods", 4, 60.0)), "Max", 30.0),
    down=ScalingRules((ScalingPolicy("Pods", 1, 120.0),), "Max", 180.0),
)
#: The HPA's defaults, as the API server fills them in: tolerance 0.1, max(100 %, 4) per 15 s up, maximum of 300 s down.
HPA_BEHAVIOUR = Behaviour()


@frozen
class Direct:
    """The wish is the count, within floor and ceiling: an autoscaler that writes the scale itself."""

    floor: int
    ceiling: int

    def enact(self, wish: Wish, metric_target: float, current: int, seconds: float) -> int:  # noqa: ARG002
        """The wished count; no answer keeps the present one."""
        if wish.metric is None:
            return current
        wanted = math.ceil(wish.metric / metric_target - 1e-9) if wish.active else 0
        return min(max(wanted, self.floor), self.ceiling)


@dataclass(slots=True)
class ThroughKeda:
    """A ScaledObject with one trigger: KEDA polls and takes it to zero and back, its HPA moves it in between.

    ``pushes``: the scaler has a stream open and tells a wake at once, as ours does.
    """

    what: ScaledObject
    metric_target: float
    pushes: bool = False
    sync_seconds: float = 15.0
    _hpa: Hpa = field(init=False)
    _status: KedaStatus = field(init=False)
    _remembered: Remembered = field(default_factory=Remembered)

    def __post_init__(self) -> None:
        self._hpa = replace(self.what.hpa(), target=self.metric_target, sync_seconds=self.sync_seconds)
        self._status = KedaStatus(created_at=0.0)

    def enact(self, wish: Wish, metric_target: float, current: int, seconds: float) -> int:  # noqa: ARG002
        """The count after this second: a push, a poll and a sync where each is due."""
        if self.pushes and wish.active and current == 0:
            woken = pushed(self.what, self._status, seconds, current, active=True)
            current, self._status = woken.replicas, woken.status
        polls, syncs = seconds % self.what.polling_seconds == 0, seconds % self.sync_seconds == 0
        if not polls and not syncs:
            return current
        answer = None if wish.metric is None else Answer(wish.metric, wish.active)
        if polls:
            checked = poll(self.what, self._status, seconds, current, answer)
            current, self._status = checked.replicas, checked.status
        if syncs:
            total, self._status = metric_for_hpa(self.what, self._status, answer)
            enacted = sync(self._hpa, self._remembered, seconds, asked=current, total=total)
            current, self._remembered = enacted.replicas, enacted.remembered
        return current
