"""Keep-warm windows: zones, change-over days, midnight, week days (G5-08; its clock steps are in tests/control)."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from scaler.policy.model import Policy, Push, ReplicaRange
from scaler.policy.windows import Warm, Window

W1 = Window.model_validate({"days": "mon-fri", "start": "08:00", "end": "20:00", "zone": "Europe/Berlin"})
W2 = Window.model_validate({"start": "22:00", "end": "06:00", "zone": "Europe/Berlin"})
W3 = Window.model_validate({"days": "mon-fri", "start": "06:30", "end": "19:30", "zone": "Pacific/Auckland"})
W4 = Window.model_validate({"start": "02:30", "end": "03:30", "zone": "Europe/Berlin"})
W7 = Window.model_validate({"days": "Sun-Thu", "start": "08:00", "end": "20:00", "zone": "Europe/Berlin"})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "instant", "inside"),
    [
        (W1, "2026-03-27T18:59:59", True),
        (W1, "2026-03-27T19:00:00", False),
        (W1, "2026-03-30T05:59:59", False),
        (W1, "2026-03-30T06:00:00", True),
        (W2, "2026-10-24T19:59:59", False),
        (W2, "2026-10-24T20:00:00", True),
        (W2, "2026-10-25T04:59:59", True),
        (W2, "2026-10-25T05:00:00", False),
        (W2, "2026-03-28T20:59:59", False),
        (W2, "2026-03-28T21:00:00", True),
        (W2, "2026-03-29T03:59:59", True),
        (W2, "2026-03-29T04:00:00", False),
        (W3, "2026-11-01T17:29:59", False),
        (W3, "2026-11-01T17:30:00", True),
        (W3, "2026-11-06T06:29:59", True),
        (W3, "2026-11-06T06:30:00", False),
        (W4, "2026-03-29T00:59:59", False),
        (W4, "2026-03-29T01:00:00", True),
        (W4, "2026-03-29T01:29:59", True),
        (W4, "2026-03-29T01:30:00", False),
    ],
)
def test_an_instant_is_judged_in_local_wall_time(window: Window, instant: str, inside: bool) -> None:
    assert window.contains(utc(instant)) is inside


@pytest.mark.parametrize("hour", range(24))
def test_a_weekday_window_is_closed_all_saturday(hour: int) -> None:
    assert not W1.contains(utc("2026-03-28T00:00:00") + timedelta(hours=hour))


@pytest.mark.parametrize(("start", "hours"), [("2026-10-24T12:00:00", 9), ("2026-03-28T12:00:00", 7)])
def test_a_night_is_an_hour_longer_or_shorter_when_the_clock_changes(start: str, hours: int) -> None:
    minutes = sum(W2.contains(utc(start) + timedelta(minutes=minute)) for minute in range(24 * 60))
    assert minutes == hours * 60


@pytest.mark.parametrize(("day", "inside"), [(1, True), (2, True), (5, True), (6, False), (7, False), (8, True)])
def test_a_day_range_may_wrap_over_the_week_end(day: int, inside: bool) -> None:
    """2026-02-01 is a Sunday."""
    assert W7.contains(utc(f"2026-02-{day:02}T12:00:00")) is inside


def test_a_night_window_belongs_to_the_day_it_starts_on() -> None:
    friday_night = Window.model_validate({"days": "fri", "start": "22:00", "end": "06:00", "zone": "UTC"})
    assert friday_night.contains(utc("2026-02-06T23:00:00"))
    assert friday_night.contains(utc("2026-02-07T05:59:59"))
    assert not friday_night.contains(utc("2026-02-06T05:00:00"))
    assert not friday_night.contains(utc("2026-02-07T23:00:00"))


def test_a_window_until_midnight_ends_at_midnight() -> None:
    evening = Window.model_validate({"days": "mon", "start": "18:00", "end": "00:00", "zone": "UTC"})
    assert evening.contains(utc("2026-02-02T23:59:59"))
    assert not evening.contains(utc("2026-02-03T00:00:00"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"start": "20:00"}, "a window must have a length"),
        ({"zone": "Europe/Berln"}, "'Europe/Berln' is not an IANA time zone"),
        ({"zone": "../../etc/passwd"}, "not an IANA time zone"),
        ({"start": 1320}, "1320 is not a local time"),
        ({"start": "08:00Z"}, "08:00Z is not a local time"),
        ({"start": "25:00"}, "hour value is outside expected range"),
        ({"end": "24:00"}, 'a day ends at "00:00"'),
        ({"days": "monkey"}, "'monkey' is not a day"),
        ({"days": "mon-"}, "'mon-' is not a day"),
        ({"days": []}, "at least 1 item"),
        ({"replicas": 0}, "greater than or equal to 1"),
    ],
)
def test_a_window_that_cannot_be_meant_is_refused(wrong: dict[str, object], says: str) -> None:
    right: dict[str, object] = {"start": "08:00", "end": "20:00", "zone": "Europe/Berlin"}
    with pytest.raises(ValidationError, match=says):
        Window.model_validate(right | wrong)


@pytest.mark.parametrize("words", ["mon-fri", "Monday - Friday", "mon,tue,wed,thu,fri", "tues,mon,wed-fri"])
def test_days_may_be_written_as_people_write_them(words: str) -> None:
    window = Window.model_validate({"days": words, "start": "8:00", "end": "20:00:30", "zone": "UTC"})
    assert set(window.days) == {"mon", "tue", "wed", "thu", "fri"}


def test_zones_are_known_without_system_zone_files() -> None:
    try:
        zoneinfo.reset_tzpath(to=())
        zoneinfo.ZoneInfo.clear_cache()
        window = Window.model_validate({"start": "08:00", "end": "20:00", "zone": "Pacific/Auckland"})
        assert window.contains(utc("2026-11-01T20:00:00"))
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def test_an_open_window_raises_the_floor_and_a_closed_one_does_not() -> None:
    policy = Policy(
        push=Push(enabled=True),
        warm=Warm(windows=(W1.model_copy(update={"replicas": 3}), W1.model_copy(update={"replicas": 2}))),
    )
    assert policy.floor(utc("2026-03-27T18:59:59")) == 3
    assert policy.floor(utc("2026-03-27T19:00:00")) == 0
    assert policy.model_copy(update={"replicas": ReplicaRange(max=2)}).floor(utc("2026-03-27T12:00:00")) == 2


def test_without_a_wake_source_the_floor_is_never_zero() -> None:
    assert Policy().floor(utc("2026-01-01T00:00:00")) == 1
