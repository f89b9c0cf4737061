"""After half an hour of low load replicas are not held for chance alone; what breaks or rises ends that at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scaler.control.lasting import lasting
from scaler.control.model import Code, LoadState
from scaler.control.swing import Swing
from scaler.policy.model import Batch, Capacity, LoadThresholds, Objectives, Policy, ReplicaRange
from tests.control.timeline import Timeline, latency

POLICY = Policy(
    objectives=Objectives(tpot_seconds=0.05),
    capacity=Capacity(requests_per_second=1, sequences=10, learn=False),
    batch=Batch(max=32),
    replicas=ReplicaRange(max=20, cold_start_seconds=60),
)


def load(rate: float, ready: int, **more: Any) -> dict[str, Any]:
    return dict(arrivals=rate, recent=rate, last=rate, running=rate * 8, waiting=0, ready=ready, kv=0.3) | more


def scaled_in(policy: Policy = POLICY) -> Timeline:
    """1.05 × L* for long enough: two replicas, low, and then one."""
    timeline = Timeline(policy).at("0s", **load(1.05, 2)).at("29m55s").expect(replicas=2, state=LoadState.LOW)
    return timeline.at("36m").expect(replicas=1).because(Code.SCALE_IN).at("37m", **load(1.05, 1))


def test_half_an_hour_of_low_load_gives_up_the_room_for_chance() -> None:
    timeline = scaled_in().expect(replicas=1, state=LoadState.NORMAL)
    assert timeline.decision is not None
    assert timeline.decision.utilisation == pytest.approx(1.05 * 0.75 / 0.85)
    reason = next(reason for reason in timeline.decision.reasons if reason.code is Code.SCALE_IN)
    assert reason.threshold == pytest.approx(0.85 / 0.75)
    assert lasting(timeline.memory)["scale_in"] == pytest.approx(7 * 60, abs=10)
    timeline.at("3h").expect(replicas=1)  # and it stays so


def test_a_load_that_is_not_low_keeps_its_room() -> None:
    Timeline(POLICY).at("0s", **load(1.3, 2)).at("3h").expect(replicas=2)  # two thirds of two


def test_what_one_cannot_serve_without_room_keeps_two() -> None:
    policy = POLICY.model_copy(update={"load": LoadThresholds(low_utilisation=0.6, low_leave_utilisation=0.65)})
    Timeline(policy).at("0s", **load(1.15, 2)).at("3h").expect(replicas=2, state=LoadState.LOW)


def test_more_load_ends_it_in_the_same_tick() -> None:
    scaled_in().at("38m", **load(1.12, 1)).expect(replicas=1).at("38m5s", **load(1.14, 1)).expect(replicas=2)


def test_a_breached_bound_ends_it_in_the_same_tick() -> None:
    timeline = scaled_in().at("38m", **load(1.05, 1, tpot=latency(0.06))).expect(replicas=2)
    assert "scale_in" not in lasting(timeline.memory)


def test_a_jump_ends_it_in_the_same_tick() -> None:
    scaled_in().at("38m", **load(1.05, 1, recent=6, last=6)).because(Code.JUMP).expect(replicas=7)  # six, and its queue


def test_what_has_its_ordinary_room_again_is_in_the_mode_no_more() -> None:
    timeline = scaled_in().at("38m", **load(0.9, 1)).at("39m")
    assert "scale_in" not in lasting(timeline.memory)
    timeline.at("40m", **load(1.2, 1)).expect(replicas=2)


def test_the_floor_stands() -> None:
    policy = POLICY.model_copy(update={"replicas": ReplicaRange(min=2, max=20, cold_start_seconds=60)})
    Timeline(policy).at("0s", **load(1.05, 2)).at("3h").expect(replicas=2).because(Code.FLOOR)


def test_no_widened_dead_band_holds_what_is_left_over() -> None:
    timeline = Timeline(POLICY).at("0s", **load(0.4, 2))
    for minute in range(1, 30, 4):  # before calm narrows it again
        timeline.at(f"{minute}m")
        timeline.memory = replace(timeline.memory, replicas_swing=Swing(widening=1.5))
    timeline.at("29m55s").expect(replicas=2, need=1).held_back(Code.OSCILLATION).at("30m5s").expect(replicas=1)


def test_it_can_be_forbidden() -> None:
    policy = POLICY.model_copy(update={"load": LoadThresholds(scale_in_after_seconds=None)})
    Timeline(policy).at("0s", **load(1.05, 2)).at("3h").expect(replicas=2)
