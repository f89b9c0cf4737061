"""The guard between two ticks: it only shrinks or holds, once per settling time, and the next tick goes on from it."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from scaler.control.decide import decide
from scaler.control.guard import guarded
from scaler.control.model import Admission, Code, Decision, Memory, Now
from scaler.policy.model import Batch, Policy, ReplicaRange
from scaler.signals.model import Known, Signals, Stale
from tests.control.test_invariants import some_policy, some_signals
from tests.control.timeline import MIDNIGHT, Timeline

LOADED = Policy(batch=Batch(max=64), replicas=ReplicaRange(max=9))
BUSY = dict(arrivals=20, running=100, waiting=0, ready=2, kv=0.5, busiest_running=50)
MEMORY_JSON = TypeAdapter(Memory)


def light(timeline: Timeline, seconds: float, **values: float) -> Decision | None:
    """A light read so long after the last tick; its move is taken into the timeline, as the loop does."""
    assert timeline.decision is not None
    elapsed = timeline._elapsed + seconds
    now = Now(timeline.start + timedelta(seconds=elapsed), timeline.mono + elapsed)
    signals = Signals(**{name: Known(value, now.mono) for name, value in values.items()})
    moved = guarded(timeline.policy, timeline.memory, signals, now, timeline.decision)
    if moved is not None:
        timeline.decision, timeline.memory = moved, moved.next_memory
    return moved


FULL: dict[str, float] = dict(kv_use_ratio=0.97, busiest_running=50)


def test_an_emergency_between_two_ticks_shrinks_what_runs_and_holds_admission() -> None:
    timeline = Timeline(LOADED).at("0s", **BUSY)
    assert light(timeline, 1.0, kv_use_ratio=0.94, busiest_running=50) is None
    assert light(timeline, 2.0, **FULL) is not None
    # 50 x 0.85/0.97
    timeline.expect(batch=43, admission=Admission.HOLD, replicas=4).because(Code.MEMORY_PRESSURE, Code.RUNNING)


def test_a_replica_that_is_not_read_does_not_take_the_protection_from_those_that_are() -> None:
    """KV use of several is the greatest: with one of them silent it is still at least what the others show.

    How full the fullest is nobody knows then, so it is the half; of preemptions beside a cache with room, nine tenths.
    """
    for signal, seen, batch in (("kv", 0.97, 25), ("preempted", 3.0, 45)):
        some = dict(running=Stale(100.0, 1000.0, 50.0), ready=Stale(2.0, 1000.0, 1.0))
        timeline = Timeline(LOADED).at("0s", **BUSY)
        timeline.at("5s", **BUSY | some | {signal: Stale(seen, 1000.0, at_least=0.0)}).expect(batch=64)
        timeline.at("10s", **BUSY | some | {signal: Stale(seen, 1000.0, at_least=seen)}).expect(batch=batch)
        timeline.because(Code.MEMORY_PRESSURE)


def test_it_waits_for_the_effect_of_its_last_move_across_ticks() -> None:
    timeline = Timeline(LOADED).at("0s", **BUSY)
    light(timeline, 3.0, **FULL)
    for second in (4.0, 4.9):
        assert light(timeline, second, **FULL) is None
    pressed: dict[str, Any] = BUSY | {"kv": 0.97, "applied_batch": 43}
    timeline.at("5s", **pressed).at("15s").expect(batch=43).held_back(Code.SETTLING)
    assert light(timeline, 2.9, **FULL, applied_batch=43) is None
    # 15 s after the move at 3 s, though the tick before it knew nothing of it.
    assert light(timeline, 3.0, **FULL, applied_batch=43) is not None
    timeline.expect(batch=37)  # 43 x 0.85/0.97


def test_the_way_back_is_the_slow_loops() -> None:
    timeline = Timeline(LOADED).at("0s", **BUSY)
    light(timeline, 3.0, **FULL)
    assert light(timeline, 4.0, kv_use_ratio=0.2, busiest_running=5) is None
    timeline.at("5s", **BUSY).expect(batch=43, admission=Admission.OPEN)
    timeline.at("15s").expect(batch=43).at("20s").expect(batch=64).because(Code.RECOVERY)  # what runs fits


def test_an_engine_at_its_own_batch_goes_back_to_its_own() -> None:
    timeline = Timeline(Policy(replicas=ReplicaRange(max=9))).at("0s", **BUSY).expect(batch=None)
    light(timeline, 1.0, **FULL)
    timeline.expect(batch=43)
    timeline.at("5s", **BUSY).at("5m").expect(batch=None)


def test_what_says_nothing_moves_nothing() -> None:
    timeline = Timeline(LOADED).at("0s", **BUSY)
    assert light(timeline, 1.0) is None
    assert light(timeline, 1.0, busiest_running=500) is None


def test_a_first_tick_is_awaited() -> None:
    now = Now(MIDNIGHT, 1000.0)
    last = decide(LOADED, Memory(), Signals(), now)
    assert guarded(LOADED, Memory(), Signals(kv_use_ratio=Known(0.99, 1000.0)), now, last) is None


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_it_only_shrinks_or_holds_and_leaves_the_rest_alone(seed: int) -> None:
    chance = Random(seed)
    policy, memory, mono = some_policy(chance), Memory(), 1000.0
    for _ in range(chance.randint(1, 12)):
        mono += 5.0
        now = Now(MIDNIGHT + timedelta(seconds=mono), mono)
        last = decide(policy, memory, some_signals(chance, mono), now)
        memory = last.next_memory
        for between in (1.0, 2.0, 3.0):
            then = Now(now.utc + timedelta(seconds=between), mono + between)
            moved = guarded(policy, memory, some_signals(chance, then.mono), then, last)
            if moved is None:
                continue
            before, after = memory.targets, moved.targets
            assert before is not None
            assert (after.replicas, after.active, after.token_budget) == (
                before.replicas,
                before.active,
                before.token_budget,
            )
            assert before.batch is None or (after.batch is not None and after.batch <= before.batch)
            stricter = (Admission.OPEN, Admission.HOLD, Admission.SHED)
            assert stricter.index(after.admission) >= stricter.index(before.admission)
            assert (after.batch, after.admission) != (before.batch, before.admission)
            assert after.batch is None or after.batch >= policy.batch.min
            assert MEMORY_JSON.validate_json(MEMORY_JSON.dump_json(moved.next_memory)) == moved.next_memory
            last, memory = moved, moved.next_memory
