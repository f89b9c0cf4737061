"""One workload's sources read once: the observation a tick is made of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import aiohttp

from scaler.policy.prometheus import Prometheus
from scaler.serve.gateways import Gateways
from scaler.serve.gpu_attribution import pods_at, with_gpus
from scaler.serve.gpu_telemetry import GpuTelemetry
from scaler.serve.lookup import Lookup
from scaler.serve.snapshot import SourceHealth
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.cluster_objects import pods_by_host
from scaler.signals.gateway import GatewaySample, merge_demand
from scaler.signals.history import History
from scaler.signals.model import Known
from scaler.signals.observation import AlsoRead, EngineSample, Observation, Queried, ReadFailure, ReplicaCounts
from scaler.signals.preset import Preset
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.kube_counts import KubeCounts
from scaler.signals.prometheus.plan import Wanted, want
from scaler.signals.prometheus.queried import ask_all
from scaler.signals.prometheus.replicas import Bound, Replica, find
from scaler.signals.prometheus.rounds import Source
from scaler.signals.scrape import Exporter, scrape

_NO_HISTORY: Final = History()

#: With so many workloads remembered, and again with twice as many as are known, those that are gone are forgotten.
_FORGET_AT = 64


@dataclass(slots=True)
class _Remembered:
    """What the next read of one workload is compared with, as long as its ``prometheus`` group stays the same."""

    prometheus: Prometheus
    replicas: Mapping[str, Replica] = field(default_factory=dict)
    queried: dict[str, Known[float]] = field(default_factory=dict)


class Observer:
    """Reads the sources of ``workloads``, one workload a call, within the sources' own time limits. A bad source is
    part of the answer, never an error.

    The clients of the policy file's ``sources:`` are shared: all workloads of one Prometheus are served from one round
    of queries a tick. ``unix`` gives Unix seconds.
    """

    def __init__(self, workloads: Workloads, *, unix: Callable[[], float] = time.time) -> None:
        self._workloads = workloads
        self._unix = unix
        self._sources: dict[str, Source] = {}
        self._kube_counts: dict[str, tuple[Source, KubeCounts]] = {}
        self._remembered: dict[str, _Remembered] = {}
        self._forget_at = _FORGET_AT
        self._gateways = Gateways(workloads.tick_seconds, workloads.mono)
        self._gpus = GpuTelemetry(workloads, unix, lambda name: self._source(name).api)
        self._lookup = Lookup(workloads)

    async def __call__(
        self, workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> Observation:
        """Everything that is to be read for ``workload`` now. ``mono`` gives monotonic seconds."""
        policy = workload.resolved.policy
        observation, replicas, queried, (seen, gateways), exporters = await asyncio.gather(
            self._engines(workload, session, mono),
            self._replica_counts(workload, session, mono),
            self._queried(workload, session, mono),
            self._gateways.demand(workload.name, policy.gateway, session),
            self._gpus.read(workload, session),
        )
        at = mono()
        namespace, preallocates = workload.name.partition("/")[0], workload.preset.preallocates_gpu_memory
        return replace(
            observation,
            at=at,
            endpoints=with_gpus(observation, exporters, policy, namespace, preallocates=preallocates),
            demand=merge_demand(workload.inbox.read(at, policy.push), seen),
            replicas=replicas,
            queried=queried,
            also_read=(*_also_read("gateway", gateways), *_also_read("dcgm", exporters)),
            applied=workload.applied.read(at),
        )

    async def close(self) -> None:
        """End what goes on between two calls."""
        await self._lookup.close()

    async def _engines(
        self, workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> Observation:
        policy = workload.resolved.policy
        if policy.read_from_prometheus:
            return await self._from_prometheus(workload, session, mono)
        found = await self._lookup.urls(workload)
        config = policy.scrape.model_copy(update={"urls": found.urls})
        pages = scrape(session, config, workload.preset, mono=mono, unix=self._unix)
        pods = found.pods
        if policy.gpu.by_pod:
            endpoints, known = await asyncio.gather(pages, self._lookup.pods(workload))
            pods = {**pods_at(endpoints, pods_by_host(known or ())), **pods}
        else:
            endpoints = await pages
        dropped = sum(read.dropped_series for read in endpoints.values() if isinstance(read, EngineSample))
        return Observation(mono(), endpoints, absent=found.absent, lost=found.lost, pods=pods, dropped_series=dropped)

    async def _from_prometheus(
        self, workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> Observation:
        policy, remembered = workload.resolved.policy, self._memory_of(workload)
        target = policy.target.name
        source = self._source(policy.prometheus.source or "")
        asking = source.round(
            session,
            mono,
            tick_seconds=self._workloads.tick_seconds,
            preset=workload.preset,
            prometheus=policy.prometheus,
            wanted=lambda: self._wanted(source.name, workload),
        )
        said, existing = await asyncio.gather(asking, self._existing(workload)) if target else (await asking, None)
        bound = Bound(source.name, workload.preset, policy.prometheus, policy.scrape.model_name, policy.hold_seconds)
        found = find(said, bound, remembered.replicas, mono(), existing)
        remembered.replicas = found.replicas
        return Observation(
            mono(),
            found.endpoints,
            absent=found.absent,
            lost=found.lost,
            source=f"prometheus {source.name}",
            answered=found.answered,
            interval_seconds=policy.prometheus.scrape_interval_seconds,
            dropped_series=found.dropped_series,
        )

    async def _existing(self, workload: Workload) -> frozenset[str] | None:
        """The names of the pods that the target has; None where that is not known of the pods that are bound: those of
        another namespace, or perhaps another cluster.
        """
        match = workload.resolved.policy.prometheus.match
        if match.get("namespace") != workload.name.partition("/")[0] or "cluster" in match:
            return None
        pods = await self._lookup.pods(workload)
        return None if pods is None else frozenset(pod.name for pod in pods)

    async def _replica_counts(
        self, workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> ReplicaCounts | None:
        """As the cluster tells them, else as kube-state-metrics' series in the workload's Prometheus do."""
        policy = workload.resolved.policy
        counts = await self._lookup.replica_counts(workload)
        if counts is None or counts.asked is not None or not policy.read_from_prometheus:
            return counts
        source = self._source(policy.prometheus.source or "")
        known = self._kube_counts.get(source.name)
        if known is None or known[0] is not source:
            known = self._kube_counts[source.name] = source, KubeCounts(source.name, source.api)
        told = await known[1].counts(
            session,
            mono,
            tick_seconds=self._workloads.tick_seconds,
            namespace=workload.name.partition("/")[0],
            cluster=policy.prometheus.match.get("cluster"),
            target=policy.target,
            namespaces=lambda: frozenset(name.partition("/")[0] for name in self._workloads.names()),
        )
        return told if told.asked is not None else replace(told, reason=f"{counts.reason}; {told.reason}")

    async def _queried(
        self, workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> Mapping[str, Queried]:
        policy = workload.resolved.policy
        if policy.prometheus.source is None or not policy.prometheus.queries:
            return {}
        remembered = self._memory_of(workload)
        answers = await ask_all(
            session,
            self._source(policy.prometheus.source or "").api,
            policy.prometheus,
            remembered.queried,
            policy.hold_seconds,
            mono,
        )
        good = {name: each.signal for name, each in answers.items() if isinstance(each.signal, Known)}
        remembered.queried = {**remembered.queried, **good}
        return answers

    def _memory_of(self, workload: Workload) -> _Remembered:
        """What is remembered of the workload. Of those nobody knows any more nothing is."""
        prometheus = workload.resolved.policy.prometheus
        remembered = self._remembered.get(workload.name)
        if remembered is None or remembered.prometheus != prometheus:
            if len(self._remembered) >= self._forget_at:
                known = {name: each for name, each in self._remembered.items() if self._workloads.get(name)}
                self._remembered, self._forget_at = known, 2 * len(known) + _FORGET_AT
            remembered = self._remembered[workload.name] = _Remembered(prometheus)
        return remembered

    def _source(self, name: str) -> Source:
        """The source of this name, as the policy file declares it now; one that changed begins anew."""
        server = self._workloads.policies.sources[name]
        source = self._sources.get(name)
        if source is None or source.api.server != server:
            source = self._sources[name] = Source(name, Api(server))
        return source

    def _wanted(self, source: str, asking: Workload) -> Wanted:
        """What all workloads of ``source`` want of a round; ``asking`` among them, known or not."""
        known = (self._workloads.get(name) for name in self._workloads.names())
        return want(_reading_from(source, (*(workload for workload in known if workload is not None), asking)))


def _reading_from(source: str, workloads: Iterable[Workload]) -> Iterable[tuple[Preset, Prometheus]]:
    for workload in workloads:
        policy = workload.resolved.policy
        if policy.read_from_prometheus and policy.prometheus.source == source:
            yield workload.preset, policy.prometheus


def _also_read(
    source: str, reads: Mapping[str, GatewaySample | ReadFailure] | Mapping[str, Exporter | ReadFailure]
) -> Iterable[AlsoRead]:
    for endpoint, read in reads.items():
        yield AlsoRead(source, endpoint, read.reason if isinstance(read, ReadFailure) else "", read.seconds)


def source_health(observation: Observation, history: History = _NO_HISTORY) -> tuple[SourceHealth, ...]:
    """How each endpoint, query and page beside the engines' answered, in the words of the exporter and the page.
    ``history`` is the workload's with the observation in it.
    """
    kind, _, name = observation.source.partition(" ")
    health = [
        SourceHealth(
            source=kind,
            endpoint=f"{name}/{endpoint}" if name else endpoint,
            ok=isinstance(read, EngineSample),
            detail="" if isinstance(read, EngineSample) else read.reason,
            seconds=read.seconds,
            no_progress_seconds=history.progress_seconds(endpoint),
        )
        for endpoint, read in observation.endpoints.items()
    ]
    if name:
        health.append(SourceHealth(kind, name, observation.answered, observation.lost or "", 0.0))
    elif observation.lost is not None:
        health.append(SourceHealth(kind, "endpoints", False, observation.lost, 0.0))
    health += [
        SourceHealth("prometheus", f"queries.{signal}", not queried.reason, queried.reason, 0.0)
        for signal, queried in observation.queried.items()
    ]
    health += [
        SourceHealth(each.source, each.endpoint, not each.reason, each.reason, each.seconds)
        for each in observation.also_read
    ]
    return tuple(health)
