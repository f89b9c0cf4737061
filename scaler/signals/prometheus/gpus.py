"""The GPUs of all workloads of a source, where it holds the series of DCGM exporters: one query for all of them.

A pod's share of a time-sliced GPU stands beside the GPU's own value (see :mod:`scaler.signals.dcgm`), often without the
pod's namespace. So the query is narrowed by GPUs, not by series: every series comes of each GPU of which any one is of
a wanted namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

import aiohttp

from scaler.policy import promql
from scaler.policy.prometheus import QUERY_LENGTH
from scaler.signals.coverage import FRESH_INTERVALS
from scaler.signals.dcgm import FIELDS, DcgmGpu, Row, read_rows
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.observation import ReadFailure
from scaler.signals.prometheus.answer import Answer
from scaler.signals.prometheus.api import Api, QueryError
from scaler.signals.prometheus.rounds import REST_RATIO, SERVES_SHARE
from scaler.signals.scrape import Exporter
from scaler.value import frozen

#: The fields that are asked for. Power and temperature say nothing about load, and every field costs a row per GPU.
ASKED: Final = tuple(name for name in FIELDS if name not in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"))
#: What tells one GPU or instance from the others, by new exporters and old ones.
_IDENTITY: Final = "UUID, uuid, GPU_I_ID"
#: Where the namespace of the pod that holds a GPU may stand.
NAMESPACE_LABELS: Final = ("namespace", "exported_namespace", "pod_namespace")
#: Marks the rows whose value is a time, for a name they cannot have.
_TIMES: Final = "loadtide_times"

#: Namespaces whose GPUs are wanted; None: any may be.
Namespaces = frozenset[str] | None


@frozen
class _Said:
    """One answer. ``rows`` are by cluster ("" where series name none), ``unix`` is the server's time of it. ``reason``
    says why there is none.
    """

    asked: float
    seconds: float
    namespaces: Namespaces
    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict, repr=False)
    unix: float = 0.0
    reason: str = ""
    found: dict[tuple[str, float], DcgmGpus] = field(default_factory=dict, repr=False)
    """What was made of the rows: by cluster and greatest age."""


class GpuSeries:
    """The DCGM series of one source, asked for once a tick however many workloads want them."""

    def __init__(self, name: str, api: Api) -> None:
        self.api = api
        self._name = name
        self._asking = asyncio.Lock()
        self._last: _Said | None = None

    async def read(
        self,
        session: aiohttp.ClientSession,
        mono: Callable[[], float],
        *,
        tick_seconds: float,
        scrape_interval_seconds: float,
        cluster: str | None,
        namespaces: Namespaces,
        wanted: Callable[[], Namespaces],
    ) -> Exporter | ReadFailure:
        """The GPUs for a workload whose own may be in ``namespaces``. ``cluster`` is the value of that label, where the
        workload binds it; ``wanted`` gives the namespaces of all workloads of the source, asked only for a new query.

        Never raises for a bad server: the reason is in the answer. Partial data are none: of a replica's GPUs some
        could be missing, and the mean of the others be taken for all.
        """
        async with self._asking:
            said = self._last
            if said is None or not self._serves(said, namespaces, mono() - said.asked, tick_seconds):
                said = self._last = await self._ask(session, mono, together([wanted(), namespaces]))
            at = said.asked + said.seconds
            if said.reason:
                return ReadFailure(at, said.reason, said.seconds)
            if cluster is None and len(said.rows) > 1:
                several = f"source {self._name}: GPUs of several clusters; add cluster to gpu.match or prometheus.match"
                return ReadFailure(at, several, said.seconds)
            # A Prometheus of one cluster need not label its series with it.
            of = next(iter(said.rows), "") if cluster is None else cluster if cluster in said.rows else ""
            key = of, FRESH_INTERVALS * scrape_interval_seconds
            if key not in said.found:
                rows = said.rows.get(of, ())
                said.found[key] = DcgmGpus(await asyncio.to_thread(_fresh_gpus, rows, said.unix - key[1]))
            return Exporter(at, said.found[key], said.seconds)

    @staticmethod
    def _serves(said: _Said, namespaces: Namespaces, age: float, tick_seconds: float) -> bool:
        covers = said.namespaces is None or (namespaces is not None and namespaces <= said.namespaces)
        return covers and age < max(SERVES_SHARE * tick_seconds, REST_RATIO * said.seconds)

    async def _ask(self, session: aiohttp.ClientSession, mono: Callable[[], float], namespaces: Namespaces) -> _Said:
        asked = mono()
        try:
            answer = await self.api.ask(session, query(namespaces))
        except QueryError as error:
            return _Said(asked, mono() - asked, namespaces, reason=f"source {self._name}: {error}")
        if answer.partial:
            partial = f"source {self._name}: partial data: {answer.partial}"
            return _Said(asked, mono() - asked, namespaces, reason=partial)
        rows = await asyncio.to_thread(by_cluster, answer)
        return _Said(asked, mono() - asked, namespaces, rows, answer.unix or 0.0)


def query(namespaces: Namespaces) -> str:
    """Every series of :data:`ASKED` of each GPU that a pod in ``namespaces`` holds; and when each was sampled, marked
    by a label (``timestamp`` drops names, so that one row stands for all series with the same labels). Of namespaces
    too many to write everybody's come.
    """
    values = f'{{__name__=~"{"|".join(ASKED)}"}}'
    times = " or ".join(f"timestamp({name})" for name in ASKED)
    all_of_them = f'{values} or label_replace({times}, "{_TIMES}", "1", "", "")'
    if namespaces is None:
        return all_of_them
    held = promql.any_of(sorted(namespaces))
    theirs = " or ".join(f"{values[:-1]},{label}{held}}}" for label in NAMESPACE_LABELS)
    narrowed = f"({all_of_them}) and on ({_IDENTITY}) ({theirs})"
    return narrowed if len(narrowed) <= QUERY_LENGTH else all_of_them


def by_cluster(answer: Answer) -> dict[str, tuple[Row, ...]]:
    """The rows of :func:`query`'s answer with their times, by the label ``cluster``. One without a time is left out."""
    times: dict[frozenset[tuple[str, str]], float] = {}
    for labels, value in answer.rows:
        if _TIMES in labels:
            times[frozenset(item for item in labels.items() if item[0] != _TIMES)] = value
    rows: dict[str, list[Row]] = {}
    for labels, value in answer.rows:
        own = {label: text for label, text in labels.items() if label != "__name__"}
        name, unix = labels.get("__name__"), times.get(frozenset(own.items()))
        if name is not None and unix is not None:
            rows.setdefault(own.get("cluster", ""), []).append(Row(name, own, value, unix))
    return {cluster: tuple(found) for cluster, found in rows.items()}


def _fresh_gpus(rows: Iterable[Row], oldest_unix: float) -> tuple[DcgmGpu, ...]:
    return read_rows(row for row in rows if row.unix is not None and row.unix >= oldest_unix)


def together(several: Iterable[Namespaces]) -> Namespaces:
    """The namespaces of all; None if any wants any."""
    found: set[str] = set()
    for each in several:
        if each is None:
            return None
        found |= each
    return frozenset(found)
