"""The figures of the savings report, from columns of minutes."""

from __future__ import annotations

import pytest

from scaler.lab.savings.figures import Savings, savings_of
from scaler.lab.savings.recorded import Column, Recorded

DAY = 24 * 60


def recorded(minutes: int = DAY, **columns: Column) -> Recorded:
    return Recorded("chat/llama", minutes, "EUR", dict(columns))


def night_and_day(low: float, high: float) -> Column:
    """Twelve hours of each."""
    return [low] * (DAY // 2) + [high] * (DAY // 2)


def figures(entry: Recorded, **given: float) -> Savings:
    found = savings_of(entry, **given)
    assert found is not None
    return found


def test_replicas_asked_for_times_their_gpus_beside_the_peak_all_day() -> None:
    found = figures(recorded(desired_replicas=night_and_day(1, 5), gpus_per_replica=[4.0] * DAY))
    assert found.ours.gpu_hours == pytest.approx((12 * 1 + 12 * 5) * 4)
    assert found.always_on.gpu_hours == pytest.approx(24 * 5 * 4)
    assert found.saved(found.always_on) == pytest.approx(0.4)
    assert (found.peak_replicas, found.known_hours) == (5, 24.0)
    assert found.ours.money is None


def test_what_the_cluster_was_asked_for_goes_before_what_was_decided() -> None:
    found = figures(recorded(desired_replicas=[2.0] * DAY, asked_replicas=[3.0] * 60 + [None] * (DAY - 60)))
    assert found.ours.gpu_hours == pytest.approx(3 * 1 + 2 * 23)


def test_money_is_the_price_of_each_hour() -> None:
    found = figures(recorded(desired_replicas=[2.0] * DAY, gpu_hour_price=night_and_day(1.0, 3.0)))
    assert found.ours.money == pytest.approx(2 * 12 * 1.0 + 2 * 12 * 3.0)
    assert found.priced_ratio == 1.0
    other = figures(recorded(desired_replicas=[2.0] * DAY), hour_price=2.5, gpus=8)
    assert other.ours.gpu_hours == pytest.approx(2 * 8 * 24)
    assert other.ours.money == pytest.approx(2 * 8 * 24 * 2.5)


def test_minutes_without_a_record_count_for_nobody() -> None:
    found = figures(recorded(desired_replicas=[4.0] * (DAY // 2) + [None] * (DAY // 2)))
    assert (found.known_hours, found.hours) == (12.0, 24.0)
    assert found.ours.gpu_hours == found.always_on.gpu_hours == pytest.approx(48.0)
    assert savings_of(recorded(running=[1.0] * DAY)) is None


class TestPlainHpa:
    def played(self, **columns: Column) -> Savings:
        given: dict[str, Column] = {
            "desired_replicas": night_and_day(0, 5),
            "capacity_sequences": [10.0] * DAY,
            "running": night_and_day(0, 48),
            "waiting": [0.0] * DAY,
            "replicas_ceiling": [8.0] * DAY,
            "replicas_floor": [0.0] * DAY,
        }
        return figures(recorded(**given | columns))

    def test_it_follows_the_load_and_keeps_one_at_night(self) -> None:
        found = self.played()
        assert found.hpa is not None
        assert found.hpa.gpu_hours == pytest.approx(12 * 1 + 12 * 5, rel=0.01)
        assert found.saved(found.hpa) == pytest.approx(1 - 60 / 72, abs=0.01)

    def test_it_stays_between_the_lowest_floor_and_the_ceiling(self) -> None:
        busy: Column = [5.0] * DAY
        found = self.played(running=[400.0] * DAY, replicas_floor=night_and_day(2, 3), desired_replicas=busy)
        assert found.hpa is not None
        assert found.hpa.gpu_hours == pytest.approx(24 * 8, rel=0.01)
        quiet = self.played(running=[0.0] * DAY, replicas_floor=night_and_day(2, 3))
        assert quiet.hpa is not None
        assert quiet.hpa.gpu_hours == pytest.approx(24 * 2, rel=0.02)

    def test_what_waits_at_the_gateway_is_load_too(self) -> None:
        found = self.played(running=[None] * DAY, pending=[48.0] * DAY, desired_replicas=[0.0] * (DAY - 1) + [1.0])
        assert found.hpa is None  # nothing that runs was ever recorded
        found = self.played(pending=night_and_day(38, 0), running=night_and_day(0, 48))
        assert found.hpa is not None
        assert found.hpa.gpu_hours == pytest.approx(12 * 4 + 12 * 5, rel=0.01)

    def test_where_it_cannot_see_it_holds_and_that_is_told(self) -> None:
        found = self.played(running=[48.0] * (DAY // 2) + [None] * (DAY // 2), desired_replicas=[5.0] * DAY)
        assert found.hpa is not None
        assert found.hpa.gpu_hours == pytest.approx(24 * 5, rel=0.01)
        assert found.hpa_blind_ratio == pytest.approx(0.5)

    def test_without_a_capacity_there_is_none(self) -> None:
        assert self.played(capacity_sequences=[None] * DAY).hpa is None
