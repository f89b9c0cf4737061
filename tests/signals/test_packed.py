"""Packing the latencies of an increment changes nothing but their room."""

from __future__ import annotations

import sys
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.signals import histogram
from scaler.signals.observation import Buckets
from scaler.signals.packed import PackedLatencies, observed

LAYOUTS = ((0.1, 1.0, inf), (0.1, 0.5, 1.0, 10.0, inf), (inf,))
#: Whole as histograms count, on both sides of each width, and not whole where late counts were shared out.
COUNTS = st.one_of(
    st.integers(0, 20).map(float),
    st.sampled_from([65_535.0, 65_536.0, 4_294_967_295.0, 4_294_967_296.0, 2.0**53]),
    st.floats(0.0, 1e9, allow_nan=False),
)


@st.composite
def buckets(draw: st.DrawFn) -> Buckets:
    bounds = draw(st.sampled_from(LAYOUTS))
    counts = sorted(draw(st.lists(COUNTS, min_size=len(bounds), max_size=len(bounds))))
    return Buckets(bounds, tuple(counts), draw(st.floats(0.0, 1e9, allow_nan=False)), counts[-1])


INCREMENTS = st.dictionaries(st.sampled_from(("ttft", "tpot", "e2e")), buckets())


@given(INCREMENTS)
def test_what_goes_in_comes_out(latencies: dict[str, Buckets]) -> None:
    packed = PackedLatencies(latencies)
    assert dict(packed) == latencies
    assert packed == latencies
    assert "queue" not in packed
    with pytest.raises(KeyError):
        packed["queue"]


@given(st.lists(st.tuples(INCREMENTS, st.booleans()), max_size=6))
def test_a_window_observes_the_same_packed_or_not(increments: list[tuple[dict[str, Buckets], bool]]) -> None:
    for family in ("ttft", "tpot", "e2e", "queue"):
        having = [latencies[family] for latencies, _ in increments if family in latencies]
        parts = [PackedLatencies(latencies) if packed else latencies for latencies, packed in increments]
        found = observed(parts, family)
        if not having:
            assert found is None
            continue
        wanted = histogram.total(having)
        assert found is not None
        assert found.bounds == wanted.bounds
        assert found.cumulative == pytest.approx(wanted.cumulative, rel=1e-12)
        assert (found.sum, found.count) == pytest.approx((wanted.sum, wanted.count), rel=1e-12)


def test_the_eight_histograms_of_a_usual_increment_take_half_a_kilobyte() -> None:
    bounds = (*[float(bound) for bound in range(1, 20)], inf)
    usual = Buckets(bounds, tuple(float(count) for count in range(20)), 7.5, 19.0)
    packed = PackedLatencies({f"family-{number}": usual for number in range(8)})
    assert sum(sys.getsizeof(part) for part in (packed, packed._counts, packed._sums)) < 700
