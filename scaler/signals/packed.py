"""The latencies of one increment in one array: a window keeps a dozen of them for each workload.

As objects, the eight histograms of a vLLM take 2.7 KB an increment, most of it for objects' heads; so, 1.4 KB.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache

from scaler.signals.observation import Buckets

#: The families, each with its bounds and where its numbers begin in the array: counts, then sum, then samples.
_Layout = dict[str, tuple[tuple[float, ...], int]]


class PackedLatencies(Mapping[str, Buckets]):
    """Family → bucket increases, unpacked when asked for; an immutable value like the mapping it was made of."""

    __slots__ = ("_layout", "_numbers")

    def __init__(self, latencies: Mapping[str, Buckets]) -> None:
        self._layout = _layout(tuple((family, buckets.bounds) for family, buckets in latencies.items()))
        self._numbers = array("d")
        for buckets in latencies.values():
            self._numbers.extend((*buckets.cumulative, buckets.sum, buckets.count))

    def __getitem__(self, family: str) -> Buckets:
        bounds, begin = self._layout[family]
        end = begin + len(bounds)
        numbers = self._numbers
        return Buckets(bounds, tuple(numbers[begin:end]), numbers[end], numbers[end + 1])

    def __contains__(self, family: object) -> bool:
        return family in self._layout

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)

    def __repr__(self) -> str:
        return f"PackedLatencies({dict(self)!r})"


@lru_cache(maxsize=1024)
def _layout(families: tuple[tuple[str, tuple[float, ...]], ...]) -> _Layout:
    """One object for every increment of the same families: an engine has one layout."""
    begin, layout = 0, {}
    for family, bounds in families:
        layout[family] = bounds, begin
        begin += len(bounds) + 2
    return layout
