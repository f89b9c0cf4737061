"""Histograms: increases with resets, sums over layouts, and what a quantile certainly is."""

from __future__ import annotations

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.signals import histogram
from scaler.signals.model import Interval
from scaler.signals.observation import Buckets
from tests.signals.timeline import buckets

SECONDS = st.floats(min_value=0.0, max_value=1000.0, allow_nan=False)
BOUNDS = st.lists(st.floats(min_value=0.001, max_value=900.0), min_size=1, max_size=12, unique=True).map(sorted)


def contains(interval: Interval, value: float) -> bool:
    """``low < value <= high``; the first bucket, which begins at 0, also holds 0 itself."""
    return (interval.low < value or interval.low == 0.0 == value) and value <= interval.high


def test_the_interval_is_the_bucket_of_the_wanted_sample() -> None:
    nineteen_fast_one_slow = (19.0, 19.0, 20.0, 20.0)
    bounds = (0.1, 1.0, 10.0, inf)

    assert histogram.quantile_interval(bounds, nineteen_fast_one_slow, 0.95) == Interval(0.0, 0.1)
    assert histogram.quantile_interval(bounds, nineteen_fast_one_slow, 0.96) == Interval(1.0, 10.0)
    assert histogram.quantile_interval(bounds, nineteen_fast_one_slow, 1.0) == Interval(1.0, 10.0)


def test_beyond_the_last_bound_there_is_no_upper_end() -> None:
    assert histogram.quantile_interval((1.0, inf), (0.0, 5.0), 0.5) == Interval(1.0, inf)


def test_without_samples_a_quantile_may_be_anywhere() -> None:
    assert histogram.quantile_interval((1.0, inf), (0.0, 0.0), 0.5) == Interval(0.0, inf)
    assert histogram.quantile_interval((), (), 0.5) == Interval(0.0, inf)


@given(st.lists(SECONDS, min_size=1, max_size=200), BOUNDS, st.floats(min_value=0.01, max_value=1.0))
def test_the_interval_always_contains_the_true_quantile(samples: list[float], bounds: list[float], q: float) -> None:
    seen = buckets(samples, bounds)
    true = sorted(samples)[max(1, ceil(q * len(samples) * (1 - 1e-9))) - 1]

    assert contains(histogram.quantile_interval(seen.bounds, seen.cumulative, q), true)


@given(st.lists(SECONDS, max_size=50), st.lists(SECONDS, max_size=50), BOUNDS)
def test_an_increase_is_what_was_observed_in_between(
    earlier: list[float], later: list[float], bounds: list[float]
) -> None:
    grown = histogram.increase(buckets(earlier, bounds), buckets(earlier + later, bounds))

    if not later:
        assert grown is None
    else:
        expected = buckets(later, bounds)
        assert grown is not None
        assert (grown.bounds, grown.cumulative, grown.count) == (expected.bounds, expected.cumulative, expected.count)
        assert grown.sum == pytest.approx(expected.sum, abs=1e-6)


def test_a_count_that_fell_is_a_new_process_and_counts_from_zero() -> None:
    assert histogram.increase(buckets([1.0] * 50), buckets([2.0] * 3)) == buckets([2.0] * 3)


def test_a_bucket_that_fell_is_a_new_process_even_if_the_count_did_not() -> None:
    assert histogram.increase(buckets([0.05] * 3), buckets([5.0] * 3)) == buckets([5.0] * 3)


def test_other_bounds_are_a_new_process() -> None:
    now = buckets([1.0] * 4, bounds=(0.5, 5.0))
    assert histogram.increase(buckets([1.0] * 3), now) == now


def test_a_first_seen_series_counts_from_zero() -> None:
    assert histogram.increase(None, buckets([1.0])) == buckets([1.0])
    assert histogram.increase(None, buckets([])) is None


def test_two_layouts_are_added_up_on_the_bounds_they_share() -> None:
    old = buckets([0.2, 0.7, 3.0], bounds=(0.5, 1.0, 5.0))
    new = buckets([0.2, 0.9, 30.0], bounds=(0.25, 1.0, 10.0))

    assert histogram.total([old, new]) == Buckets((1.0, inf), (4.0, 6.0), pytest.approx(35.0), 6.0)


def test_layouts_with_nothing_in_common_keep_count_and_mean_only() -> None:
    both = histogram.total([buckets([0.2], bounds=(0.5,)), buckets([0.4], bounds=(0.7,))])

    assert (both.bounds, both.cumulative) == ((inf,), (2.0,))
    assert histogram.latency(both).p95 == Interval(0.0, inf)
    assert histogram.latency(both).mean_seconds == pytest.approx(0.3)


@given(st.lists(SECONDS, min_size=1, max_size=60), st.lists(SECONDS, min_size=1, max_size=60), BOUNDS, BOUNDS)
def test_over_two_layouts_the_interval_still_contains_the_true_quantile(
    one: list[float], other: list[float], bounds_one: list[float], bounds_other: list[float]
) -> None:
    both = histogram.total([buckets(one, bounds_one), buckets(other, bounds_other)])
    samples = sorted(one + other)
    true = samples[max(1, ceil(0.95 * len(samples) * (1 - 1e-9))) - 1]

    assert contains(histogram.quantile_interval(both.bounds, both.cumulative, 0.95), true)
    assert both.count == len(samples)


def test_a_latency_has_its_exact_mean_and_number_of_samples() -> None:
    measured = histogram.latency(buckets([0.05, 0.05, 0.5, 5.0]))

    assert measured.mean_seconds == pytest.approx(1.4)
    assert measured.samples == 4
    assert measured.p50 == Interval(0.0, 0.1)
    assert measured.p99 == Interval(1.0, 10.0)


class TestDeviation:
    def test_of_samples_spread_evenly_in_fine_buckets_it_is_nearly_theirs(self) -> None:
        bounds = (*[10.0 * step for step in range(1, 101)], inf)
        counts = [float(min(step, 100)) for step in range(1, 102)]
        buckets = Buckets(bounds, tuple(counts), sum=500.0 * 100, count=100.0)
        assert histogram.deviation(buckets) == pytest.approx(1000 / 12**0.5, rel=0.01)

    def test_it_is_in_units_of_the_exact_mean(self) -> None:
        """All samples in one wide bucket: the spread within it, about the mean that is known."""
        assert histogram.deviation(Buckets((100.0, inf), (4.0, 4.0), sum=80.0, count=4.0)) == pytest.approx(20 / 3**0.5)

    def test_samples_beyond_the_last_bound_count_at_it(self) -> None:
        found = histogram.deviation(Buckets((10.0, inf), (5.0, 10.0), sum=75.0, count=10.0))
        assert found == pytest.approx((100 / 6 + 50 - 7.5**2) ** 0.5), "half evenly up to 10, half at 10"

    @pytest.mark.parametrize("counts", [{inf: 5.0}, {10.0: 0.0, inf: 5.0}])
    def test_where_no_bucket_shows_it_it_is_not_zero_but_unknown(self, counts: dict[float, float]) -> None:
        assert histogram.deviation(Buckets((*counts,), (*counts.values(),), sum=100.0, count=5.0)) is None

    def test_samples_of_nothing_have_none(self) -> None:
        assert histogram.deviation(Buckets((0.0, inf), (5.0, 5.0), sum=0.0, count=5.0)) == 0.0
