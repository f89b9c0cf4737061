"""One round of queries to one source, shared by every workload that wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

import aiohttp

from scaler.policy.prometheus import Prometheus
from scaler.signals.preset import Preset
from scaler.signals.prometheus.answer import AnswerError, Row
from scaler.signals.prometheus.api import Api, QueryError
from scaler.signals.prometheus.plan import Plan, Wanted, plan
from scaler.signals.prometheus.targets import Place, Places, Series, Target, collect_body, put_together
from scaler.value import frozen

#: The share of a tick for which a round serves. The ticks of many workloads are started over half of one, so that a
#: round must last a little longer, and never to the next tick.
SERVES_SHARE: Final = 0.75
#: A round is not asked again before this many times the time it took: large answers must not be all that we do.
REST_RATIO: Final = 3.0
#: Answers of one round in memory at a time, unread.
ANSWERS_AT_ONCE: Final = 3


@frozen
class Round:
    """What a source said at one time.

    ``began`` and ``seconds``: when it was asked (monotonic) and how long that took. ``targets``: every target that has
    a series of a wanted engine. ``present``: their labels, model and engine included, as they stand in the series that
    tells presence. ``failing``: targets that the server knows and cannot scrape; ``tells_failing`` whether it would say
    so. ``partial``: why the answer may lack series ("": it is whole).
    """

    wanted: Wanted
    began: float
    seconds: float
    queries: int
    targets: Mapping[Place, Target] = field(repr=False)
    present: tuple[tuple[Mapping[str, str], Place], ...] = field(repr=False)
    failing: frozenset[Place] = field(repr=False)
    tells_failing: bool
    partial: str
    _bound: dict[tuple[str, ...], dict[tuple[str | None, ...], dict[Place, None]]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _values: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    def bound(self, match: Mapping[str, str]) -> Mapping[Place, None]:
        """The targets with a series that has all labels of ``match``. The first question with these label names sorts
        the whole answer by their values; every further one is a look-up.
        """
        names = tuple(sorted(match))
        by_values = self._bound.get(names)
        if by_values is None:
            by_values = self._bound[names] = {}
            for labels, place in self.present:
                by_values.setdefault(tuple(map(labels.get, names)), {})[place] = None
        return by_values.get(tuple(match[name] for name in names), {})

    def values_of(self, label: str) -> tuple[str, ...]:
        """The values that a label has anywhere, sorted: for telling a person."""
        if label not in self._values:
            self._values[label] = tuple(sorted({value for labels, _ in self.present if (value := labels.get(label))}))
        return self._values[label]


@frozen
class Failed:
    """A round that gave nothing; ``reason`` is for a person. ``at`` is when that was clear."""

    began: float
    at: float
    seconds: float
    reason: str


class Source:
    """One source of the policy file: its rounds are asked once, however many ask for them.

    ``name`` is what the policy file calls it.
    """

    def __init__(self, name: str, api: Api) -> None:
        self.name = name
        self.api = api
        self._asking: asyncio.Task[None] | None = None
        self._last: Round | Failed | None = None
        self._last_good: Round | None = None
        self._places: Places | None = None

    async def round(
        self,
        session: aiohttp.ClientSession,
        mono: Callable[[], float],
        *,
        tick_seconds: float,
        preset: Preset,
        prometheus: Prometheus,
        wanted: Callable[[], Wanted],
    ) -> Round | Failed:
        """The present round, which serves a workload of ``preset`` that reads ``prometheus``: the one under way, the
        last one if it is young enough, else a new one for all that is ``wanted`` (asked of the caller only then).

        Whoever is cancelled while waiting leaves the round to the others.
        """

        waited = self._asking is not None and not self._asking.done()
        if self._asking is not None and waited:
            await asyncio.shield(self._asking)
        last = self._last
        if last is not None and (isinstance(last, Failed) or last.wanted.covers(preset, prometheus)):
            serves_seconds = max(SERVES_SHARE * tick_seconds, REST_RATIO * last.seconds)
            if waited or mono() - last.began < serves_seconds:
                return last
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(session, mono, wanted()), name=f"round of {self.name}")
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())  # told to who waits
        await asyncio.shield(self._asking)
        assert self._last is not None
        return self._last

    async def _ask(self, session: aiohttp.ClientSession, mono: Callable[[], float], wanted: Wanted) -> None:
        began = mono()
        try:
            self._last = self._last_good = await self._asked(session, mono, wanted, began)
        except QueryError as error:
            at = mono()
            self._last = Failed(began, at, at - began, f"source {self.name}: {error}")

    async def _asked(
        self, session: aiohttp.ClientSession, mono: Callable[[], float], wanted: Wanted, began: float
    ) -> Round:
        """Raises :class:`QueryError`. One query that fails fails the round: a replica without its queue looks idle."""
        queries = plan(wanted)
        before = self._last_good
        if (
            self._places is None
            or before is None
            or (before.wanted.place, before.wanted.copies)
            != (
                wanted.place,
                wanted.copies,
            )
        ):
            self._places, before = Places(wanted), None
        places = self._places
        asked = mono()
        ages = await self.api.ask(session, queries.ages)
        present, scraped = _scraped(ages.rows, places)
        new = frozenset(
            place
            for place, unix in scraped.items()
            if before is None or (known := before.targets.get(place)) is None or known.unix != unix
        )
        failing, parts, partial = await self._values(session, queries, places, new, ages.unix)
        now_unix = ages.unix or 0.0
        targets = {
            place: put_together(place, places, unix, asked - max(0.0, now_unix - unix), parts)
            if place in new or before is None
            else before.targets[place]
            for place, unix in scraped.items()
        }
        return Round(
            wanted=wanted,
            began=began,
            seconds=mono() - began,
            queries=queries.queries,
            targets=targets,
            present=present,
            failing=frozenset(places.place(labels) for labels, _ in failing if labels),
            tells_failing=any(not labels for labels, _ in failing),
            partial=ages.partial or partial,
        )

    async def _values(
        self, session: aiohttp.ClientSession, queries: Plan, places: Places, new: frozenset[Place], unix: float | None
    ) -> tuple[list[Row], list[Series], str]:
        """The other queries, all evaluated at the time of the first, so that they tell of the same scrapes."""

        few = asyncio.Semaphore(ANSWERS_AT_ONCE)

        async def series(query: str) -> tuple[Series, str]:
            async with few:
                body = await self.api.fetch(session, query, unix=unix)
                try:
                    return await asyncio.to_thread(collect_body, body, places, new)
                except AnswerError as error:
                    raise QueryError(str(error)) from error

        tasks = [asyncio.create_task(series(query)) for query in (queries.values if new else ())]
        try:
            failing = await self.api.ask(session, queries.failing, unix=unix)
            collected = [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        partial = next((partial for _, partial in collected if partial), failing.partial)
        return failing.rows, [part for part, _ in collected], partial


def _scraped(rows: list[Row], places: Places) -> tuple[tuple[tuple[Mapping[str, str], Place], ...], dict[Place, float]]:
    """The labels and target of every row, and when each target was last scraped (Unix seconds)."""
    present = []
    scraped: dict[Place, float] = {}
    for labels, unix in rows:
        place = places.place(labels)
        present.append((labels, place))
        scraped[place] = max(unix, scraped.get(place, unix))
    return tuple(present), scraped
