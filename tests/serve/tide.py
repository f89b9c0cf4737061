"""Snapshots and a registry of workloads built by hand, for tests of what is told to the world."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.cold_start import ColdStarts
from scaler.control.model import (
    Cause,
    Code,
    Decision,
    LoadState,
    Memory,
    Now,
    Override,
    Reason,
    Suppressed,
    Target,
    Targets,
)
from scaler.policy.layers import Resolved
from scaler.policy.model import Objectives, Policy, Push, ReplicaRange, Scrape
from scaler.serve.applied import AppliedReports
from scaler.serve.inbox import DemandInbox
from scaler.serve.ownership import Told, is_demand, put
from scaler.serve.snapshot import Adjustment, Snapshot, SourceHealth
from scaler.serve.timeline import Timeline
from scaler.signals.activity import Activity
from scaler.signals.model import Applied, Interval, Known, Latency, NotApplicable, Signals, Stale, Unknown

START = datetime(2025, 3, 3, 9, 0, tzinfo=UTC)

POLICY = Policy(
    scrape=Scrape(urls=("http://vllm:8000/metrics",)),
    push=Push(enabled=True),
    objectives=Objectives(ttft_seconds=1.0, ttft_critical_seconds=5.0, tpot_seconds=0.05),
    replicas=ReplicaRange(max=4),
)


def latency(low: float, high: float, samples: float = 120.0) -> Latency:
    """A latency whose P95 lies in ``low..high``."""
    return Latency(Interval(low / 4, low / 2), Interval(low, high), Interval(low, high), (low + low / 2) / 2, samples)


SIGNALS = Signals(
    arrivals_per_second=Known(3.0, 98.0),
    running=Known(24.0, 98.0),
    waiting=Stale(7.0, 60.0, at_least=2.0),
    pending=Known(0.0, 98.0),
    ready_replicas=Known(1.0, 98.0),
    ttft_seconds=Known(latency(2.5, 5.0), 98.0),
    tpot_seconds=Known(latency(0.04, float("inf")), 98.0),
    kv_use_ratio=Known(0.97, 98.0),
    gpu_busy_ratio=Unknown("no source gives this signal"),
    e2e_seconds=NotApplicable("no requests in the window"),
    applied=(Applied("chat-0", 3.0, 32, 2048, "open", 24, 7), Applied("chat-1", 8.0, 64, 4096, "open", 0, None)),
)


def snapshot(name: str = "team-a/chat", **changes: Any) -> Snapshot:
    """A busy workload at mono 100. ``changes`` go to the snapshot, or to its decision where they are its fields."""
    decision = Decision(
        targets=Targets(replicas=2, active=True, batch=32, token_budget=None),
        available=True,
        state=LoadState.CRITICAL,
        cause=Cause.MEMORY,
        reasons=(
            Reason(Code.MEMORY_PRESSURE, Target.BATCH, "kv_use_ratio", 0.97, 0.95),
            Reason(Code.ARRIVALS, Target.REPLICAS, "arrivals_per_second", 3.0, 1.6),
        ),
        suppressed=(Suppressed(Code.CEILING, Target.REPLICAS, 6.0, 4.0, "ceiling", 4.0),),
        floor=0,
        ceiling=4,
        need=2,
        ready=1,
        utilisation=1.875,
        capacity=CapacityEstimate(32.0, 1.6, "prior", 20.0, 50.0, 9),
        verdicts={"ttft": "breached", "ttft_critical": "met", "tpot": "undecided"},
        next_memory=Memory(state_seconds=12.0, idle_seconds=0.0, cold_starts=ColdStarts(warm=(60.0,) * 5)),
        cold_start_seconds=60.0,
    )
    of_decision = {key: changes.pop(key) for key in list(changes) if key in Decision.__dataclass_fields__}
    decision = replace(decision, **of_decision)
    whole = Snapshot(
        workload=name,
        policy=POLICY,
        signals=SIGNALS,
        decision=decision,
        decided_at=Now(START, 100.0),
        generation=7,
        valid_until=START + timedelta(seconds=60),
        health=(SourceHealth("scrape", "http://vllm:8000/metrics", True, "", 0.004, 30.0),),
        warnings=(),
        tick_seconds=0.006,
        activity=Activity("finished", 97.0, "http://vllm:8000/metrics", 'finished_reason="stop"'),
    )
    return replace(whole, **changes)


def adjusted(snap: Snapshot, minute: int = 0) -> Adjustment:
    """A log line of a halved batch."""
    return Adjustment(
        START + timedelta(minutes=minute),
        snap.workload,
        (("batch", 64, 32),),
        snap.decision,
        (("kv_use_ratio", "known", 0.97), ("waiting", "stale", 7.0), ("gpu_busy_ratio", "unknown", None)),
    )


@dataclass(slots=True)
class FakeWorkload:
    """A workload as a reader sees it."""

    name: str
    resolved: Resolved
    inbox: DemandInbox
    applied: AppliedReports
    snapshot: Snapshot | None = None
    owner: str | None = None
    guarded_mono: float | None = None
    version: int = 0
    adjustments: deque[Adjustment] = field(default_factory=deque)
    decisions_total: dict[tuple[str, str, str], int] = field(default_factory=dict)
    dropped_series_total: int = 0
    timeline: Timeline = field(default_factory=Timeline)


class FakeWorkloads:
    """A registry whose clock, snapshots and readiness a test moves."""

    def __init__(self) -> None:
        self.ready = True
        self.tick_seconds = 5.0
        self.seconds = 101.0
        self.current = True
        self.evaluated: list[str] = []
        self.asked_for: list[str] = []
        self.overrides: list[tuple[str, Override | None]] = []
        self._workloads: dict[str, FakeWorkload] = {}
        self._changed = asyncio.Condition()

    def add(self, name: str, snap: Snapshot | None = None, policy: Policy = POLICY) -> FakeWorkload:
        inbox, applied = DemandInbox(policy.push, self.mono), AppliedReports(self.mono)
        workload = FakeWorkload(name, Resolved(policy, ()), inbox, applied, snap)
        self._workloads[name] = workload
        return workload

    def remove(self, name: str) -> None:
        del self._workloads[name]

    async def publish(self, workload: FakeWorkload, snap: Snapshot) -> None:
        """What the loop does at the end of a tick."""
        workload.snapshot = snap
        workload.version += 1
        async with self._changed:
            self._changed.notify_all()

    def names(self) -> list[str]:
        return list(self._workloads)

    def get(self, name: str) -> FakeWorkload | None:
        return self._workloads.get(name)

    def asked(self, workload: FakeWorkload) -> None:
        self.asked_for.append(workload.name)

    async def tell(self, workload: FakeWorkload, told: Told) -> None:
        put(workload, told)
        if is_demand(told):
            self.evaluated.append(workload.name)

    async def set_override(self, workload: FakeWorkload, override: Override | None) -> None:
        self.overrides.append((workload.name, override))

    async def wait_change(self, workload: FakeWorkload, version: int, timeout: float) -> None:
        async with self._changed:
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait_for(lambda: workload.version > version)
            except TimeoutError:
                return

    def evaluate_soon(self, workload: FakeWorkload) -> None:
        self.evaluated.append(workload.name)

    def is_current(self, snap: Snapshot) -> bool:
        return self.current

    def mono(self) -> float:
        return self.seconds

    def utc(self) -> datetime:
        return START
