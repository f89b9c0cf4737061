"""KEDA's half, told as timelines: from zero, back to zero, through errors, with and without a fallback."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from scaler.lab.hpa import Hpa, Remembered, sync
from scaler.lab.keda import Act, Answer, Fallback, KedaStatus, ScaledObject, metric_for_hpa, poll, pushed

ACTIVE, IDLE = Answer(3.0, True), Answer(0.0, False)


@dataclass
class Timeline:
    """A ScaledObject polled at the times the test says."""

    what: ScaledObject
    replicas: int = 0
    status: KedaStatus = field(default_factory=lambda: KedaStatus(created_at=0.0))

    def at(self, now: float, answer: Answer | None) -> tuple[int, Act]:
        done = poll(self.what, self.status, now, self.replicas, answer)
        self.replicas, self.status = done.replicas, done.status
        return done.replicas, done.act

    def push(self, now: float, active: bool) -> tuple[int, Act]:
        done = pushed(self.what, self.status, now, self.replicas, active)
        self.replicas, self.status = done.replicas, done.status
        return done.replicas, done.act


def test_active_takes_it_from_zero_to_the_least_and_no_further() -> None:
    assert Timeline(ScaledObject()).at(0, Answer(7.0, True)) == (1, Act.FROM_ZERO)
    assert Timeline(ScaledObject(min_replicas=3)).at(0, Answer(7.0, True)) == (3, Act.FROM_ZERO)
    assert Timeline(ScaledObject(), replicas=2).at(0, Answer(7.0, True)) == (2, Act.NOTHING)


def test_activity_alone_decides_about_zero_the_value_does_not() -> None:
    assert Timeline(ScaledObject(), replicas=1).at(0, Answer(0.0, True)) == (1, Act.NOTHING)
    assert Timeline(ScaledObject()).at(0, Answer(100.0, False)) == (0, Act.NOTHING)


def test_inactive_for_the_cooldown_is_zero_from_any_count() -> None:
    line = Timeline(ScaledObject(cooldown_seconds=60), replicas=40)
    line.at(0, ACTIVE)
    assert line.at(30, IDLE) == (40, Act.COOLING_DOWN)
    assert line.at(60, IDLE) == (40, Act.COOLING_DOWN)
    assert line.at(61, IDLE) == (0, Act.TO_ZERO)


def test_the_cooldown_is_measured_from_the_last_active_poll() -> None:
    line = Timeline(ScaledObject(cooldown_seconds=60), replicas=1)
    for now in (0, 30, 60):
        line.at(now, ACTIVE)
    line.at(90, IDLE)
    line.push(100, True)  # a pushed true counts as well
    assert line.at(150, IDLE) == (1, Act.COOLING_DOWN)
    assert line.at(161, IDLE) == (0, Act.TO_ZERO)


def test_one_never_active_goes_after_its_initial_cooldown() -> None:
    line = Timeline(ScaledObject(initial_cooldown_seconds=120), replicas=1)
    assert line.at(119, IDLE) == (1, Act.COOLING_DOWN)
    assert line.at(121, IDLE) == (0, Act.TO_ZERO)
    assert Timeline(ScaledObject(), replicas=1).at(1, IDLE) == (0, Act.TO_ZERO)  # the default is no wait at all


def test_with_a_minimum_inactivity_changes_nothing_but_restores_it() -> None:
    line = Timeline(ScaledObject(min_replicas=2), replicas=5)
    assert line.at(10_000, IDLE) == (5, Act.NOTHING)
    line.replicas = 0
    assert line.at(10_030, IDLE) == (2, Act.TO_MIN)


def test_a_pushed_true_acts_at_once_and_a_pushed_false_never() -> None:
    line = Timeline(ScaledObject())
    assert line.push(0, True) == (1, Act.FROM_ZERO)
    assert line.push(1, False) == (1, Act.NOTHING)


@pytest.mark.parametrize("replicas", [0, 1, 40])
def test_errors_without_a_fallback_keep_the_count_for_ever(replicas: int) -> None:
    line = Timeline(ScaledObject(cooldown_seconds=0), replicas=replicas)
    assert {line.at(30.0 * number, None) for number in range(1000)} == {(replicas, Act.NOTHING)}


class TestFallback:
    def test_errors_at_zero_wake_the_fallback(self) -> None:
        line = Timeline(ScaledObject(fallback=Fallback(3, 6)))
        assert [line.at(30.0 * number, None)[0] for number in range(4)] == [0, 0, 0, 1]
        total, _ = metric_for_hpa(line.what, line.status, None)
        assert total == 6.0

    def test_one_good_answer_begins_the_count_anew(self) -> None:
        line = Timeline(ScaledObject(fallback=Fallback(1, 6)))
        for number, answer in enumerate((None, IDLE, None)):
            assert line.at(30.0 * number, answer)[0] == 0

    def test_the_hpa_s_failures_count_too(self) -> None:
        what, status = ScaledObject(fallback=Fallback(3, 6)), KedaStatus(0.0)
        for _ in range(3):
            total, status = metric_for_hpa(what, status, None)
            assert total is None
        assert poll(what, status, 30.0, 0, None).act is Act.FROM_ZERO

    def test_a_fallback_of_zero_lets_errors_end_in_zero(self) -> None:
        line = Timeline(ScaledObject(cooldown_seconds=60, fallback=Fallback(10, 0)), replicas=40)
        line.at(0, ACTIVE)
        assert line.at(30, None) == (40, Act.COOLING_DOWN)
        assert line.at(61, None) == (0, Act.TO_ZERO)


def test_idle_replicas_take_the_place_of_zero() -> None:
    line = Timeline(ScaledObject(min_replicas=3, idle_replicas=1, cooldown_seconds=60), replicas=1)
    assert line.at(0, ACTIVE) == (3, Act.FROM_ZERO)
    assert line.at(61, IDLE) == (1, Act.TO_ZERO)


def test_both_halves_together_make_a_day() -> None:
    """Zero, a wake, a jump to eight, the ebb, zero: the poll every 30 s, the HPA every 15 s on the same answers."""
    what = ScaledObject(max_replicas=8, cooldown_seconds=60)
    hpa: Hpa = what.hpa()
    line, remembered, seen = Timeline(what), Remembered(), [0]
    for now in range(0, 1500, 15):
        wanted = 0 if now < 60 else 1 if now < 120 else 8 if now < 600 else 2 if now < 900 else 0
        answer = Answer(float(wanted), wanted > 0)
        if now % 30 == 0:
            line.at(now, answer)
        total, line.status = metric_for_hpa(what, line.status, answer)
        done = sync(hpa, remembered, now, asked=line.replicas, total=total)
        line.replicas, remembered = done.replicas, done.remembered
        if line.replicas != seen[-1]:
            seen.append(line.replicas)
    assert seen == [0, 1, 4, 8, 2, 0]
