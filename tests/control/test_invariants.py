"""What holds of ``decide`` whatever the signals, as properties over random histories of a workload."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from scaler.control.decide import decide
from scaler.control.guard import guard
from scaler.control.model import Admission, Cause, Decision, LoadState, Memory, Now, Target
from scaler.control.situation import DOWN_NEEDS
from scaler.policy.jump import Jump, JumpRow
from scaler.policy.model import Batch, Capacity, Objectives, Policy, Push, ReplicaRange
from scaler.policy.windows import Warm
from scaler.signals.model import (
    CATALOG,
    ArrivalTrend,
    Interval,
    Known,
    Latency,
    NotApplicable,
    Signals,
    Stale,
    Unknown,
    known_value,
)
from tests.control.timeline import MIDNIGHT

LATENCIES = ("e2e_seconds", "ttft_seconds", "tpot_seconds", "queue_seconds", "prefill_seconds", "decode_seconds")
KINDS = ("known", "stale", "unknown", "not_applicable")
MEMORY_JSON = TypeAdapter(Memory)


def some_amount(chance: Random) -> float:
    return chance.choice((0.0, 0.0, chance.uniform(0, 3), chance.uniform(0, 500)))


def some_latency(chance: Random) -> Latency:
    low = chance.choice((chance.uniform(0, 0.2), chance.uniform(0, 60)))
    interval = Interval(low, chance.choice((math.inf, low * 1.1 + 1e-6)))
    return Latency(interval, interval, interval, chance.uniform(0, 60), chance.choice((0.0, 19.0, 20.0, 1000.0)))


def some_signals(chance: Random, at: float) -> Signals:
    """Each signal known, stale, unknown or not applicable; in half of the cases nearly all are known."""
    mostly_known = chance.random() < 0.5
    values: dict[str, Any] = {}
    for name in CATALOG:
        kind = "known" if mostly_known and chance.random() < 0.95 else chance.choice(KINDS)
        if name in LATENCIES:
            value: Any = some_latency(chance)
        else:
            value = chance.random() if name.endswith("ratio") else some_amount(chance)
        values[name] = {
            "known": Known(value, at),
            "stale": Stale(value, at - 30, at_least=some_amount(chance)),
            "unknown": Unknown("lost"),
            "not_applicable": NotApplicable("does not exist"),
        }[kind]
    dispersion = chance.choice((None, chance.uniform(0, 50)))
    trend = ArrivalTrend(some_amount(chance), 15.0, chance.uniform(-1, 1), chance.random(), chance.random(), 2.0)
    return Signals(
        **values,
        arrivals_dispersion=dispersion,
        arrivals_trend=chance.choice((None, trend)),
        identity=chance.choice((None, "one", "one", "one", "other")),
        counters_moved=chance.random() < 0.3,
    )


def some_policy(chance: Random) -> Policy:
    least = chance.randint(0, 3)
    jump = Jump(rows=(JumpRow(rate_at_least=50, batch=16, replicas=4),))
    return Policy(
        strategy=chance.choice(("adaptive", "adaptive", "adaptive", "stepwise", "queue", "latency")),
        push=Push(enabled=chance.random() < 0.7),
        batch=Batch(
            max=chance.choice((None, 4, 64, 256)),
            token_budget=chance.choice((None, 8192)),
            batching=chance.choice((None, "continuous", "static")),
        ),
        capacity=Capacity(requests_per_second=chance.choice((None, chance.uniform(0.1, 50)))),
        objectives=Objectives(ttft_seconds=1, ttft_critical_seconds=5, tpot_seconds=0.05, e2e_seconds=10),
        replicas=ReplicaRange(min=least, max=chance.choice((None, max(least, 1), 30))),
        warm=Warm(floor=chance.randint(0, 2) if least else 0),
        jump=chance.choice((Jump(), jump)),
    )


Step = tuple[Memory, Signals, Now, Decision]


def history_of(seed: int) -> tuple[Policy, list[Step]]:
    """A policy, and up to two dozen ticks of random signals under it; by seed, which is much faster than by value."""
    chance = Random(seed)
    policy, memory, mono, steps = some_policy(chance), Memory(), 1000.0, []
    for _ in range(chance.randint(1, 24)):
        mono += chance.choice((5.0, 5.0, 5.0, 1.0, 61.0, 1900.0))
        now = Now(MIDNIGHT + timedelta(seconds=mono), mono)
        signals = some_signals(chance, mono)
        decision = decide(policy, memory, signals, now)
        steps.append((memory, signals, now, decision))
        memory = decision.next_memory
    return policy, steps


histories = st.integers(0, 2**32).map(history_of)
run = settings(max_examples=400)


@run
@given(histories)
def test_never_outside_floor_and_ceiling_and_never_active_without_a_replica(history: tuple[Policy, list[Step]]) -> None:
    for _, _, _, decision in history[1]:
        targets = decision.targets
        assert targets.active == (targets.replicas > 0)
        if targets.active:
            assert targets.replicas >= decision.floor
        assert decision.ceiling is None or targets.replicas <= decision.ceiling


@run
@given(histories)
def test_never_down_on_doubt(history: tuple[Policy, list[Step]]) -> None:
    for memory, signals, _, decision in history[1]:
        doubtful = any(isinstance(getattr(signals, name), Stale | Unknown) for name in DOWN_NEEDS)
        before = memory.targets
        if before is None or not before.active or memory.loading_seconds is not None or not doubtful:
            continue  # at zero, or while loading, there is no engine to be heard
        if known_value(signals.asked_replicas) == 0:
            continue  # nor where the cluster says that none is asked for
        capped = decision.ceiling if decision.ceiling is not None else before.replicas
        assert decision.targets.replicas >= min(before.replicas, capped)


@run
@given(histories)
def test_zero_only_after_the_whole_idle_time_and_only_on_proof(history: tuple[Policy, list[Step]]) -> None:
    policy, steps = history
    for memory, signals, _, decision in steps:
        if memory.targets is None or not memory.targets.active or decision.targets.active:
            continue
        if memory.loading_seconds is not None:
            continue  # a load given up, not idleness
        assert decision.next_memory.idle_seconds >= policy.idle.timeout_seconds
        assert decision.floor == 0
        assert not signals.counters_moved
        for name in ("running", "waiting", "pending", "wake_demand"):
            signal = getattr(signals, name)
            if isinstance(signal, Stale | Unknown) and known_value(signals.asked_replicas) == 0:
                continue  # the cluster says that none is asked for: no engine to be heard
            assert isinstance(signal, NotApplicable) or signal == Known(0.0, signal.at)


@run
@given(histories)
def test_a_changed_target_has_a_reason(history: tuple[Policy, list[Step]]) -> None:
    for memory, _, _, decision in history[1]:
        before = memory.targets
        if before is None:
            continue
        reasons = {reason.target for reason in decision.reasons}
        for target in (Target.REPLICAS, Target.BATCH, Target.TOKEN_BUDGET, Target.ADMISSION):
            if getattr(before, target) != getattr(decision.targets, target):
                waking = target is Target.REPLICAS and Target.ACTIVE in reasons
                assert target in reasons or waking, (target, before, decision)


@run
@given(histories)
def test_same_inputs_same_decision_and_memory_survives_json(history: tuple[Policy, list[Step]]) -> None:
    policy, steps = history
    for memory, signals, now, decision in steps:
        again = MEMORY_JSON.validate_json(MEMORY_JSON.dump_json(memory))
        assert again == memory
        assert decide(policy, again, signals, now) == decision


@run
@given(histories)
def test_queueing_never_shrinks_the_batch(history: tuple[Policy, list[Step]]) -> None:
    policy, steps = history
    for memory, _, _, decision in steps:
        before = memory.targets.batch if memory.targets else None
        if policy.strategy != "stepwise" and decision.cause is Cause.QUEUEING and before is not None:
            assert decision.targets.batch is None or decision.targets.batch >= before


@run
@given(histories)
def test_protection_is_never_delayed_by_a_cooldown(history: tuple[Policy, list[Step]]) -> None:
    """Whatever changed a moment ago, memory pressure shrinks as if nothing had; only its own last shrink is awaited."""
    policy, steps = history
    for memory, signals, now, decision in steps:
        if decision.cause is not Cause.MEMORY or memory.targets is None:
            continue
        rested = replace(memory, since_batch_change_seconds=None)
        cooling = replace(memory, since_batch_change_seconds=0.0)
        assert decide(policy, rested, signals, now).targets.batch == decide(policy, cooling, signals, now).targets.batch


@run
@given(histories)
def test_the_guard_only_holds_or_shrinks(history: tuple[Policy, list[Step]]) -> None:
    policy, steps = history
    for memory, signals, now, _ in steps:
        before = memory.targets.batch if memory.targets else None
        after = guard(policy, memory, signals, now).batch
        assert before is None or (after is not None and after <= before)


@run
@given(histories)
def test_the_guard_says_what_the_decision_says_of_memory(history: tuple[Policy, list[Step]]) -> None:
    """Called by itself every second, it moves the engine just where a whole tick would have."""
    policy, steps = history
    for memory, signals, now, decision in steps:
        if decision.state is LoadState.STALLED:
            continue  # there a tick touches nothing
        move = guard(policy, memory, signals, now)
        if decision.cause is Cause.MEMORY:
            after = decision.targets
            assert (move.batch, move.token_budget) == (after.batch, after.token_budget)
            # Letting nobody in, and in again, is the tick's to decide; holding back new ones is the guard's too.
            before = Admission.OPEN if memory.targets is None else memory.targets.admission
            stricter = (Admission.OPEN, Admission.HOLD, Admission.SHED)
            held = max(stricter.index(before), stricter.index(after.admission))
            assert stricter.index(move.admission) == held or after.admission is Admission.SHED
        elif memory.targets is not None:
            assert move.batch == memory.targets.batch


@run
@given(histories)
def test_the_batch_stays_in_its_range(history: tuple[Policy, list[Step]]) -> None:
    policy, steps = history
    for _, _, _, decision in steps:
        batch = decision.targets.batch
        if batch is not None:
            assert batch >= policy.batch.min
            assert policy.batch.max is None or batch <= policy.batch.max


@run
@given(histories)
def test_without_any_answer_ever_nothing_is_claimed(history: tuple[Policy, list[Step]]) -> None:
    for memory, signals, _, decision in history[1]:
        running, ready = signals.running, signals.ready_replicas
        if known_value(signals.asked_replicas) == 0:
            continue  # the cluster has answered: none is asked for
        if memory.targets is None and isinstance(running, Unknown) and isinstance(ready, Unknown):
            demanded = decision.next_memory.loading_seconds is not None
            assert demanded or not decision.available
