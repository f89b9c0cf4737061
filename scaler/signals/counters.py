"""Counters, per series: what they counted since the last read, whatever restarted or vanished in between."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

Series = TypeVar("Series")
_NO_SERIES: Mapping[str, Any] = {}


def increase(before: Mapping[str, float], now: Mapping[str, float]) -> tuple[float, bool]:
    """How much one family counted since ``before``, summed over its series, and whether one of them was reset.

    The rule is per series, then summed, because a reset shows only there (the sum of a restarted pod and a busy one can
    still rise): a value that fell counts from zero, and a series not seen before was born at its first increment, so it
    counts from zero too. Never negative. A value that is no number counts nothing.
    """
    total, reset = 0.0, False
    for series, value in now.items():
        step = value - before.get(series, 0.0)
        if step < 0:
            step, reset = max(value, 0.0), True
        if isfinite(step):
            total += step
    return total, reset


def carried(
    before: Mapping[str, Mapping[str, Series]], now: Mapping[str, Mapping[str, Series]]
) -> Mapping[str, Mapping[str, Series]]:
    """What to count from next time: ``now``, and of ``before`` the series that ``now`` lacks.

    Within one process a series does not end; one that is missing from a page (cut short, or rendered while it was being
    written) will come back with its whole total, which must not be counted a second time.
    """
    if before is now:  # nothing was counted: a source may give what it gave before
        return now
    missing = [family for family, series in before.items() if not series.keys() <= now.get(family, _NO_SERIES).keys()]
    if not missing:
        return now
    return {**now, **{family: {**before[family], **now.get(family, {})} for family in missing}}
