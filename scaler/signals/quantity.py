"""What one family of a preset comes to at one endpoint: rank copies counted once, engines combined, the derived ones
derived. Pure functions from samples to numbers; :mod:`scaler.signals.reading` decides what is done with them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from scaler.signals.exposition import Labels, Sample
from scaler.signals.family import Derived, Family
from scaler.signals.histogram import shared_bounds
from scaler.signals.observation import Buckets

#: Ratios lie in 0..1, and a little over by rounding; beyond this the value is something else (a percentage).
LARGEST_RATIO: Final = 1.5
#: No engine or gateway holds more requests, nor an engine more tokens. A greater number is a mistake (a time stamp, a
#: count of bytes) that would buy every GPU there is; and a few of the greatest floats add up to infinity.
LARGEST_COUNT: Final = 1e9

Samples = Mapping[str, Sequence[Sample]]
#: Where each series of an endpoint goes: labels that only tell copies apart are no part of its name.
Ranks = frozenset[str]


class NotAQuantityError(Exception):
    """A value that cannot be what its family measures; the text goes on from the metric's name."""


def marker(name: str, family: Family) -> str:
    """The sample whose presence means that the family is exposed under ``name``."""
    return f"{name}_bucket" if family.kind == "histogram" else name


def present(family: Family, samples: Samples) -> str | None:
    """The best name that the page has a series of; None if it has none under any."""
    for name in family.names:
        group = samples.get(marker(name, family))
        if group and (not family.where or any(passes(sample.labels, family.where) for sample in group)):
            return name
    return None


def passes(labels: Labels, where: Mapping[str, Collection[str]]) -> bool:
    """Whether each of the labels has one of its values. A series without the label passes: older versions lack it."""
    return all((value := labels.values.get(label)) is None or value in allowed for label, allowed in where.items())


def gauge(key: str, name: str, family: Family, samples: Samples, ranks: Ranks) -> dict[str, float]:
    """The endpoint's number, and for a ratio the mean over its engines beside it. Raises :class:`NotAQuantityError`."""
    values = [value * family.scale for value in _gauge_values(name, family, samples, ranks).values()]
    total, greatest = sum(values), max(values)
    if family.combine == "sum":
        if total > LARGEST_COUNT:
            raise NotAQuantityError(f"is {total:g}, more than any engine has")
        return {key: total}
    if greatest > LARGEST_RATIO:
        raise NotAQuantityError(f"is {greatest:g}, which is no ratio (a percentage needs scale: 0.01 in the preset)")
    return {key: greatest, f"{key}_mean": total / len(values)}


def info(name: str, family: Family, samples: Samples, engine_label: str | None) -> float | None:
    """The number that stands in labels: of each engine the greatest (an engine that changes its mind leaves its old
    series behind), then the sum. None if no series has one.
    """
    engines: dict[str, float] = {}
    for sample in samples[name]:
        products = (_product(sample.labels.values, names) for names in family.labels)
        value = next((product for product in products if product is not None), None)
        if value is not None:
            engine = sample.labels.values.get(engine_label or "", "")
            engines[engine] = max(value, engines.get(engine, 0.0))
    total = sum(engines.values())
    return total if engines and total < math.inf else None


def counter(name: str, family: Family, samples: Samples, ranks: Ranks) -> dict[str, float]:
    """Series → total: a reset shows only per series, so nothing is added up. Raises :class:`NotAQuantityError`."""
    series = _per_engine(_where(samples[name], family.where), ranks)
    for other in family.plus:
        found = _per_engine(_where(samples.get(other, ()), family.where), ranks)
        series.update({f"{other}{{{labels}}}": value for labels, value in found.items()})
    return series


def seconds_spent(name: str, derived: Derived, samples: Samples, ranks: Ranks) -> dict[str, float]:
    """Series → seconds, of a counter of time spent. Raises :class:`NotAQuantityError`."""
    return {series: value * derived.scale for series, value in _per_engine(samples[name], ranks).items()}


def mean(name: str, derived: Derived, samples: Samples, ranks: Ranks) -> dict[str, Buckets]:
    """A histogram of one bucket, from its sum and count: the mean is exact, the quantiles lie anywhere, and so neither
    meet nor breach an objective. Raises :class:`NotAQuantityError`.
    """
    counts: dict[str, float] = {}
    for count in derived.count:
        counts.update(_per_engine(samples.get(count, ()), ranks))
    return {
        series: Buckets((math.inf,), array("d", (counts[series],)), total, counts[series])
        for series, total in seconds_spent(name, derived, samples, ranks).items()
        if series in counts
    }


def histogram(name: str, family: Family, samples: Samples, ranks: Ranks) -> tuple[dict[str, Buckets], int]:
    """Series → buckets of every whole series (of rank copies the one with most in it); how many are malformed."""
    rows: dict[str, list[tuple[float, float]]] = {}
    kept_labels: dict[str, Labels] = {}
    for labels, value, _ in _where(samples[f"{name}_bucket"], family.where):
        series = labels.series
        if series not in rows:
            rows[series], kept_labels[series] = [], labels
        rows[series].append((labels.bound, value))
    sums = {labels.series: value for labels, value, _ in samples.get(f"{name}_sum", ())}
    counts = {labels.series: value for labels, value, _ in samples.get(f"{name}_count", ())}

    whole: dict[str, Buckets] = {}
    broken = 0
    for series, row in rows.items():
        buckets = _buckets(row, sums.get(series, math.nan), counts.get(series), family.scale)
        if buckets is None:
            broken += 1
            continue
        key = _without(kept_labels[series], ranks)
        if key not in whole or whole[key].count < buckets.count:
            whole[key] = buckets
    return whole, broken


def _where(samples: Sequence[Sample], where: Mapping[str, Collection[str]]) -> Sequence[Sample]:
    return [sample for sample in samples if passes(sample.labels, where)] if where else samples


def _gauge_values(name: str, family: Family, samples: Samples, ranks: Ranks) -> Mapping[str, float]:
    """One number per engine: of the name itself, plus the other parts of the sum, times the factor's series."""
    ignored = ranks.union(family.times)
    values = _per_engine(_where(samples[name], family.where), ignored)
    for other in family.plus:
        for series, value in _per_engine(_where(samples.get(other, ()), family.where), ignored).items():
            values[series] = values.get(series, 0.0) + value
    if family.times:
        factors = _per_engine(_where(samples[name], family.times), ignored)
        values = {series: value * factors[series] for series, value in values.items() if series in factors}
        if not values:
            raise NotAQuantityError("lacks the series to multiply with")
    return values


def _per_engine(samples: Iterable[Sample], ignored: frozenset[str]) -> dict[str, float]:
    """Label text without the ``ignored`` labels → value, copies counted once. Raises :class:`NotAQuantityError` unless
    finite and ≥ 0.
    """
    values: dict[str, float] = {}
    for labels, value, _ in samples:
        if not 0 <= value < math.inf:
            raise NotAQuantityError(f"is {value:g}")
        series = _without(labels, ignored)
        values[series] = max(value, values.get(series, 0.0))
    return values


def _without(labels: Labels, ignored: frozenset[str]) -> str:
    """The series' label text without the labels in which copies differ (and without ``le``)."""
    if ignored.isdisjoint(labels.values):
        return labels.series
    kept = sorted(item for item in labels.values.items() if item[0] not in ignored and item[0] != "le")
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in kept)
    return ",".join(f'{name}="{value}"' for name, value in escaped)


def _product(values: Mapping[str, str], names: Sequence[str]) -> float | None:
    """The product of labels that are counts; None if one is missing or none (vLLM writes "None")."""
    texts = [values.get(name, "") for name in names]
    return math.prod(map(float, texts)) if all(text.isascii() and text.isdigit() for text in texts) else None


def _buckets(rows: list[tuple[float, float]], total: float, count: float | None, scale: float) -> Buckets | None:
    """One series put together; None unless it is whole: distinct bounds up to +Inf, counts that never fall, a sum."""
    rows = sorted(rows)
    bounds, cumulative = zip(*rows, strict=True)
    count = cumulative[-1] if count is None else count
    whole = (
        not any(map(math.isnan, bounds))
        and bounds[-1] == math.inf
        and len(set(bounds)) == len(bounds)
        and all(map(math.isfinite, (*cumulative, total, count)))
        and cumulative[0] >= 0
        and list(cumulative) == sorted(cumulative)
    )
    if not whole:
        return None
    if scale != 1.0:
        bounds, total = tuple([bound * scale for bound in bounds]), total * scale
    return Buckets(shared_bounds(bounds), array("d", cumulative), total, count)
