"""The latencies of one increment in little room: a window keeps a dozen of them for each workload.

As objects, the eight histograms of a vLLM take 2.7 KB an increment, most of it for objects' heads; so, 0.5 KB. What a
window observed is summed as it lies, without an object for each increment's histogram.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from scaler.signals import histogram
from scaler.signals.observation import Buckets

#: The families, each with its bounds, its place among the sums, and where its counts begin: the buckets', and one more
#: for all samples.
_Layout = dict[str, tuple[tuple[float, ...], int, int]]
#: What counts are kept in, by the largest they may be: they are whole, unless a replica's late ones were shared out.
_WHOLE = (("B", 0xFF), ("H", 0xFFFF), ("I", 0xFFFF_FFFF))


class PackedLatencies(Mapping[str, Buckets]):
    """Family → bucket increases, unpacked when asked for; an immutable value like the mapping it was made of."""

    __slots__ = ("_counts", "_layout", "_sums")

    def __init__(self, latencies: Mapping[str, Buckets]) -> None:
        self._layout = _layout(tuple((family, buckets.bounds) for family, buckets in latencies.items()))
        self._sums = array("d", [buckets.sum for buckets in latencies.values()])
        self._counts = _narrow([count for each in latencies.values() for count in (*each.cumulative, each.count)])

    def __getitem__(self, family: str) -> Buckets:
        bounds, place, begin = self._layout[family]
        *cumulative, count = map(float, self._counts[begin : begin + len(bounds) + 1])
        return Buckets(bounds, tuple(cumulative), self._sums[place], count)

    def __contains__(self, family: object) -> bool:
        return family in self._layout

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)

    def __repr__(self) -> str:
        return f"PackedLatencies({dict(self)!r})"


def observed(parts: Sequence[Mapping[str, Buckets]], family: str) -> Buckets | None:
    """All that ``parts`` observed of one family; None where none of them did."""
    packed = [(part, part._layout.get(family)) for part in parts if isinstance(part, PackedLatencies)]
    found = [(part, layout) for part, layout in packed if layout is not None]
    layouts = {id(bounds) for _, (bounds, _, _) in found}
    if len(packed) < len(parts) or len(layouts) > 1:
        having = [part[family] for part in parts if family in part]
        return histogram.total(having) if having else None
    if not found:
        return None
    bounds = found[0][1][0]
    length = len(bounds) + 1
    rows = [part._counts[begin : begin + length] for part, (_, _, begin) in found]
    *cumulative, count = map(float, map(sum, zip(*rows, strict=True)))
    seconds = sum([part._sums[place] for part, (_, place, _) in found])
    return Buckets(bounds, tuple(cumulative), seconds, count)


def _narrow(counts: Sequence[float]) -> array[float] | array[int]:
    """The counts in the least room that holds them exactly."""
    largest = max(counts, default=0.0)
    if min(counts, default=0.0) >= 0 and all(map(float.is_integer, counts)):
        for kind, most in _WHOLE:
            if largest <= most:
                return array(kind, list(map(int, counts)))  # of an iterator it would keep room to grow
    return array("d", counts)


@lru_cache(maxsize=1024)
def _layout(families: tuple[tuple[str, tuple[float, ...]], ...]) -> _Layout:
    """One object for every increment of the same families: an engine has one layout."""
    begin, layout = 0, {}
    for place, (family, bounds) in enumerate(families):
        layout[family] = histogram.shared_bounds(bounds), place, begin
        begin += len(bounds) + 1
    return layout
