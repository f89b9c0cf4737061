"""Going to and fro: what is no oscillation, what widens a dead band, what that holds back, and how it ends (G5-06)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.model import Code, Target
from scaler.control.oscillation import MOST_TURNS, WIDEN, WIDEST, WINDOW_SECONDS, swung
from scaler.control.swing import Swing
from scaler.policy.model import Batch, Capacity, MemoryGuard, Policy, ReplicaRange
from tests.control.timeline import Timeline

BUSY = dict(arrivals=20, running=60, waiting=0, ready=2)
LOADED = Policy(batch=Batch(max=64), replicas=ReplicaRange(max=9))
SERVING = LOADED.model_copy(update={"capacity": Capacity(requests_per_second=4)})
ROOM, FULL = 0.84, 0.97


def loaded(arrivals: float) -> dict[str, Any]:
    """Signals at so many requests per second, none of which lasts."""
    return dict(arrivals=arrivals, running=1, waiting=0, ready=2, kv=0.3)


def fluctuating(timeline: Timeline, start: float, times: int) -> float:
    """KV use is full for 20 s and has room for 70 s, so many times; the end, in seconds."""
    for number in range(times):
        begin = start + 90 * number
        timeline.at(f"{begin}s", **BUSY, kv=FULL).at(f"{begin + 20}s", **BUSY, kv=ROOM)
        timeline.at(f"{begin + 85}s")
    return start + 90 * times


class TestBatch:
    def test_shrink_and_growth_by_turns_widen_the_band_between_them(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY, kv=0.5)
        end = fluctuating(timeline, 5, 3)
        said = [
            reason for decision in timeline.history for reason in decision.reasons if reason.code is Code.OSCILLATION
        ]
        assert [(reason.target, reason.value) for reason in said] == [(Target.BATCH, WIDEN)]
        assert timeline.memory.batch_swing.widening == WIDEN
        # 0.84 was room before; now growth waits for 0.80, and says why.
        batch = timeline.memory.targets.batch if timeline.memory.targets else None
        timeline.at(f"{end + 120}s", **BUSY, kv=ROOM).expect(batch=batch).held_back(Code.OSCILLATION)
        timeline.at(f"{end + 125}s", **BUSY, kv=0.78)
        assert timeline.decision is not None
        assert timeline.decision.targets.batch is not None
        assert batch is not None
        assert timeline.decision.targets.batch > batch

    def test_calm_gives_the_band_back(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY, kv=0.5)
        end = fluctuating(timeline, 5, 3)
        timeline.at(f"{end}s", **BUSY, kv=ROOM).at(f"{end + 480}s").held_back(Code.OSCILLATION)
        timeline.at(f"{end + 700}s")
        assert timeline.memory.batch_swing.widening == 1.0
        timeline.at(f"{end + 900}s").expect(batch=64)

    def test_protection_is_never_held_back_by_it(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY, kv=0.5)
        end = fluctuating(timeline, 5, 6)
        timeline.at(f"{end + 60}s", **BUSY, kv=0.5).at(f"{end + 300}s")
        before = timeline.memory.targets
        timeline.at(f"{end + 305}s", **BUSY, kv=FULL).because(Code.MEMORY_PRESSURE)
        assert before is not None
        assert before.batch is not None
        assert timeline.decision is not None
        assert timeline.decision.targets.batch is not None
        assert timeline.decision.targets.batch < before.batch

    def test_one_mark_crossed_again_and_again_shrinks_once(self) -> None:
        """G5-06 A: KV use of 0.79 and 0.81 by turns, every 15 s for 10 min, about a mark of 0.80."""
        policy = Policy(batch=Batch(min=8, max=64), memory=MemoryGuard(kv_emergency_ratio=0.8, kv_growth_ratio=0.6))
        timeline = Timeline(policy).at("0s", **BUSY, kv=0.79)
        batches = []
        for number in range(40):
            timeline.at(f"{15 * number + 15}s", **BUSY, kv=0.81 if number % 2 == 0 else 0.79)
            assert timeline.decision is not None
            batches.append(timeline.decision.targets.batch)
        assert batches == [22] * 40  # 30 x 0.6/0.81
        timeline.at("11m", **BUSY, kv=0.5).at("14m").expect(batch=64)

    def test_pressure_that_stays_shrinks_on(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY, kv=0.5).at("5s", **BUSY, kv=FULL, applied_batch=26)
        timeline.expect(batch=26).at("15s").expect(batch=26)  # by 0.85/0.97 each time
        timeline.at("20s").expect(batch=22).at("25s", **BUSY, kv=FULL, applied_batch=22).at("35s").expect(batch=19)

    def test_a_preemption_is_no_hovering(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY, kv=0.5).at("5s", **BUSY, kv=FULL).expect(batch=26)
        timeline.at("20s", **BUSY, kv=0.9, preempted=0).at("60s").expect(batch=26)
        timeline.at("65s", **BUSY, kv=0.9, preempted=3, applied_batch=26).expect(batch=23)


class TestReplicas:
    """One replica serves 4 req/s."""

    def steps(self, timeline: Timeline, marks: list[tuple[str, float]]) -> list[int]:
        got = []
        for mark, arrivals in marks:
            timeline.at(mark, **loaded(arrivals))
            assert timeline.decision is not None
            got.append(timeline.decision.targets.replicas)
        return got

    def test_steps_up_and_down_by_turns_make_small_steps_down_wait(self) -> None:
        quick = ReplicaRange(max=9, down_window_seconds=10, down_step_seconds=0)
        timeline = Timeline(SERVING.model_copy(update={"replicas": quick}))
        assert self.steps(timeline, [("0s", 36)]) == [9]
        self.steps(timeline, [(f"{60 * minute + 60}s", 20 if minute % 2 else 15) for minute in range(6)])
        assert timeline.memory.replicas_swing.widening == WIDEN
        timeline.at("7m", **loaded(20)).expect(replicas=5)
        timeline.at("8m", **loaded(15)).at("8m15s").expect(replicas=5)
        timeline.held_back(Code.OSCILLATION)
        # More is never held back, nor is a step larger than the band.
        timeline.at("9m", **loaded(24)).expect(replicas=6)
        timeline.at("10m", **loaded(8)).at("10m15s").expect(replicas=3)

    def test_an_ordinary_day_is_no_oscillation(self) -> None:
        timeline = Timeline(SERVING)
        self.steps(timeline, [(f"{900 * number}s", 8 if number % 2 else 24) for number in range(8)])
        assert timeline.memory.replicas_swing.widening == 1.0


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, None]), st.sampled_from([1.0, 5.0, 60.0, 700.0])), max_size=60))
def test_a_swing_is_bounded_and_calm_ends_it(moves: list[tuple[Any, float]]) -> None:
    swing, before = Swing(), 1
    for after, elapsed in moves:
        swing = swung(swing, before, after, elapsed)
        before = after
        assert len(swing.turns) <= MOST_TURNS
        assert 1.0 <= swing.widening <= WIDEST
        assert all(0 <= age < WINDOW_SECONDS for age in swing.turns)
    for _ in range(5):
        swing = swung(swing, before, before, WINDOW_SECONDS)
    assert (swing.turns, swing.widening) == ((), 1.0)


@pytest.mark.parametrize("marks", [{"kv_emergency_ratio": 0.8, "kv_growth_ratio": 0.8}])
def test_one_mark_for_both_ways_is_refused(marks: dict[str, float]) -> None:
    """G5-06 D."""
    with pytest.raises(ValueError, match=r"must be at least 0\.02 below"):
        MemoryGuard(**marks)
