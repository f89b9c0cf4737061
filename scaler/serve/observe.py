"""One workload's sources read once: the observation a tick is made of."""

from __future__ import annotations

import time
from collections.abc import Callable

import aiohttp

from scaler.serve.snapshot import SourceHealth
from scaler.serve.workloads import Workload
from scaler.signals.observation import EngineSample, Observation
from scaler.signals.scrape import scrape


async def observe(workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]) -> Observation:
    """Read every source of the workload, within the sources' own time limits. A bad source is part of the answer."""
    policy = workload.resolved.policy
    endpoints = await scrape(session, policy.scrape, workload.preset, mono=mono, unix=time.time)
    at = mono()
    return Observation(at, endpoints, workload.inbox.read(at, policy.push))


def source_health(observation: Observation) -> tuple[SourceHealth, ...]:
    """How each endpoint answered, in the words of the exporter and the page."""
    return tuple(
        SourceHealth(
            source="scrape",
            endpoint=endpoint,
            ok=isinstance(sample, EngineSample),
            detail="" if isinstance(sample, EngineSample) else sample.reason,
            seconds=sample.seconds,
        )
        for endpoint, sample in observation.endpoints.items()
    )
