"""The answers of a round, split by scraped target: what one scrape of one engine process said, put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import nan
from typing import Final

from scaler.signals.exposition import Labels, Sample, normalised
from scaler.signals.prometheus.answer import Row, read_answer
from scaler.signals.prometheus.plan import Wanted

#: The values of a target's labels, in the order of :attr:`Places.names`; None where it has no such label.
Place = tuple[str | None, ...]
#: Target → name as spelled → samples.
Series = Mapping[Place, Mapping[str, Sequence[Sample]]]


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One scraped endpoint at its last scrape. Until it is scraped again, every round has the same object.

    ``unix`` is the time of the scrape by the server's clock, ``at`` the same by ours (monotonic seconds). ``labels``
    are those that tell it apart. ``samples`` and ``spellings`` are keyed by normalised names; the labels of a sample
    are without the target's own, but for ``instance``.
    """

    labels: Mapping[str, str]
    unix: float
    at: float
    samples: Mapping[str, Sequence[Sample]] = field(repr=False)
    spellings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """What all series have in common that differ in name and bucket only: their target, and (by the bucket's bound) the
    labels without the target's own, for a copy that takes over must not look like new series.
    """

    place: Place
    by_bound: dict[str | None, Labels]


class Places:
    """How targets are told apart in one round."""

    def __init__(self, wanted: Wanted) -> None:
        self.names: Final = (*wanted.place, *wanted.copies)
        self._dropped = frozenset(self.names) - {"instance"}
        self._own = lru_cache(maxsize=65_536)(self._read_own)

    def place(self, labels: Mapping[str, str]) -> Place:
        """The target that a series of these labels belongs to."""
        return tuple(map(labels.get, self.names))

    def labels(self, place: Place) -> dict[str, str]:
        """The labels that a target is told apart by, without those it lacks."""
        return {name: value for name, value in zip(self.names, place, strict=True) if value is not None}

    def own(self, labels: dict[str, str]) -> _Own:
        """What series of these labels share, without name and bucket. Read once for each label set."""
        return self._own(tuple(labels.items()))

    def _read_own(self, items: tuple[tuple[str, str], ...]) -> _Own:
        own = sorted(item for item in items if item[0] not in self._dropped)
        escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in own)
        text = ",".join(f'{name}="{value}"' for name, value in escaped)
        return _Own(self.place(dict(items)), {None: Labels(dict(own), text, text, nan)})


class Collector:
    """Splits rows by target as they are read."""

    def __init__(self, places: Places) -> None:
        self._own = places.own
        self._groups: dict[_Own, dict[str, list[Sample]]] = {}

    def take(self, row: Row) -> None:
        """One more row; its labels are used up."""
        labels, value = row
        name, bound = labels.pop("__name__", ""), labels.pop("le", None)
        own = self._own(labels)
        group = self._groups.get(own)
        if group is None:
            group = self._groups[own] = {}
        series = own.by_bound.get(bound)
        if series is None:
            series = own.by_bound[bound] = replace(own.by_bound[None], bound=_number(bound))
        if name in group:
            group[name].append(Sample(series, value, None))
        else:
            group[name] = [Sample(series, value, None)]

    def samples(self, wanted: Callable[[Place], bool]) -> dict[Place, dict[str, list[Sample]]]:
        """What was taken of the targets that are ``wanted``."""
        found: dict[Place, dict[str, list[Sample]]] = {}
        for own, group in self._groups.items():
            if wanted(own.place):
                target = found.setdefault(own.place, {})
                for name, samples in group.items():
                    target.setdefault(name, []).extend(samples)
        return found


def collect_body(body: bytes, places: Places, wanted: frozenset[Place]) -> tuple[Series, str]:
    """One answer's body split by target, and why it may be partial. Raises :class:`AnswerError`. (One function, so that
    a large answer is read and split beside the event loop.)
    """
    collector = Collector(places)
    answer = read_answer(body, collector.take)
    return collector.samples(wanted.__contains__), answer.partial


def put_together(place: Place, places: Places, unix: float, at: float, parts: Iterable[Series]) -> Target:
    """One target from its part of every answer. Of two spellings of one name the first counts (``:`` before ``_``)."""
    by_spelling: dict[str, Sequence[Sample]] = {}
    for part in parts:
        by_spelling.update(part.get(place, {}))
    spellings: dict[str, str] = {}
    for spelled in sorted(by_spelling):
        spellings.setdefault(normalised(spelled), spelled)
    samples = {name: by_spelling[spelled] for name, spelled in spellings.items()}
    return Target(places.labels(place), unix, at, samples, spellings)


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return nan
