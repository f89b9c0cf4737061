"""One part's samples as columns by scraped target: what each scrape of each engine process said, put together again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Final

from scaler.lab.backtest.matrix import Numbers, RawSeries
from scaler.signals.exposition import Labels, Sample, normalised
from scaler.signals.prometheus.targets import Place, Places, Target

#: Samples of one scrape have one time; collectors on the way may move some of them by less than this (seconds).
_SLACK_SECONDS: Final = 0.5

_Column = tuple[Labels, Sequence[float | None]]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """One target's scrapes in a part: their ``times`` (Unix seconds), and per name the series with a value for each
    (None: that scrape lacked it). ``present`` are the label sets of the series that tell presence.
    """

    labels: Mapping[str, str]
    times: Numbers
    present: Sequence[Mapping[str, str]]
    by_name: Mapping[str, Sequence[_Column]] = field(repr=False)
    spellings: Mapping[str, str] = field(repr=False)

    def target(self, index: int) -> Target:
        """The target as of its ``index``-th scrape. Our clock is the server's: it is all in the past."""
        samples: dict[str, list[Sample]] = {}
        for name, columns in self.by_name.items():
            found = [Sample(labels, value, None) for labels, values in columns if (value := values[index]) is not None]
            if found:
                samples[name] = found
        unix = self.times[index]
        return Target(self.labels, unix, unix, samples, self.spellings)


def columns_of(engines: Iterable[RawSeries], places: Places, presence: Iterable[str]) -> dict[Place, Columns]:
    """The columns of every target that has a series of ``presence`` (normalised names)."""
    telling = frozenset(presence)
    by_place: dict[Place, list[tuple[str, RawSeries]]] = {}
    for series in engines:
        by_place.setdefault(places.place(series.labels), []).append((series.labels.get("__name__", ""), series))
    return {place: found for place, group in by_place.items() if (found := _columns(place, group, places, telling))}


def _columns(
    place: Place, group: Sequence[tuple[str, RawSeries]], places: Places, telling: frozenset[str]
) -> Columns | None:
    present = [series for name, series in group if normalised(name) in telling]
    if not present:
        return None
    times = present[0].times
    if any(series.times is not times for series in present):
        times = type(times)("d", sorted({time for series in present for time in series.times}))
    spellings: dict[str, str] = {}
    for name, _ in sorted(group, key=lambda pair: pair[0]):  # of two spellings of one name the first counts
        spellings.setdefault(normalised(name), name)
    by_name: dict[str, list[_Column]] = {}
    for name, series in group:
        if spellings[normalised(name)] == name:
            by_name.setdefault(normalised(name), []).append((_labels(series.labels, places), aligned(series, times)))
    own = [{key: value for key, value in series.labels.items() if key != "__name__"} for series in present]
    return Columns(places.labels(place), times, own, by_name, spellings)


def _labels(labels: Mapping[str, str], places: Places) -> Labels:
    """The series' labels without those of its target, so that it is the same series in every part."""
    own = {name: value for name, value in labels.items() if name not in ("__name__", "le")}
    shared = places.own(own)
    bound = labels.get("le")
    if bound not in shared.by_bound:
        shared.by_bound[bound] = replace(shared.by_bound[None], bound=_number(bound))
    return shared.by_bound[bound]


def aligned(series: RawSeries, times: Numbers) -> Sequence[float | None]:
    """The series' value at each of ``times``: of the scrapes up to it the one since the time before, if any."""
    if series.times is times:
        return series.values
    values: list[float | None] = [None] * len(times)
    for time, value in zip(series.times, series.values, strict=True):
        index = bisect_right(times, time - _SLACK_SECONDS)
        if index < len(times):
            values[index] = value
    return values


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return nan
