"""Replica counts of all workloads of a source, where it holds kube-state-metrics' series: one query for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import aiohttp

from scaler.policy import promql
from scaler.policy.model import ScaleTarget
from scaler.signals.kube_state import METRICS, KubeState, Row, read_rows, replica_counts
from scaler.signals.observation import ReplicaCounts
from scaler.signals.prometheus.api import Api, QueryError
from scaler.signals.prometheus.rounds import SERVES_SHARE
from scaler.value import frozen

#: More namespaces than this are not written in the query: everybody's counts come then.
_NARROWING_VALUES: Final = 50


@frozen
class _Counted:
    """What was counted: by cluster ("" where series name none). ``at`` is the age of the newest sample, as monotonic
    time; ``reason`` says why there is none, ``partial`` why some may be missing.
    """

    asked: float
    namespaces: frozenset[str]
    at: float
    clusters: Mapping[str, KubeState]
    reason: str = ""
    partial: str = ""


class KubeCounts:
    """The kube-state-metrics series of one source, asked for once a tick however many workloads want them."""

    def __init__(self, name: str, api: Api) -> None:
        self._name = name
        self._api = api
        self._asking = asyncio.Lock()
        self._last: _Counted | None = None

    async def counts(
        self,
        session: aiohttp.ClientSession,
        mono: Callable[[], float],
        *,
        tick_seconds: float,
        namespace: str,
        cluster: str | None,
        target: ScaleTarget,
        namespaces: Callable[[], frozenset[str]],
    ) -> ReplicaCounts:
        """The counts of ``target`` in ``namespace``. ``cluster`` is the value of that label, where the workload binds
        it. ``namespaces`` are those of all workloads of the source, asked of the caller only for a new query.

        Never raises for a bad server: the reason is in the answer.
        """
        async with self._asking:
            said = self._last
            if said is None or namespace not in said.namespaces or mono() - said.asked >= SERVES_SHARE * tick_seconds:
                said = self._last = await self._ask(session, mono, namespaces() | {namespace})
        if said.reason:
            return ReplicaCounts(said.at, reason=said.reason)
        if cluster is None and len(said.clusters) > 1:
            several = f"source {self._name}: kube-state-metrics of several clusters; add cluster to prometheus.match"
            return ReplicaCounts(said.at, reason=several)
        only = next(iter(said.clusters.values()), KubeState({}, {}))
        # A Prometheus of one cluster need not label its series with it.
        state = only if cluster is None else said.clusters.get(cluster) or said.clusters.get("", KubeState({}, {}))
        counts = replica_counts(state, namespace, target, said.at)
        if not said.partial:
            return counts
        # What is there is right; but pods without a node have a series only while there are any, and where one may be
        # missing they would be taken for loading, and for capacity to come.
        partial = f"source {self._name}: partial data: {said.partial}"
        reason = f"{partial}; {counts.reason}" if counts.reason else partial
        return replace(counts, pending=None, unschedulable=None, reason=reason)

    async def _ask(
        self, session: aiohttp.ClientSession, mono: Callable[[], float], namespaces: frozenset[str]
    ) -> _Counted:
        asked = mono()
        try:
            answer = await self._api.ask(session, query(namespaces))
        except QueryError as error:
            return _Counted(asked, namespaces, mono(), {}, f"source {self._name}: {error}")
        by_cluster: dict[str, list[Row]] = {}
        newest = None
        for labels, value in answer.rows:
            if labels:
                by_cluster.setdefault(labels.get("cluster", ""), []).append((_honoured(labels), value))
            else:
                newest = value
        age = 0.0 if newest is None or answer.unix is None else max(0.0, answer.unix - newest)
        clusters = {cluster: read_rows(rows) for cluster, rows in by_cluster.items()}
        return _Counted(asked, namespaces, asked - age, clusters, partial=answer.partial)


def query(namespaces: frozenset[str]) -> str:
    """Every series of :data:`~scaler.signals.kube_state.METRICS` in these namespaces, and, without labels, the Unix
    time of the newest sample (a value alone does not say how old it is).
    """
    names = f'__name__=~"{"|".join(METRICS)}"'
    labels = ("namespace", "exported_namespace") if len(namespaces) <= _NARROWING_VALUES else ()
    series = " or ".join(f"{{{names},{label}{promql.any_of(sorted(namespaces))}}}" for label in labels)
    asked = [name for name in METRICS if "ready" not in name and "pod" not in name]
    newest = " or ".join(f"timestamp({name})" for name in asked)
    return f"{series or f'{{{names}}}'} or max({newest})"


def _honoured(labels: Mapping[str, str]) -> Mapping[str, str]:
    """The labels as kube-state-metrics exposed them: a Prometheus that does not honour them writes its target's own
    namespace and pod in their place.
    """
    own = {name: labels[f"exported_{name}"] for name in ("namespace", "pod") if f"exported_{name}" in labels}
    return {**labels, **own} if own else labels
