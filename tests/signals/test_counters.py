"""Counters per series: resets, births, series that vanish, values that are no numbers."""

from __future__ import annotations

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from scaler.signals.counters import carried, increase

VALUES = st.one_of(st.integers(0, 10**9).map(float), st.sampled_from([nan, inf, -1.0, 0.0]))
FAMILY = st.dictionaries(st.sampled_from("abcde"), VALUES)


def test_each_series_is_counted_on_its_own() -> None:
    assert increase({"a": 10.0, "b": 100.0}, {"a": 15.0, "b": 101.0}) == (6.0, False)


def test_a_value_that_fell_counts_from_zero() -> None:
    assert increase({"a": 1000.0, "b": 5.0}, {"a": 3.0, "b": 6.0}) == (4.0, True)


def test_a_series_not_seen_before_was_born_at_its_first_increment() -> None:
    assert increase({"a": 10.0}, {"a": 10.0, "b": 1.0}) == (1.0, False)


def test_a_series_that_vanished_counts_nothing() -> None:
    assert increase({"a": 10.0, "b": 500.0}, {"a": 12.0}) == (2.0, False)


def test_a_series_that_vanished_and_came_back_is_not_counted_twice() -> None:
    first, cut_short, whole = {"f": {"a": 1000.0}, "g": {"a": 7.0}}, {"f": {}}, {"f": {"a": 1002.0}, "g": {"a": 7.0}}
    base = carried(first, cut_short)

    assert increase(base["f"], whole["f"]) == (2.0, False)
    assert increase(base["g"], whole["g"]) == (0.0, False)


def test_nothing_missing_carries_nothing() -> None:
    now = {"f": {"a": 2.0, "b": 1.0}}
    assert carried({"f": {"a": 1.0}}, now) is now


@given(FAMILY, FAMILY)
def test_an_increase_is_a_number_and_never_negative(before: dict[str, float], now: dict[str, float]) -> None:
    counted, _ = increase(before, now)

    assert 0.0 <= counted < inf
