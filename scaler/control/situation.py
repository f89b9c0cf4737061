"""What one tick looks at, derived once from policy, memory, signals and time: the laws read this and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from scaler.control.arrivals import Arrivals, expected_arrivals
from scaler.control.capacity import estimate_capacity, residence_seconds
from scaler.control.cold_start import ColdStarts, cold_start_seconds, coming, watched
from scaler.control.evenness import unevenness
from scaler.control.feasible import EmptyReplicas, Infeasible, infeasible_bounds, seen_empty, without
from scaler.control.flow import FlowNeed, flow_need, mean_running, overload
from scaler.control.lasting import older
from scaler.control.model import CapacityEstimate, Memory, Now
from scaler.control.scale_in import may_scale_in, scales_in, without_room
from scaler.control.season import Expected, Season, expected_season, learn_season
from scaler.policy.model import Policy
from scaler.signals.model import (
    CATALOG,
    NOT_FROM_ENGINES,
    Known,
    NotApplicable,
    Signals,
    Stale,
    Unknown,
    Verdict,
    at_least,
    is_zero,
    known_value,
)

#: The batch, and the top of its range, where none is declared and the engine's own cap is not what to start from.
PLAIN_START, PLAIN_MAX = 8, 64
#: Without these nothing can be judged; losing one starts the hold.
JUDGED_BY = ("running", "waiting", "ready_replicas")
#: Replicas go down only when each of these is known (or not applicable).
DOWN_NEEDS = ("arrivals_per_second", "running", "waiting", "ready_replicas")
#: Zero replicas need these too: every source that could wake the workload.
WAKE_SOURCES = ("pending", "wake_demand")


@dataclass(frozen=True, slots=True)
class Situation:
    """One workload at one instant.

    ``elapsed_seconds`` is the time since the last tick (0.0 on the first). ``ready`` is None when unknown; ``coming``
    is how many more load and may be counted on, ``cold_start_seconds`` P95 of how long that takes. ``floor`` and
    ``ceiling`` are the replica bounds now; ``ceiling`` None means undeclared. ``lost`` names the signals of
    :data:`JUDGED_BY` that are neither known nor inapplicable. ``infeasible`` holds the objective bounds that no
    replica can keep, and ``policy`` is without them. ``verdicts`` maps objective bounds to what P95 says.
    ``season`` is what usually comes a cold start ahead.
    """

    policy: Policy
    memory: Memory
    signals: Signals
    now: Now
    elapsed_seconds: float
    floor: int
    ceiling: int | None
    ready: int | None
    lost: tuple[str, ...]
    may_lower: bool
    capacity: CapacityEstimate
    arrivals: Arrivals
    flow: FlowNeed
    utilisation: float | None
    running_mean: float | None
    unevenness: float | None
    overload_seconds: float | None
    scale_in_seconds: float | None
    cold_starts: ColdStarts
    cold_start_seconds: float
    coming: int
    empty: EmptyReplicas
    infeasible: Infeasible
    verdicts: Mapping[str, Verdict]
    season: Expected | None

    @property
    def replicas(self) -> int:
        """The replicas last asked for, by us; before any decision, as the cluster says, and those that are ready."""
        if self.memory.targets:
            return self.memory.targets.replicas
        return max(self.ready or 0, int(known_value(self.signals.asked_replicas) or 0.0))

    @property
    def exhausted(self) -> bool:
        """Whether no more replicas can be had: at the ceiling, or asked for in vain where no node has room."""
        if self.ceiling is not None and self.replicas >= self.ceiling:
            return True
        return self.coming == 0 and (known_value(self.signals.unschedulable_replicas) or 0.0) > 0

    @property
    def batch(self) -> int | None:
        """The batch size last published; before any decision, the one to start with. None: the engine's own."""
        return self.memory.targets.batch if self.memory.targets else self.start_batch

    @property
    def start_batch(self) -> int | None:
        """See :func:`first_batch`."""
        return first_batch(self.policy, self.signals)

    @property
    def nobody_to_hear(self) -> bool:
        """Whether replicas were asked for and none is there to say what they are asked: out of a list of endpoints that
        is known to be empty comes no proof of idleness and no need of fewer. They may all have failed their readiness
        probes under the very load we cannot see. (Not so where the cluster says that none is asked for.)
        """
        wanted = self.memory.targets is not None and self.memory.targets.active
        asked_for_none = known_value(self.signals.asked_replicas) == 0
        silent = self.ready == 0 and isinstance(self.signals.running, NotApplicable)
        return wanted and silent and not asked_for_none

    @property
    def season_wakes(self) -> bool:
        """Whether what usually comes a cold start ahead is worth a replica."""
        return self.season is not None and self.season.wakes(self.policy.idle.timeout_seconds)

    def breached(self, *bounds: str) -> bool:
        """Whether any of the named objective bounds is breached for certain."""
        return any(self.verdicts.get(bound) == "breached" for bound in bounds)


def situate(policy: Policy, memory: Memory, signals: Signals, now: Now) -> Situation:
    """Derive the situation. Pure; the only place where "no replica to ask" is told apart from "no answer"."""
    elapsed = 0.0 if memory.tick_mono is None else max(0.0, now.mono - memory.tick_mono)
    signals = _without_absent_engine(memory, signals)
    ready = _serving(signals)
    infeasible = infeasible_bounds(policy, memory.empty)
    policy = without(policy, infeasible)
    capacity = estimate_capacity(policy, memory, signals)
    no_node = (known_value(signals.unschedulable_replicas) or 0.0) > 0
    cold_starts = watched(
        memory.cold_starts,
        _asked_for(memory, signals),
        ready,
        unschedulable=no_node,
        elapsed_seconds=elapsed,
    )
    cold_start = cold_start_seconds(cold_starts, policy.replicas.cold_start_seconds, unschedulable=no_node)
    arrivals = expected_arrivals(policy, signals, capacity, cold_start_seconds=cold_start, elapsed_seconds=elapsed)
    running_mean = mean_running(memory.running_mean, signals, elapsed)
    uneven = unevenness(memory.unevenness, signals, elapsed)
    ahead = now.utc + timedelta(seconds=cold_start)
    over = overload(
        arrivals,
        capacity,
        ready,
        memory.overload_seconds,
        elapsed_seconds=elapsed,
        cold_start_seconds=cold_start,
    )

    def need(evenness: float | None) -> FlowNeed:
        return flow_need(
            signals,
            arrivals,
            capacity,
            ready=ready,
            growth=over.growth,
            running_mean=running_mean,
            load_share=policy.capacity.load_share,
            uneven=evenness,
            drain_seconds=policy.replicas.drain_seconds,
        )

    flow, scale_in, verdicts = need(uneven), None, judge_objectives(policy, signals)
    if may_scale_in(policy, memory) and not arrivals.steep and "breached" not in verdicts.values():
        full = without_room(need(None), flow, policy.capacity.load_share)
        if scales_in(policy, memory, flow, full):
            flow, scale_in = full, older(memory.scale_in_seconds or 0.0, elapsed)
    return Situation(
        policy=policy,
        memory=memory,
        signals=signals,
        now=now,
        elapsed_seconds=elapsed,
        floor=policy.floor(now.utc),
        ceiling=policy.replicas.max,
        ready=ready,
        lost=tuple(name for name in JUDGED_BY if not _satisfied(getattr(signals, name))),
        may_lower=all(_satisfied(getattr(signals, name)) for name in DOWN_NEEDS),
        capacity=capacity,
        arrivals=arrivals,
        flow=flow,
        utilisation=_utilisation(signals, ready, flow),
        running_mean=running_mean,
        unevenness=uneven,
        overload_seconds=over.growing_seconds,
        scale_in_seconds=scale_in,
        cold_starts=cold_starts,
        cold_start_seconds=cold_start,
        coming=coming(
            cold_starts,
            asked=_asked_for(memory, signals),
            ready=ready,
            pending=known_value(signals.pending_replicas),
            ceiling=policy.replicas.max,
            cold_start_seconds=cold_start,
        ),
        empty=seen_empty(
            memory.empty,
            policy,
            signals,
            sequences=capacity.sequences,
            residence_seconds=residence_seconds(signals, 1),
            elapsed_seconds=elapsed,
        ),
        infeasible=infeasible,
        verdicts=verdicts | dict.fromkeys(infeasible, "infeasible"),
        season=expected_season(memory.season, policy.season, policy.season.slot(ahead)),
    )


def season_after(situation: Situation) -> Season:
    """What is known of the season after this tick."""
    law, signals = situation.policy.season, situation.signals
    rate = known_value(signals.arrivals_per_second)
    at_zero = isinstance(signals.arrivals_per_second, NotApplicable) and not situation.nobody_to_hear
    if at_zero and is_zero(signals.pending) and is_zero(signals.wake_demand):
        rate = 0.0
    slot = law.slot(situation.now.utc)
    return learn_season(situation.memory.season, law, slot, rate, situation.elapsed_seconds)


def by_plain_numbers(policy: Policy) -> bool:
    """Whether the batch goes by eight, doubling and halving, and the load by 50 and 5 requests per second of a replica:
    the strategies beside ``adaptive``, and static batching, where a batch waits to fill and so a low load wants a
    small one.
    """
    return policy.strategy != "adaptive" or policy.batch.batching == "static"


def first_batch(policy: Policy, signals: Signals) -> int | None:
    """The first batch published: the declared one; else what the strategy starts from, ``adaptive`` the engine's cap
    where it is known, the others, and static batching, eight.
    """
    batch = policy.batch
    if batch.start is not None:
        return batch.start
    if by_plain_numbers(policy):
        return max(batch.min, min(PLAIN_START, batch.max or PLAIN_START))
    applied = known_value(signals.applied_batch)
    return batch.max or (None if applied is None else max(batch.min, int(applied)))


def _serving(signals: Signals) -> int | None:
    """Replicas that serve and will go on: what a rollout has in excess of those asked for is leaving again."""
    if isinstance(signals.ready_replicas, NotApplicable):
        return 0
    ready, asked = known_value(signals.ready_replicas), known_value(signals.asked_replicas)
    return _whole(ready if ready is None or not asked else min(ready, asked))


def _asked_for(memory: Memory, signals: Signals) -> int | None:
    """How many replicas the target has been asked for: what the cluster says, else what we last asked for."""
    told = _whole(known_value(signals.asked_replicas))
    return told if told is not None or memory.targets is None else memory.targets.replicas


def judge_objectives(policy: Policy, signals: Signals) -> dict[str, Verdict]:
    """Each declared bound (``ttft``, ``ttft_critical``, ...) against its P95; only a known latency can be judged."""
    verdicts: dict[str, Verdict] = {}
    for name in ("ttft", "tpot", "e2e"):
        latency = known_value(getattr(signals, f"{name}_seconds"))
        for bound, suffix in ((name, "_seconds"), (f"{name}_critical", "_critical_seconds")):
            objective = getattr(policy.objectives, name + suffix)
            if objective is not None:
                verdicts[bound] = (
                    "undecided" if latency is None else latency.against(objective, policy.objectives.minimum_samples)
                )
    return verdicts


def _satisfied(signal: object) -> bool:
    return isinstance(signal, Known | NotApplicable)


def _whole(value: float | None) -> int | None:
    return None if value is None else math.floor(value)


def _utilisation(signals: Signals, ready: int | None, flow: FlowNeed) -> float | None:
    """Load over capacity within objectives: the flow law's need over the ready replicas; None where it cannot be told.

    Demand with no replica to take it is over capacity however little it is.
    """
    if ready is None or not _satisfied(signals.running):
        return None
    if ready == 0:
        demand = at_least(signals.pending) + at_least(signals.wake_demand)
        return math.inf if demand > 0 else None
    return flow.replicas / ready


def _without_absent_engine(memory: Memory, signals: Signals) -> Signals:
    """Where zero replicas are asked for, by us or as the cluster says, or a woken replica is still loading, an engine
    that does not answer is not a lost signal: there is nothing to measure. Anything it *does* say still counts.

    """
    targets = memory.targets
    at_zero = known_value(signals.asked_replicas) == 0 or (targets is not None and not targets.active)
    if not (at_zero or memory.loading_seconds is not None):
        return signals
    absent = NotApplicable("asked for zero replicas" if at_zero else "the woken replica is still loading")
    missing: dict[str, Any] = {
        name: absent
        for name in CATALOG
        if name not in NOT_FROM_ENGINES and isinstance(getattr(signals, name), Stale | Unknown)
    }
    return replace(signals, **missing)


def proves_quiet(situation: Situation) -> bool:
    """Whether this tick's signals *prove* that nobody wants the workload: every demand known to be zero, no counter
    moved, every replica heard, none stalled (a stalled replica's silence proves nothing).
    """
    signals = situation.signals
    arrivals = signals.arrivals_per_second
    if not isinstance(signals.arrivals_last_per_second, Unknown):
        arrivals = signals.arrivals_last_per_second
    demands = (arrivals, signals.running, signals.waiting, signals.pending, signals.wake_demand)
    stalled = known_value(signals.stalled_replicas) or 0.0
    return (
        all(is_zero(demand) for demand in demands)
        and _satisfied(signals.ready_replicas)
        and not signals.counters_moved
        and stalled == 0
        and not situation.nobody_to_hear
    )


def wants_service(situation: Situation) -> bool:
    """Whether anything is certainly wanted now: a request somewhere, or a counter that moved since the last tick."""
    signals = situation.signals
    return signals.counters_moved or any(
        at_least(demand) > 0
        for demand in (
            signals.arrivals_last_per_second,
            signals.running,
            signals.waiting,
            signals.pending,
            signals.wake_demand,
        )
    )
