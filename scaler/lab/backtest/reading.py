"""The span read part by part: each part's samples, put into columns by scraped target.

The next part is on its way while the caller works on this one; of more than these two nothing is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from scaler.lab.backtest.asking import Ask, AskError, vector
from scaler.lab.backtest.matrix import Matrix, Numbers, RawSeries, read_matrix
from scaler.lab.backtest.questions import (
    Cluster,
    Questions,
    jobs_up,
    over,
    pulse_of,
    sampled,
)
from scaler.lab.backtest.span import LONGEST_PART_SECONDS, SHORTEST_PART_SECONDS, Span, shown_time
from scaler.policy.model import ScaleTarget
from scaler.signals.exposition import normalised
from scaler.signals.prometheus.answer import AnswerError
from scaler.value import frozen

#: Answers of one part beyond this make the next one shorter; far below it longer again. (Decoded they take as much.)
LARGEST_PART_BYTES: Final = 48 * 1024 * 1024
#: So many jobs are taken for the server's pulse; a job that began with the range is looked for so long after.
_PULSE_JOBS: Final = 3
_AFTER_BEGIN_SECONDS: Final = 300.0

_Raw: TypeAlias = Callable[[str | None], Awaitable[list[RawSeries]]]


@frozen
class Part:
    """What the server holds of one part: the engines' series, ``up`` of their targets and of others that show whether
    the server itself was there, the target's replica counts, pods' creation (Unix seconds), the queries for signals.
    """

    span: Span
    engines: Sequence[RawSeries] = field(repr=False, default=())
    up: Sequence[RawSeries] = field(repr=False, default=())
    pulse: Sequence[RawSeries] = field(repr=False, default=())
    counts: Sequence[RawSeries] = field(repr=False, default=())
    created: Mapping[str, float] = field(repr=False, default_factory=dict)
    queried: Mapping[str, Sequence[RawSeries]] = field(repr=False, default_factory=dict)
    partial: str = ""
    samples: int = 0
    bytes: int = 0
    cut: bool = False
    """Whether it is only the first of what was to be one part."""


class ReadError(Exception):
    """The span cannot be read on; ``at`` (Unix seconds) is how far it was read."""

    def __init__(self, at: float, text: str) -> None:
        super().__init__(text)
        self.at = at


@dataclass(slots=True)
class Reader:
    """Reads one workload's span. ``queries`` give signals that no engine tells, evaluated every ``query_seconds``."""

    ask: Ask
    questions: Questions
    cluster: Cluster
    target: ScaleTarget | None
    replica_label: str
    span: Span
    queries: Mapping[str, str] = field(default_factory=dict)
    query_seconds: float = 15.0
    _pulse: tuple[str, ...] = ()
    _known: Mapping[str, set[str]] = field(default_factory=dict)

    async def parts(self) -> AsyncIterator[Part]:
        """The parts in order. Raises :class:`ReadError`."""
        self._pulse = await self._find_pulse()
        length, begin = LONGEST_PART_SECONDS, self.span.since
        coming = asyncio.create_task(self._read(self.span.part(begin, length)))
        try:
            while True:
                part = await coming
                begin = part.span.until
                length = _next_length(part, length)
                if begin < self.span.until:
                    coming = asyncio.create_task(self._read(self.span.part(begin, length)))
                yield part
                if begin >= self.span.until:
                    return
        finally:
            coming.cancel()

    async def _read(self, span: Span) -> Part:
        """One part; where that is too much for the server its first half, or less."""
        cut = False
        while True:
            try:
                return replace(await self._asked(span), cut=cut)
            except AskError as error:
                shorter = span.seconds / 2
                if not error.too_much or shorter < SHORTEST_PART_SECONDS / 2:
                    raise ReadError(span.since, f"{shown_time(span.since)} UTC: {error}") from error
                span, cut = replace(span, until=span.since + shorter), True

    async def _asked(self, span: Span) -> Part:
        shared: dict[bytes, Numbers] = {}
        size, samples, partial = 0, 0, ""

        async def series(query: str) -> list[RawSeries]:
            nonlocal size, samples, partial
            body = await self.ask(query, span.until)
            try:
                matrix: Matrix = await asyncio.to_thread(read_matrix, body, span.since, shared)
            except AnswerError as error:
                raise AskError(str(error)) from error
            size += len(body)
            samples += sum(len(each.times) for each in matrix.series)
            partial = partial or matrix.partial
            return matrix.series

        async def raw(selector: str | None) -> list[RawSeries]:
            return [] if selector is None else await series(over(selector, span.seconds))

        engines = await raw(self.questions.numbers)
        known = self._replicas(engines)
        asked = {label: values | self._known.get(label, set()) for label, values in (known or self._known).items()}
        names = {normalised(each.labels.get("__name__", "")) for each in engines}
        present = frozenset(name.removesuffix("_count") for name in names if name.endswith("_count"))
        more = (*self.questions.buckets(present), self.questions.processes(known)) if engines else ()
        own = [sampled(query, span.seconds, self.query_seconds) for query in self.queries.values()]
        counts = await self._counts(raw)
        (up, pulse), created, rest, queried = await asyncio.gather(
            asyncio.gather(
                raw(self.questions.up(asked) if asked else None),
                raw(pulse_of(self._pulse) if self._pulse else None),
            ),
            self._created(span, engines),
            asyncio.gather(*map(raw, more)),
            asyncio.gather(*map(series, own)),
        )
        # A replica that cannot be scraped any more has no series left but its `up`.
        self._known = {label: known.get(label, set()) | values for label, values in self._replicas(up).items()} or known
        return Part(
            span=span,
            engines=[*engines, *(each for group in rest for each in group)],
            up=up,
            pulse=pulse,
            counts=counts,
            created=created,
            queried=dict(zip(self.queries, queried, strict=True)),
            partial=partial,
            samples=samples,
            bytes=size,
        )

    async def _counts(self, raw: _Raw) -> list[RawSeries]:
        if self.target is None or self.target.name is None:
            return []
        for cluster in dict.fromkeys((self.cluster, replace(self.cluster, prefix="exported_"))):
            if counts := await raw(cluster.counts(self.target)):
                self.cluster = cluster
                told = counts + await raw(cluster.without_node)
                return [each._replace(labels=cluster.own(each.labels)) for each in told]
        return []

    async def _created(self, span: Span, engines: Iterable[RawSeries]) -> dict[str, float]:
        pods = {pod for each in engines if (pod := each.labels.get("pod"))}
        if not pods:
            return {}
        rows = (await vector(self.ask, self.cluster.created(pods, span.seconds), span.until)).rows
        return {self.cluster.own(row.labels).get("pod", ""): row.value for row in rows}

    def _replicas(self, series: Iterable[RawSeries]) -> dict[str, set[str]]:
        """The label that tells replicas apart, and its values."""
        found: dict[str, set[str]] = {}
        for each in series:
            label = next((name for name in (self.replica_label, "exported_pod", "instance") if name in each.labels), "")
            if label:
                found.setdefault(label, set()).add(each.labels[label])
        return found

    async def _find_pulse(self) -> tuple[str, ...]:
        """A few jobs with few targets, those first that were there at the end and at the beginning: what they tell is
        only whether the server was there.
        """
        try:
            late = await vector(self.ask, jobs_up(self.cluster.namespace), self.span.until)
            early = await vector(self.ask, jobs_up(self.cluster.namespace), self.span.since + _AFTER_BEGIN_SECONDS)
        except AskError as error:
            raise ReadError(self.span.since, str(error)) from error
        first = {row.labels.get("job", "") for row in early.rows}
        jobs = sorted((job not in first, row.value, job) for row in late.rows if (job := row.labels.get("job")))
        return tuple(job for _, _, job in jobs[:_PULSE_JOBS])


def _next_length(part: Part, length: int) -> int:
    """Shorter after a large or a refused part, longer again after a small one, always so that the ends stay multiples
    of one another.
    """
    if part.cut or part.bytes > LARGEST_PART_BYTES:
        return max(SHORTEST_PART_SECONDS, length // 2)
    grown = length * 2
    fits = part.span.until % grown == 0
    return grown if grown <= LONGEST_PART_SECONDS and fits and part.bytes < LARGEST_PART_BYTES / 4 else length
