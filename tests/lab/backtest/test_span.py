"""Ranges and times as people write them, and the parts that a span is read in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.lab.backtest.span import Span, read_duration, read_time, shown_duration, shown_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7d", 604_800),
        ("36h", 129_600),
        ("90m", 5400),
        ("1d12h", 129_600),
        ("30s", 30),
        ("2w", 1_209_600),
        (" 1h ", 3600),
    ],
)
def test_a_range_is_read_as_prometheus_writes_it(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "7 days", "d7", "-1d", "0d", "1y", "٧d"])
def test_anything_else_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 7d, 36h or 90m"):
        read_duration(text)


def test_a_time_without_a_zone_is_utc() -> None:
    noon = 1_780_920_000.0
    assert read_time("2026-06-08T12:00:00Z") == noon
    assert read_time("2026-06-08T12:00:00") == noon
    assert read_time("2026-06-08T14:00:00+02:00") == noon
    assert read_time("1780920000") == noon
    assert read_time("2026-06-08") == noon - 43_200
    assert shown_time(noon) == "2026-06-08 12:00"


def test_a_wrong_time_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="'yesterday' is not a time; write for example 2026-06-08T12:00:00Z"):
        read_time("yesterday")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(20, "20 s"), (300, "5 min"), (604_800, "7 d"), (8100, "2 h 15 min"), (90_061, "1 d 1 h"), (86_460, "1 d 1 min")],
)
def test_a_duration_is_said_in_two_units_at_most(seconds: float, said: str) -> None:
    assert shown_duration(seconds) == said


@given(
    st.integers(1_700_000_000, 1_700_100_000),
    st.integers(1, 200_000),
    st.lists(st.sampled_from([225, 900, 7200]), min_size=1),
)
def test_parts_cover_the_span_once_and_end_at_the_same_times_whenever_it_begins(
    since: int, seconds: int, lengths: list[int]
) -> None:
    span = Span(float(since), float(since + seconds))
    begin, index, parts = span.since, 0, []
    while begin < span.until:
        parts.append(span.part(begin, lengths[index % len(lengths)]))
        begin, index = parts[-1].until, index + 1
    assert [part.since for part in parts] == [span.since, *(part.until for part in parts[:-1])]
    assert parts[-1].until == span.until
    assert all(part.seconds > 0 for part in parts)
    assert all(part.until % 225 == 0 for part in parts[:-1])


def test_ticks_are_whole_multiples_after_the_beginning_up_to_the_end() -> None:
    assert list(Span(100.0, 130.0).ticks(15.0)) == [105.0, 120.0]
    assert list(Span(105.0, 135.0).ticks(15.0)) == [120.0, 135.0]  # what was at 105 belongs to the part before
