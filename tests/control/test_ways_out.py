"""Every state and every condition has a measured or timed way out, and its age is told meanwhile (G5-06)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scaler.control.lasting import ENDS, lasting
from scaler.control.model import Admission, Code, LoadState, Override
from scaler.policy.model import Batch, LoadThresholds, Objectives, Policy, Push, ReplicaRange
from tests.control.timeline import Timeline, gone, latency, quiet

POLICY = Policy(
    batch=Batch(max=64),
    replicas=ReplicaRange(max=9),
    objectives=Objectives(ttft_seconds=1.0, ttft_critical_seconds=5.0, tpot_seconds=0.05, tpot_critical_seconds=0.1),
    push=Push(enabled=True),
)
#: 24 of 32 sequences of each of two replicas: neither high nor low.
NORMAL: dict[str, Any] = dict(
    arrivals=4, running=46, waiting=0, ready=2, kv=0.4, pending=0, wake_demand=0, ttft=latency(0.2), tpot=latency(0.03)
)
LATE: dict[str, Any] = NORMAL | {"ttft": latency(9.0), "waiting": 60, "running": 64}
STATES: list[tuple[LoadState, dict[str, Any]]] = [
    (LoadState.CRITICAL, LATE),
    (LoadState.CRITICAL, NORMAL | {"kv": 0.97}),
    (LoadState.HIGH, NORMAL | {"running": 70}),
    (LoadState.LOW, NORMAL | {"running": 4, "arrivals": 0.5}),
    (LoadState.IDLE, NORMAL | quiet(2)),
    (LoadState.UNKNOWN, gone() | {"pending": 0, "wake_demand": 0}),
    (LoadState.STALLED, NORMAL | {"ready": 0, "running": 0, "stalled": 2}),
]


@pytest.mark.parametrize(("state", "signals"), STATES)
def test_each_state_is_left_for_normal_and_tells_its_age(state: LoadState, signals: dict[str, Any]) -> None:
    timeline = Timeline(POLICY).at("0s", **NORMAL).expect(state=LoadState.NORMAL)
    timeline.at("5s", **signals).at("6m").expect(state=state)
    assert timeline.memory.state_seconds >= 180
    timeline.at("6m5s", **NORMAL).at("10m").expect(state=LoadState.NORMAL)  # what runs is averaged over two minutes
    assert timeline.memory.state_seconds <= 240


def conditions(timeline: Timeline) -> dict[str, float]:
    return lasting(timeline.memory)


class TestConditions:
    def test_doubt(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL).at("5s", **gone()).at("65s")
        assert conditions(timeline)["doubt"] == 65
        timeline.at("70s", **NORMAL)
        assert "doubt" not in conditions(timeline)

    def test_shrunk_and_held_by_memory(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL).at("5s", **NORMAL | {"kv": 0.97}).at("10s")
        timeline.expect(batch=20, admission=Admission.HOLD)
        assert conditions(timeline) == {"memory_pressure": 5, "shrunk": 5, "admission": 5}
        timeline.at("15s", **NORMAL | {"kv": 0.3})
        assert conditions(timeline) == {"shrunk": 10}
        timeline.at("8m").expect(batch=64)
        assert conditions(timeline) == {}

    def test_a_shrunk_batch_that_binds_waits_only_for_its_effect_where_the_cache_would_hold_more(self) -> None:
        """23 x 0.85/0.97 is 20 each; at 0.3 of the cache 40 would take 0.6. At 0.5 they would take all: a minute."""
        binding = NORMAL | {"running": 40, "waiting": 20}
        timeline = Timeline(POLICY).at("0s", **NORMAL).at("5s", **NORMAL | {"kv": 0.97}).expect(batch=20)
        timeline.at("10s", **binding | {"kv": 0.3}).at("15s").expect(batch=20).at("20s").expect(batch=40)
        full = Timeline(POLICY).at("0s", **NORMAL).at("5s", **NORMAL | {"kv": 0.97})
        full.at("10s", **binding | {"kv": 0.5}).at("60s").expect(batch=20).at("65s").expect(batch=40)

    def test_a_stall_that_a_hold_of_our_own_made(self) -> None:
        """Nobody was let in while device memory was short, so what waits made no progress and its replicas count as
        stalled. A hold that a stall keeps, and that keeps the stall, would never end.
        """
        waiting = NORMAL | {"running": 0, "waiting": 40, "gpu_memory_free_ratio": 0.01}
        timeline = Timeline(POLICY).at("0s", **NORMAL).at("5s", **waiting).expect(admission=Admission.HOLD).at("2m")
        stalled = NORMAL | {"ready": 0, "stalled": 2, "running": 0, "waiting": 0}
        timeline.at("125s", **stalled | {"gpu_memory_free_ratio": 0.01}).at("10m").expect(admission=Admission.HOLD)
        timeline.at("10m5s", **stalled).expect(state=LoadState.STALLED, admission=Admission.OPEN)
        timeline.because(Code.STALLED_TRIAL)
        progressing = NORMAL | {"running": 40}
        timeline.at("10m10s", **progressing).at("11m").expect(state=LoadState.NORMAL, admission=Admission.OPEN)

    def test_a_replica_that_hangs_is_fed_for_one_tick_in_two_minutes(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL)
        timeline.at("5s", **NORMAL | {"ready": 0, "running": 0, "stalled": 2}).expect(admission=Admission.HOLD)
        timeline.at("120s").expect(admission=Admission.HOLD).at("125s").expect(admission=Admission.OPEN)
        timeline.at("130s").expect(admission=Admission.HOLD).at("245s").expect(admission=Admission.HOLD)
        timeline.at("250s").expect(admission=Admission.OPEN)

    def test_a_latency_step(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL).at("5s", **LATE).at("60s")
        assert conditions(timeline)["latency_step"] == 55
        timeline.at("65s", **NORMAL).at("5m")
        assert "latency_step" not in conditions(timeline)

    def test_a_jump_that_is_held(self) -> None:
        policy = POLICY.model_copy(update={"jump": POLICY.jump})
        timeline = Timeline(policy).at("0s", **NORMAL | {"recent": 4, "last": 4})
        timeline.at("5s", **NORMAL | {"recent": 60, "last": 90, "running": 200, "waiting": 300}).at("10s", **NORMAL).at(
            "30s"
        )
        assert conditions(timeline)["jump_hold"] == 25
        timeline.at("3m")
        assert "jump_hold" not in conditions(timeline)

    def test_loading_and_the_wait_after_a_failed_load(self) -> None:
        timeline = Timeline(POLICY.model_copy(update={"replicas": ReplicaRange(max=3, load_timeout_seconds=60)}))
        timeline.at("0s", **NORMAL | quiet(1)).at("31m").expect(active=False)
        asleep: dict[str, Any] = gone() | {"pending": 3, "wake_demand": 0}
        timeline.at("32m", **asleep).at("32m30s")
        assert conditions(timeline)["loading"] == 30
        timeline.at("33m10s").expect(active=False)
        assert conditions(timeline)["wake_backoff"] == 10
        timeline.at("34m5s").expect(active=True)
        timeline.at("34m20s", **NORMAL)
        assert conditions(timeline) == {}

    def test_an_override(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL)
        until = timeline.start + timedelta(minutes=5)
        timeline.memory = type(timeline.memory)(
            **{name: getattr(timeline.memory, name) for name in timeline.memory.__dataclass_fields__}
            | {"override": Override(5, None, until)}
        )
        timeline.at("5s").at("65s")
        assert conditions(timeline)["override"] == 60
        timeline.at("6m")
        assert conditions(timeline) == {}

    def test_low(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL | {"running": 4}).at("3m")
        assert conditions(timeline)["low"] == 180
        timeline.at("3m5s", **NORMAL)
        assert conditions(timeline) == {}

    def test_each_has_its_way_out_in_words(self) -> None:
        assert all(ends and not ends.endswith(".") for ends in ENDS.values())


class TestDwell:
    def test_a_pressing_state_is_not_left_within_its_least_time_and_entered_at_once(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL)
        timeline.at("5s", **NORMAL | {"running": 70}).expect(state=LoadState.HIGH)
        timeline.at("10s", **NORMAL).expect(state=LoadState.HIGH)
        timeline.at("15s", **LATE).expect(state=LoadState.CRITICAL)
        timeline.at("20s", **NORMAL).expect(state=LoadState.CRITICAL).at("30s").expect(state=LoadState.NORMAL)

    def test_facts_are_not_delayed(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL).at("5s", **LATE).expect(state=LoadState.CRITICAL)
        timeline.at("10s", **NORMAL | quiet(2)).expect(state=LoadState.IDLE)

    def test_it_is_a_key(self) -> None:
        eager = POLICY.model_copy(update={"load": LoadThresholds(minimum_dwell_seconds=0)})
        timeline = Timeline(eager).at("0s", **NORMAL).at("5s", **NORMAL | {"running": 70}).expect(state=LoadState.HIGH)
        timeline.at("10s", **NORMAL).expect(state=LoadState.NORMAL)


class TestSignalsOfTheState:
    """Each family of signals that the states are made of, where the others say nothing."""

    def test_a_declared_rate(self) -> None:
        rates = LoadThresholds(high_requests_per_second=10, low_requests_per_second=1)
        timeline = Timeline(POLICY.model_copy(update={"load": rates}))
        timeline.at("0s", **NORMAL | {"arrivals": 19}).expect(state=LoadState.NORMAL)
        timeline.at("5s", **NORMAL | {"arrivals": 20}).expect(state=LoadState.HIGH)
        timeline.at("30s", **NORMAL | {"arrivals": 18}).expect(state=LoadState.HIGH)  # leaves below 0.85
        timeline.at("35s", **NORMAL | {"arrivals": 16}).expect(state=LoadState.NORMAL)
        timeline.at("5m", **NORMAL | {"arrivals": 3, "running": 4}).at("8m").expect(state=LoadState.NORMAL)
        timeline.at("8m5s", **NORMAL | {"arrivals": 1.5, "running": 4}).at("11m").expect(state=LoadState.LOW)

    def test_a_busy_gpu_with_a_growing_queue(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL | {"gpu_busy": 0.9}).expect(state=LoadState.NORMAL)
        timeline.at("5s", **NORMAL | {"gpu_busy": 0.9, "waiting": 1}).expect(state=LoadState.HIGH)
        calm = Timeline(POLICY).at("0s", **NORMAL | {"gpu_busy": 0.7})
        calm.at("5s", **NORMAL | {"gpu_busy": 0.7, "waiting": 1}).expect(state=LoadState.NORMAL)

    @pytest.mark.parametrize(
        ("gpu", "low"),
        [
            ({}, True),
            ({"gpu_busy": 0.2}, True),
            ({"gpu_busy": 0.9}, False),
            ({"gpu_busy": 0.9, "sm_active_ratio": 0.2}, True),  # any kernel counts as busy: idle SMs are room
            ({"gpu_busy": 0.9, "sm_active_ratio": 0.6}, False),
            ({"sm_active_ratio": 0.6}, False),
            ({"sm_active_ratio": 0.2}, True),
        ],
    )
    def test_what_the_gpu_says_of_low(self, gpu: dict[str, float], low: bool) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL | {"running": 4} | gpu).at("3m")
        timeline.expect(state=LoadState.LOW if low else LoadState.NORMAL)

    def test_p95_warning_and_critical(self) -> None:
        timeline = Timeline(POLICY).at("0s", **NORMAL)
        timeline.at("5s", **NORMAL | {"ttft": latency(2.0), "waiting": 10}).expect(state=LoadState.HIGH)
        timeline.at("10s", **NORMAL | {"ttft": latency(6.0), "waiting": 10}).expect(state=LoadState.CRITICAL)
        few = NORMAL | {"ttft": latency(6.0, samples=5)}
        timeline.at("30s", **few).expect(state=LoadState.NORMAL)
