"""GPU telemetry of all workloads: each DCGM exporter, or the Prometheus that scrapes them, is read once a tick.

Telemetry is never required. What cannot be read, or is missing a part, is attached to nobody: the signals are then
unknown, and nothing waits for them. :mod:`scaler.serve.gpu_attribution` says whose a GPU is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

import aiohttp
import structlog

from scaler.policy.model import Policy
from scaler.serve.gateways import SHARED_SHARE
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.gpu import new_xids
from scaler.signals.observation import ReadFailure
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.gpus import NAMESPACE_LABELS, GpuSeries, Namespaces, together
from scaler.signals.scrape import Exporter, scrape_dcgm

log = structlog.get_logger(__name__)

#: Exporter's URL, or source's name → what it said.
Exporters: TypeAlias = Mapping[str, Exporter | ReadFailure]


@dataclass(slots=True)
class _Shared:
    begun: float
    read: asyncio.Future[Exporter | ReadFailure]


class GpuTelemetry:
    """Reads GPU telemetry for ``workloads``. Many name the same exporters: one read serves all of them for a tick.

    ``unix`` gives Unix seconds; ``api`` the client of a source by its name.
    """

    def __init__(self, workloads: Workloads, unix: Callable[[], float], api: Callable[[str], Api]) -> None:
        self._workloads = workloads
        self._unix = unix
        self._api = api
        self._reads: dict[str, _Shared] = {}
        self._series: dict[str, GpuSeries] = {}
        self._seen: dict[tuple[str, str | None], DcgmGpus] = {}

    async def read(self, workload: Workload, session: aiohttp.ClientSession) -> Exporters:
        """What every exporter of ``workload`` said, in their order. Never raises for a bad exporter or server."""
        config = workload.resolved.policy.gpu
        if config.source is not None:
            return {config.source: await self._in_prometheus(config.source, workload, session)}
        reads = (self._one(url, config.timeout_seconds, session) for url in config.dcgm_urls)
        found = dict(zip(config.dcgm_urls, await asyncio.gather(*reads), strict=True))
        for url, read in found.items():
            self._tell_errors((url, None), read)
        return found

    async def _one(self, url: str, timeout_seconds: float, session: aiohttp.ClientSession) -> Exporter | ReadFailure:
        now, shared_seconds = self._workloads.mono(), SHARED_SHARE * self._workloads.tick_seconds
        shared = self._reads.get(url)
        if shared is None or now - shared.begun >= shared_seconds or shared.read.cancelled():
            self._reads = {name: each for name, each in self._reads.items() if now - each.begun < shared_seconds}
            read = scrape_dcgm(session, url, timeout_seconds, mono=self._workloads.mono, unix=self._unix)
            shared = self._reads[url] = _Shared(now, asyncio.ensure_future(read))
        # Shielded: a workload that is not waited for any longer must not take the read from the others.
        return await asyncio.shield(shared.read)

    async def _in_prometheus(
        self, source: str, workload: Workload, session: aiohttp.ClientSession
    ) -> Exporter | ReadFailure:
        api, series = self._api(source), self._series.get(source)
        if series is None or series.api is not api:
            series = self._series[source] = GpuSeries(source, api)
        policy = workload.resolved.policy
        cluster = policy.gpu.match.get("cluster") or policy.prometheus.match.get("cluster")
        read = await series.read(
            session,
            self._workloads.mono,
            tick_seconds=self._workloads.tick_seconds,
            scrape_interval_seconds=policy.gpu.scrape_interval_seconds,
            cluster=cluster,
            namespaces=_namespaces(workload),
            wanted=lambda: together(map(_namespaces, self._reading_from(source))),
        )
        self._tell_errors((source, cluster), read)
        return read

    def _reading_from(self, source: str) -> Iterable[Workload]:
        known = (self._workloads.get(name) for name in self._workloads.names())
        return (each for each in known if each is not None and each.resolved.policy.gpu.source == source)

    def _tell_errors(self, place: tuple[str, str | None], read: Exporter | ReadFailure) -> None:
        """One line for each error of a GPU (XID) that is new since the last read of the same place."""
        if isinstance(read, ReadFailure) or (before := self._seen.get(place)) is read.gpus:
            return
        self._seen[place] = read.gpus
        errors = new_xids((gpu.reading for gpu in before or ()), (gpu.reading for gpu in read.gpus))
        for (uuid, instance), xid in errors.items():
            log.warning("a GPU reports an error", source=place[0], uuid=uuid, gpu_instance=instance, xid=xid)


def _namespaces(workload: Workload) -> Namespaces:
    """In which namespaces the pods are that hold the workload's GPUs; None: that is not known before they are seen."""
    policy = workload.resolved.policy
    if policy.gpu.match:
        named = {value for label, value in policy.gpu.match.items() if label in NAMESPACE_LABELS}
        return frozenset(named) or None
    if policy.read_from_prometheus:
        bound = policy.prometheus.match.get("namespace")
        return None if bound is None else frozenset({bound})
    return frozenset({workload.name.partition("/")[0], *_named_in_addresses(policy)})


def _named_in_addresses(policy: Policy) -> Iterable[str]:
    """The namespaces in addresses of pods, ``llama-0.llama.chat.svc``."""
    hosts = (urlsplit(url if "://" in url else f"//{url}").hostname or "" for url in policy.scrape.urls)
    return (parts[2] for host in hosts if len(parts := host.split(".")) > 3 and parts[3] == "svc")
