"""GPU telemetry of all workloads: each DCGM exporter is read once a tick, and every replica gets what its GPUs say.

Telemetry is never required. What cannot be told whose it is, or is missing a part, is attached to nobody: the signals
are then unknown, and nothing waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp

from scaler.policy.gpu import Gpu
from scaler.policy.model import Policy
from scaler.serve.gateways import SHARED_SHARE
from scaler.signals.dcgm import DcgmGpu, PodName, held_by, matching
from scaler.signals.gpu import attach_gpu
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.scrape import Exporter, scrape_dcgm

#: Exporter's URL → what it said.
Exporters: TypeAlias = Mapping[str, Exporter | ReadFailure]


@dataclass(slots=True)
class _Shared:
    begun: float
    read: asyncio.Future[Exporter | ReadFailure]


class GpuTelemetry:
    """Reads DCGM exporters. Many workloads name the same ones: one read serves all of them for a tick.

    ``tick_seconds`` is how often each workload asks; ``mono`` and ``unix`` are the clocks, in seconds.
    """

    def __init__(self, tick_seconds: float, mono: Callable[[], float], unix: Callable[[], float]) -> None:
        self._shared_seconds = SHARED_SHARE * tick_seconds
        self._mono = mono
        self._unix = unix
        self._reads: dict[str, _Shared] = {}

    async def read(self, config: Gpu, session: aiohttp.ClientSession) -> Exporters:
        """What every exporter of ``config`` said, in their order. Never raises for a bad exporter."""
        reads = (self._one(url, config.timeout_seconds, session) for url in config.dcgm_urls)
        return dict(zip(config.dcgm_urls, await asyncio.gather(*reads), strict=True))

    async def _one(self, url: str, timeout_seconds: float, session: aiohttp.ClientSession) -> Exporter | ReadFailure:
        now = self._mono()
        shared = self._reads.get(url)
        if shared is None or now - shared.begun >= self._shared_seconds or shared.read.cancelled():
            self._reads = {name: each for name, each in self._reads.items() if now - each.begun < self._shared_seconds}
            read = scrape_dcgm(session, url, timeout_seconds, mono=self._mono, unix=self._unix)
            shared = self._reads[url] = _Shared(now, asyncio.ensure_future(read))
        # Shielded: a workload that is not waited for any longer must not take the read from the others.
        return await asyncio.shield(shared.read)


Endpoints: TypeAlias = Mapping[str, EngineSample | ReadFailure]


def with_gpus(
    endpoints: Endpoints, exporters: Exporters, policy: Policy, source: str, *, preallocates: bool
) -> Endpoints:
    """``endpoints`` with the readings of the GPUs under each replica.

    ``source`` is what they were read from, as in :class:`~scaler.signals.observation.Observation`: it says how their
    names tell pods. With ``gpu.match`` all matching GPUs together are every replica's; if any exporter failed some of
    them may be missing, and none is attached. Without it a replica's are those that its pod holds: they are all on one
    node, behind one exporter.
    """
    if not exporters:
        return endpoints
    gpus = [gpu for read in exporters.values() if isinstance(read, Exporter) for gpu in read.gpus]
    if policy.gpu.match:
        if any(isinstance(read, ReadFailure) for read in exporters.values()):
            return endpoints
        readings = matching(gpus, policy.gpu.match)
        wanted = ", ".join(f'{label}="{value}"' for label, value in policy.gpu.match.items())
        return {
            endpoint: read
            if isinstance(read, ReadFailure)
            else attach_gpu(read, readings, preallocates=preallocates)
            if readings
            else _told(read, f"gpu: no DCGM series with {wanted}")
            for endpoint, read in endpoints.items()
        }
    return {
        endpoint: read
        if isinstance(read, ReadFailure)
        else _of_its_pod(read, pod_of(endpoint, source, policy), gpus, preallocates=preallocates)
        for endpoint, read in endpoints.items()
    }


_POD_NOT_TOLD: Final = "gpu: which pod a replica is cannot be told from its address; declare gpu.match"


def _of_its_pod(sample: EngineSample, pod: PodName | None, gpus: list[DcgmGpu], *, preallocates: bool) -> EngineSample:
    if pod is None:
        return _told(sample, _POD_NOT_TOLD)
    return attach_gpu(sample, held_by(gpus, [pod]), preallocates=preallocates)


def _told(sample: EngineSample, warning: str) -> EngineSample:
    return replace(sample, warnings=(*sample.warnings, warning))


def pod_of(endpoint: str, source: str, policy: Policy) -> PodName | None:
    """The pod that an endpoint is; None where its name does not tell.

    Read from a Prometheus it is named by its pod. An address tells it where it is a pod's own name in a headless
    Service (``llama-0.llama.chat.svc``, as a StatefulSet gives them).
    """
    if source.startswith("prometheus"):
        *where, pod = endpoint.split("/")
        return PodName(policy.prometheus.match.get("namespace") or (where[-1] if where else ""), pod)
    host = (urlsplit(endpoint).hostname or "").split(".")
    return PodName(host[2], host[0]) if len(host) > 3 and host[3] == "svc" else None
