"""What showed that a workload is wanted: who wonders why it never idles sees which series keeps it awake. Pure.

Everything here restarts the idle timer. One is named where several did: what waits before what runs, gauges (which
everybody can look up) before counters, and of several endpoints or series the first in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scaler.signals.endpoint import ACTIVITY_COUNTERS, ACTIVITY_HISTOGRAMS, Tracked
from scaler.signals.model import Signals, at_least
from scaler.value import frozen

#: The demands that are one number, and the families of an engine that are gauges, in the order in which they are named.
_DEMANDS = ("pending", "wake_demand")
_GAUGES = ("waiting", "running")
#: What counts beside an engine's activity counters.
_REQUESTS = ("arrivals", "admission_rejections")


@frozen
class Activity:
    """Who wanted the workload at monotonic time ``at``: a demand (``pending``, ``wake_demand``), or a family of an
    engine's metrics at an ``endpoint``, and for a counter the labels of its ``series``.
    """

    signal: str
    at: float
    endpoint: str = ""
    series: str = ""


def activity(
    before: Mapping[str, Tracked], after: Mapping[str, Tracked], signals: Signals, at: float
) -> Activity | None:
    """What in this tick's ``signals`` restarts the idle timer; None where nothing does. ``before`` and ``after`` are
    the endpoints as they were tracked before and after the tick's observation.
    """
    for name in _DEMANDS:
        if at_least(getattr(signals, name)) > 0:
            return Activity(name, at)
    for family in _GAUGES:
        if at_least(getattr(signals, family)) > 0:
            return Activity(family, at, next(_holding(after, family), ""))
    if signals.counters_moved:
        for endpoint, family, series in _moved(before, after):
            return Activity(family, at, endpoint, series)
    if signals.counters_moved or at_least(signals.arrivals_last_per_second) > 0:
        return Activity("arrivals", at)
    return None


def _holding(tracked: Mapping[str, Tracked], family: str) -> Iterator[str]:
    return (endpoint for endpoint in sorted(tracked) if tracked[endpoint].sample.gauges.get(family, 0.0) > 0)


def _moved(before: Mapping[str, Tracked], after: Mapping[str, Tracked]) -> Iterator[tuple[str, str, str]]:
    """(endpoint, family, series) of every activity counter that is not what it was, as a fold counts it."""
    for endpoint in sorted(after):
        now, known = after[endpoint].sample, before.get(endpoint)
        if after[endpoint].rates is None or (known is not None and known.sample is now):
            continue  # at first sight its totals are of who knows when
        for family in (*_REQUESTS, *ACTIVITY_COUNTERS):
            then = {} if known is None else known.counters.get(family, {})
            for series, value in now.counters.get(family, {}).items():
                if value > 0 and value != then.get(series, 0.0):
                    yield endpoint, family, series
        for family in ACTIVITY_HISTOGRAMS:
            counted = {} if known is None else known.histograms.get(family, {})
            for series, buckets in now.histograms.get(family, {}).items():
                if buckets.count > 0 and (series not in counted or buckets.count != counted[series].count):
                    yield endpoint, family, series
