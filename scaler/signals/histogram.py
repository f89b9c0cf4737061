"""Arithmetic on cumulative histograms: increase of one series, total of several, and what a quantile certainly is.

A bucketed histogram does not know a quantile; it knows in which bucket it lies. Everything here therefore gives
intervals, and the verdict on an objective (:meth:`scaler.signals.model.Latency.against`) is taken on their ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from math import inf, sqrt
from operator import sub

from scaler.signals.model import Interval, Latency
from scaler.signals.observation import Buckets

#: Ranks are compared with this relative slack: 0.07 × 100 is 7.000000000000001 and still means the 7th sample.
_RANK_SLACK = 1e-9


def increase(before: Buckets | None, now: Buckets) -> Buckets | None:
    """What one series counted since ``before`` (None: since zero); None where it counted nothing.

    A count or a bucket that fell, or other bucket bounds, mean a new process: then all of ``now`` is new.
    """
    if now is before:
        return None
    if before is None:
        return now if now.count > 0 else None
    if now.count == before.count and now.cumulative == before.cumulative:
        return None
    if now.count < before.count or now.bounds != before.bounds:
        return now if now.count > 0 else None
    cumulative = tuple(map(sub, now.cumulative, before.cumulative))
    if min(cumulative, default=0.0) < 0:
        return now
    return Buckets(now.bounds, cumulative, max(0.0, now.sum - before.sum), now.count - before.count)


@lru_cache(maxsize=4096)
def shared_bounds(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """The same bounds as one object for all histograms that have them: engines have few layouts, and read often."""
    return bounds


def total(parts: Sequence[Buckets]) -> Buckets:
    """The sum of one or more histograms.

    Where their layouts differ (pods of two engine versions during a rollout) only the bounds that *all* have are kept,
    and +Inf: at a common bound the cumulative counts add up exactly; at any other the sum would be a guess. Intervals
    get wider, never wrong.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    samples, seconds = sum([part.count for part in parts]), sum([part.sum for part in parts])
    if all(part.bounds == first.bounds for part in parts):
        columns = zip(*[part.cumulative for part in parts], strict=True)
        return Buckets(first.bounds, tuple(map(sum, columns)), seconds, samples)
    common = set(first.bounds).intersection(*[part.bounds for part in parts]) - {inf}
    bounds = (*sorted(common), inf)
    looked_up = [{inf: part.count, **dict(zip(part.bounds, part.cumulative, strict=True))} for part in parts]
    return Buckets(bounds, tuple(sum([counts[bound] for counts in looked_up]) for bound in bounds), seconds, samples)


def scaled(buckets: Buckets, fraction: float) -> Buckets:
    """The same distribution with ``fraction`` (0..1) of its samples."""
    cumulative = tuple([count * fraction for count in buckets.cumulative])
    return Buckets(buckets.bounds, cumulative, buckets.sum * fraction, buckets.count * fraction)


def quantile_interval(bounds: Sequence[float], cumulative: Sequence[float], q: float) -> Interval:
    """The bucket that holds the ``q``-th sample (nearest rank: the ⌈q·n⌉-th smallest), for 0 < q <= 1.

    ``bounds`` ascend and end with inf; ``cumulative`` are the counts at or below each. Samples are not negative, so the
    first bucket begins at 0. Without samples the answer is (0, inf): anywhere.
    """
    samples = cumulative[-1] if cumulative else 0.0
    if samples <= 0:
        return Interval(0.0, inf)
    holds = bisect_left(cumulative, q * samples * (1.0 - _RANK_SLACK))
    return Interval(bounds[holds - 1] if holds else 0.0, bounds[holds])


def deviation(buckets: Buckets) -> float | None:
    """The standard deviation of the samples in ``buckets``, of which there is at least one: as spread out within each
    bucket as may be (evenly), and at its lower end in the last, which has no other. In units of the exact mean, because
    the buckets' own mean is off by as much as they are wide. None where all lie in the last: it tells nothing of them.
    """
    if len(buckets.cumulative) < 2 or buckets.cumulative[-2] <= 0:
        return None
    mean, square, low, before = 0.0, 0.0, 0.0, 0.0
    for bound, count in zip(buckets.bounds, buckets.cumulative, strict=True):
        high, here = (low if bound == inf else bound), count - before
        if here > 0:
            mean += here * (low + high) / 2
            square += here * (low * low + low * high + high * high) / 3
        low, before = high, count
    mean, square = mean / buckets.count, square / buckets.count
    exact = buckets.sum / buckets.count
    return exact * sqrt(max(0.0, square - mean * mean)) / mean if mean > 0 else 0.0


def latency(buckets: Buckets) -> Latency:
    """Quantiles, mean (seconds) and number of the samples in ``buckets``, of which there is at least one."""
    return Latency(
        p50=quantile_interval(buckets.bounds, buckets.cumulative, 0.50),
        p95=quantile_interval(buckets.bounds, buckets.cumulative, 0.95),
        p99=quantile_interval(buckets.bounds, buckets.cumulative, 0.99),
        mean_seconds=buckets.sum / buckets.count,
        samples=buckets.count,
    )
