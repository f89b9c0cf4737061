"""G5-08: a wall clock that is set while the scaler runs brings neither a burst of ticks nor a pause of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from scaler.policy.layers import PolicyFile
from scaler.serve.loop import Loop
from scaler.serve.store import MemoryStore
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Demand, EngineSample, Observation


async def read(workload: Workload, session: object, mono: object) -> Observation:
    at = workload.inbox._mono()
    return Observation(at, {"e": EngineSample(at, 1.7e9, {"running": 1.0, "waiting": 0.0})}, Demand(at, 0.0, False))


async def ticked(workloads: Workloads, workload: Workload, times: int) -> None:
    for _ in range(times):
        await workloads.wait_change(workload, workload.version, 10.0)


@pytest.mark.parametrize("hours", [-2, 2])
async def test_ticks_come_as_before(hours: int) -> None:
    set_by = timedelta()
    workloads = Workloads(PolicyFile.empty(), tick_seconds=0.2, utc=lambda: datetime.now(UTC) + set_by)
    loop, stopping = Loop(workloads, MemoryStore(), observe=read), asyncio.Event()
    ticking = asyncio.create_task(loop.run(stopping))
    workload = workloads.register("ns/a", {"pushEnabled": "true"})
    await ticked(workloads, workload, 2)
    before = workload.version
    set_by = timedelta(hours=hours)
    began = workloads.mono()
    await ticked(workloads, workload, 5)
    took, made = workloads.mono() - began, workload.version - before
    stopping.set()
    await ticking
    assert made >= 5  # it went on
    assert made <= took / 0.2 + 2  # and at its pace
    assert workload.snapshot is not None
    assert abs(workload.snapshot.decided_at.utc - datetime.now(UTC) - set_by) < timedelta(minutes=1)
