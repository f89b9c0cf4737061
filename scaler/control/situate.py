"""The situation of one tick, derived once from policy, memory, signals and time."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

from scaler.control.arrivals import expected_arrivals
from scaler.control.budget import Bill, charged, room
from scaler.control.capacity import estimate_capacity, residence_seconds
from scaler.control.cold_start import cold_start_seconds, coming, watched
from scaler.control.evenness import unevenness
from scaler.control.feasible import LATENCIES, infeasible_bounds, seen_empty, without
from scaler.control.flow import FlowNeed, flow_need, mean_running, overload
from scaler.control.lasting import older
from scaler.control.model import Memory, Now
from scaler.control.pressure import memory_pressure
from scaler.control.scale_in import may_scale_in, scales_in, without_room
from scaler.control.season import Season, expected_season, foresee, learn_season
from scaler.control.settled import loaded_now
from scaler.control.situation import JUDGED_BY, Situation, satisfied
from scaler.policy.model import Policy
from scaler.signals.model import (
    CATALOG,
    NOT_FROM_ENGINES,
    NotApplicable,
    Signals,
    Stale,
    Unknown,
    Verdict,
    at_least,
    is_zero,
    known_value,
)


def situate(policy: Policy, memory: Memory, signals: Signals, now: Now) -> Situation:
    """Derive the situation. Pure; the only place where "no replica to ask" is told apart from "no answer"."""
    declared, policy = policy, policy.at(now.utc)
    elapsed = 0.0 if memory.tick_mono is None else max(0.0, now.mono - memory.tick_mono)
    signals = _without_absent_engine(memory, signals)
    present = _present(signals)
    asleep = min(_whole(known_value(signals.asleep_replicas)) or 0, present or 0)
    ready = None if present is None else present - asleep
    infeasible = infeasible_bounds(policy, memory.empty)
    policy = without(policy, infeasible)
    capacity = estimate_capacity(policy, memory, signals)
    no_node = (known_value(signals.unschedulable_replicas) or 0.0) > 0
    cold_starts = watched(
        memory.cold_starts,
        _asked_for(memory, signals),
        present,
        unschedulable=no_node,
        elapsed_seconds=elapsed,
    )
    cold_start = cold_start_seconds(cold_starts, policy.replicas.cold_start_seconds, unschedulable=no_node)
    arrivals = expected_arrivals(
        policy,
        signals,
        capacity,
        cold_start_seconds=cold_start,
        elapsed_seconds=elapsed,
        foreseen=foresee(memory.season, policy.season, now.utc, cold_start),
    )
    verdicts = judge_objectives(policy, signals)
    breached = "breached" in verdicts.values()
    loaded = capacity if breached else loaded_now(policy, memory, signals, arrivals, capacity, cold_start)
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
            loaded,
            ready=ready,
            growth=over.growth,
            running_mean=running_mean,
            uneven=evenness,
            drain_seconds=policy.replicas.drain_seconds,
        )

    flow, scale_in = need(uneven), None
    lost = tuple(name for name in JUDGED_BY if not satisfied(getattr(signals, name)))
    if may_scale_in(policy, memory) and not arrivals.steep and not breached:
        full = without_room(need(None), flow, loaded.load_share)
        if scales_in(policy, memory, flow, full):
            flow, scale_in = full, older(memory.scale_in_seconds or 0.0, elapsed)
    floor, ceiling = policy.floor(now.utc), policy.ceiling(now.utc)
    bill = _bill(policy, memory, signals, now, elapsed)
    left = room(bill, policy, floor)
    return Situation(
        policy=policy,
        declared=without(declared, infeasible),
        memory=memory,
        signals=signals,
        now=now,
        elapsed_seconds=elapsed,
        floor=floor,
        ceiling=ceiling if left is None or left.ceiling is None else min(left.ceiling, ceiling or left.ceiling),
        ready=ready,
        asleep=asleep,
        lost=lost,
        may_lower=not lost and satisfied(signals.arrivals_per_second),
        capacity=capacity,
        loaded=loaded,
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
            ready=present,
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
        verdicts=verdicts | dict.fromkeys(infeasible, "infeasible") if infeasible else verdicts,
        pressure=memory_pressure(policy, signals),
        bill=bill,
        budget=left,
        season=expected_season(memory.season, policy.season, ahead),
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


def judge_objectives(policy: Policy, signals: Signals) -> dict[str, Verdict]:
    """Each declared bound (``ttft``, ``ttft_critical``, ...) against its P95; only a known latency can be judged."""
    verdicts: dict[str, Verdict] = {}
    objectives, minimum_samples = policy.objectives, policy.objectives.minimum_samples
    for _, signal, bounds in LATENCIES:
        latency = known_value(getattr(signals, signal))
        for bound, key in bounds:
            objective = getattr(objectives, key)
            if objective is not None:
                verdicts[bound] = "undecided" if latency is None else latency.against(objective, minimum_samples)
    return verdicts


def _bill(policy: Policy, memory: Memory, signals: Signals, now: Now, elapsed_seconds: float) -> Bill:
    """What has been spent when this tick begins, of the replicas asked for since the one before."""
    told = memory.targets.replicas if memory.targets is not None and memory.targets.active else 0.0
    asked = known_value(signals.asked_replicas)
    elapsed = None if memory.tick_mono is None else elapsed_seconds
    return charged(memory.bill, policy, told if asked is None else asked, now.utc, elapsed)


def _present(signals: Signals) -> int | None:
    """Replicas that serve or sleep and will go on: what a rollout has beyond those asked for is leaving again."""
    if isinstance(signals.ready_replicas, NotApplicable):
        return 0
    ready, asked = known_value(signals.ready_replicas), known_value(signals.asked_replicas)
    return _whole(ready if ready is None or not asked else min(ready, asked))


def _asked_for(memory: Memory, signals: Signals) -> int | None:
    """How many replicas the target has been asked for: what the cluster says, else what we last asked for."""
    told = _whole(known_value(signals.asked_replicas))
    return told if told is not None or memory.targets is None else memory.targets.replicas


def _whole(value: float | None) -> int | None:
    return None if value is None else math.floor(value)


def _utilisation(signals: Signals, ready: int | None, flow: FlowNeed) -> float | None:
    """Load over capacity within objectives: the flow law's need over the ready replicas; None where it cannot be told.

    Demand with no replica to take it is over capacity however little it is.
    """
    if ready is None or not satisfied(signals.running):
        return None
    if ready == 0:
        demand = at_least(signals.pending) + at_least(signals.wake_demand)
        return math.inf if demand > 0 else None
    return flow.replicas / ready


#: What an engine says of requests it has, or that came to it.
_REQUESTS = ("running", "waiting", "arrivals_last_per_second")


def _without_absent_engine(memory: Memory, signals: Signals) -> Signals:
    """Where zero replicas are asked for, by us or as the cluster says, or a woken replica is still loading, an engine
    that does not answer is not a lost signal: there is nothing to measure. Anything it *does* say still counts: also
    the requests that one of several certainly has, though the others are not read.
    """
    targets = memory.targets
    at_zero = known_value(signals.asked_replicas) == 0 or (targets is not None and not targets.active)
    if not (at_zero or memory.loading_seconds is not None):
        return signals
    absent = NotApplicable("asked for zero replicas" if at_zero else "the woken replica is still loading")
    missing: dict[str, Any] = {
        name: absent
        for name in CATALOG
        if name not in NOT_FROM_ENGINES
        and isinstance(signal := getattr(signals, name), Stale | Unknown)
        and not (name in _REQUESTS and at_least(signal) > 0)
    }
    return replace(signals, **missing)
