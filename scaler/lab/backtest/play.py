"""The decisions a scaler would have made over the past, enacted by KEDA and the HPA as the lab models them.

``decide`` is the server's. What it wishes goes through polls and syncs, a replica asked for serves after its cold
start, and what it then measures is the past with these replicas in it (:mod:`.counterfactual`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from scaler.control.arrivals import expected_arrivals
from scaler.control.decide import decide
from scaler.control.flow import FlowNeed, flow_need, mean_running
from scaler.control.model import Decision, Memory, Now, Reason
from scaler.control.scale_in import without_room
from scaler.control.situate import judge_objectives
from scaler.lab.backtest.counterfactual import Had, Released, at_zero, cap_of, measured_instead
from scaler.lab.backtest.crowd import Crowd, Pace
from scaler.lab.backtest.past import Kind, Tick
from scaler.lab.enact import OUR_BEHAVIOUR, OUR_COOLDOWN_SECONDS, OUR_POLLING_SECONDS, ThroughKeda
from scaler.lab.keda import ScaledObject
from scaler.lab.simulate import Enactor, Wish
from scaler.policy.model import Policy
from scaler.signals.model import Latency, Signal, Signals, known_value

#: What a ScaledObject allows where the policy declares no most (KEDA's own default).
MOST_REPLICAS: Final = 100


class Moment(NamedTuple):
    """One tick, as a report needs it: the past's and the scaler's replicas, need and load. Rates are per second,
    latencies P95 in seconds; None where it is not known.

    ``ran`` replicas served and ``paid`` held their GPUs; ``asked`` and ``ready`` are the scaler's, ``need`` is the flow
    law's for the demand it would have had, ``ran_need`` for the past's own. ``in_flight`` was measured, ``instead`` is
    what would have been. ``broken`` and ``critical`` say whether the past broke an objective; None: undecided.
    """

    unix: float
    kind: Kind
    arrivals: float | None
    in_flight: float | None
    instead: float | None
    ran: float | None
    paid: float | None
    asked: int
    ready: int
    need: float | None
    ran_need: float | None
    state: str
    broken: bool | None
    critical: bool | None
    ttft_p95: float | None
    tpot_p95: float | None
    e2e_p95: float | None
    batch: int | None
    available: bool


class Change(NamedTuple):
    """A tick at which the scaler wished for another number of replicas than before, and its first reason."""

    unix: float
    before: int
    after: int
    state: str
    reason: Reason | None


@dataclass(slots=True)
class Replicas:
    """The scaler's replicas: how many serve, and when each that loads will. ``changes`` counts those of the number."""

    cold_start_seconds: float
    ready: int = 0
    loading: deque[float] = field(default_factory=deque)
    changes: int = 0

    @property
    def had(self) -> Had:
        """How many there are now."""
        return Had(self.ready, self.ready + len(self.loading))

    def move(self, now: float, wanted: int) -> None:
        """Let what has loaded serve, then ask for ``wanted``: those that still load are the first to go."""
        while self.loading and self.loading[0] <= now:
            self.loading.popleft()
            self.ready += 1
        asked = self.ready + len(self.loading)
        if wanted != asked:
            self.changes += 1
        for _ in range(wanted - asked):
            self.loading.append(now + self.cold_start_seconds)
        for _ in range(asked - wanted):
            if self.loading:
                self.loading.pop()
            else:
                self.ready -= 1


def scaled_object(policy: Policy) -> ScaledObject:
    """The ScaledObject of ``deploy/examples``, with the policy's bounds."""
    return ScaledObject(
        max_replicas=policy.replicas.max or MOST_REPLICAS,
        min_replicas=policy.replicas.min if policy.can_wake else max(1, policy.replicas.min),
        polling_seconds=OUR_POLLING_SECONDS,
        cooldown_seconds=OUR_COOLDOWN_SECONDS,
        behaviour=OUR_BEHAVIOUR,
    )


@dataclass(slots=True)
class Player:
    """Plays ``policy`` over the ticks of a past, which it begins with the replicas that ran. ``changes`` are the
    scaler's wishes, ``last`` its last decision.
    """

    policy: Policy
    pace: Pace
    cold_start_seconds: float
    tick_seconds: float
    changes: list[Change] = field(default_factory=list)
    replicas: Replicas = field(init=False)
    last: Decision | None = None
    _enactor: Enactor = field(init=False)
    _memory: Memory = field(default_factory=Memory)
    _crowd: Crowd = field(default_factory=Crowd)
    _served: bool = True
    _released: Released = field(default_factory=Released)
    _ran_mean: float | None = None

    def __post_init__(self) -> None:
        self.replicas = Replicas(self.cold_start_seconds)
        self._enactor = ThroughKeda(scaled_object(self.policy), 1.0, pushes=self.policy.push.enabled)

    def play(self, ticks: Iterable[Tick]) -> Iterator[Moment]:
        """The ticks from the first one on at which the past is known."""
        wish: Wish | None = None
        for tick in ticks:
            if wish is None:
                if tick.ready is None:
                    continue
                self.replicas.ready = math.floor(tick.ready)
                wish = Wish(tick.ready, active=tick.ready > 0)
            self._enact(wish, tick.unix)
            moment, wish = self._decided(tick)
            yield moment

    def _enact(self, wish: Wish, now: float) -> None:
        """The seconds since the last tick, one by one."""
        for second in range(round(self.tick_seconds)):
            at = now - self.tick_seconds + second + 1
            asked = self.replicas.had.asked
            self.replicas.move(at, self._enactor.enact(wish, 1.0, asked, at))

    def _decided(self, tick: Tick) -> tuple[Moment, Wish]:
        past = tick.signals
        if tick.kind == "none ready":
            past = at_zero(past, tick.unix, woken=bool(tick.paid))
        had, ran = self.replicas.had, tick.ready
        self._released = replace(self._released, seconds=self._released.seconds + self.tick_seconds)
        if had.ready and not self._served:
            self._released = Released(self._crowd.instead, 0.0)
        self._served = had.ready > 0
        self._ran_mean = mean_running(self._ran_mean, past, self.tick_seconds)
        if ran is not None:
            cap = cap_of(self.policy, past)
            self._crowd = self._crowd.after(past, ran, had.ready, self.pace, cap, self.tick_seconds)
        signals = measured_instead(
            past, had.ready if ran is None else ran, had, self._crowd, self.pace, self.policy, tick.unix
        )
        signals = self._released.seen_in(signals, self.policy.window_seconds, self.tick_seconds)
        now = Now(datetime.fromtimestamp(tick.unix, UTC), tick.unix)
        decision = decide(self.policy, self._memory, signals, now)
        before = self._memory.targets
        if before is not None and decision.targets.replicas != before.replicas:
            reason = next((each for each in decision.reasons if each.target in ("replicas", "active")), None)
            self.changes.append(
                Change(tick.unix, before.replicas, decision.targets.replicas, decision.state.value, reason)
            )
        self._memory, self.last = decision.next_memory, decision
        metric = float(decision.targets.replicas) if decision.available else None
        moment = _moment(tick, past, signals, had, self._crowd, decision, self.policy, self._ran_mean)
        return moment, Wish(metric, decision.targets.active, decision.targets.batch)


def _moment(
    tick: Tick, past: Signals, signals: Signals, had: Had, crowd: Crowd, decision: Decision, policy: Policy,
    ran_mean: float | None,
) -> Moment:  # fmt: skip
    verdicts = judge_objectives(policy, past)
    running, waiting = known_value(past.running), known_value(past.waiting)
    measured = running + waiting if running is not None and waiting is not None else None
    return Moment(
        unix=tick.unix,
        kind=tick.kind,
        arrivals=known_value(past.arrivals_per_second),
        in_flight=measured,
        instead=None if measured is None else crowd.in_flight(measured),
        ran=tick.ready,
        paid=tick.paid,
        asked=had.asked,
        ready=had.ready,
        need=None if measured is None else _need(signals, decision.next_memory.running_mean, decision, policy),
        ran_need=None if measured is None else _need(past, ran_mean, decision, policy),
        state=decision.state.value,
        broken=_broken([verdict for bound, verdict in verdicts.items() if not bound.endswith("_critical")]),
        critical=_broken([verdict for bound, verdict in verdicts.items() if bound.endswith("_critical")]),
        ttft_p95=_p95(past.ttft_seconds),
        tpot_p95=_p95(past.tpot_seconds),
        e2e_p95=_p95(past.e2e_seconds),
        batch=decision.targets.batch,
        available=decision.available,
    )


def _need(signals: Signals, running_mean: float | None, decision: Decision, policy: Policy) -> float:
    """The flow law's need, as the decision took it: what runs is averaged (held against L*, single moments' noise would
    count as need), replicas share their room for chance as far as the load was seen to be even, and while the scaler
    scales in, that room is not counted.
    """
    capacity, memory = decision.capacity.at_share(decision.load_share), decision.next_memory
    ahead_seconds = policy.replicas.cold_start_seconds
    arrivals = expected_arrivals(policy, signals, capacity, cold_start_seconds=ahead_seconds, elapsed_seconds=0.0)

    def need(uneven: float | None) -> FlowNeed:
        return flow_need(
            signals,
            arrivals,
            capacity,
            ready=None,
            growth=0.0,
            running_mean=running_mean,
            uneven=uneven,
            drain_seconds=policy.replicas.drain_seconds,
        )

    ordinary = need(memory.unevenness)
    if memory.scale_in_seconds is None:
        return ordinary.replicas
    return without_room(need(None), ordinary, capacity.load_share).replicas


def _broken(verdicts: list[str]) -> bool | None:
    if "breached" in verdicts:
        return True
    return False if verdicts and all(verdict == "met" for verdict in verdicts) else None


def _p95(signal: Signal[Latency]) -> float | None:
    latency = known_value(signal)
    return None if latency is None else latency.p95.estimate
