"""How a policy sees the engines: by the server's own window fold or, where it reads the load alone, by its last values.

Of families that it does not read nothing is measured: half of a contest went into signals that nobody looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scaler.policy.model import Policy
from scaler.signals.model import Known, Signals
from scaler.signals.observation import EngineSample, Observation
from scaler.signals.window import History, fold

#: An observation at a monotonic and at a Unix time, to what a policy is shown then. Called once a tick, in order.
Look = Callable[[Observation, float, float], Signals]
#: The families whose last values are all there is to know of them.
LOAD = frozenset(("running", "waiting"))


def looking(reads: frozenset[str], window: Policy, interval_seconds: float) -> Look:
    """What shows a policy the families in ``reads``, taken every ``interval_seconds``."""
    return _LastValues(window.hold_seconds) if reads <= LOAD else _Folded(window, interval_seconds)


@dataclass(slots=True)
class _Folded:
    window: Policy
    interval_seconds: float
    _history: History = field(default_factory=History)

    def __call__(self, observation: Observation, mono: float, unix: float) -> Signals:
        self._history, signals = fold(
            self._history, observation, mono, self.window, interval_seconds=self.interval_seconds, now_unix=unix
        )
        return signals


@dataclass(slots=True)
class _LastValues:
    """The load, and how many replicas there are, as the fold has them: each by what it last said, for ``hold_seconds``.
    (A test holds both to be one for every policy that is shown this.)
    """

    hold_seconds: float
    _last: dict[str, EngineSample] = field(default_factory=dict)

    def __call__(self, observation: Observation, mono: float, unix: float) -> Signals:  # noqa: ARG002
        read = {name: each for name, each in observation.endpoints.items() if isinstance(each, EngineSample)}
        self._last = {name: each for name, each in self._last.items() if name in observation.endpoints} | read
        seen = [each for each in self._last.values() if mono - each.at <= self.hold_seconds]
        demand = observation.demand
        return Signals(
            running=Known(sum([each.gauges.get("running", 0.0) for each in seen]), mono),
            waiting=Known(sum([each.gauges.get("waiting", 0.0) for each in seen]), mono),
            pending=Known(0.0 if demand is None else demand.pending or 0.0, mono),
            ready_replicas=Known(float(len(seen)), mono),
        )
