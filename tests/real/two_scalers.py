"""Two scalers in one process around a real Redis, for tests of what they share: each decides what a test says."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from scaler.control.budget import Bill
from scaler.control.model import Memory, Now
from scaler.control.season import Season
from scaler.policy.layers import PolicyFile
from scaler.serve import copies, keeper, lease, redis_link
from scaler.serve.keeper import SharedOwnership
from scaler.serve.ownership import OwnerUnheard
from scaler.serve.redis_link import RedisLink
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import StoredWorkload
from scaler.serve.workloads import Workload, Workloads
from tests.real.redis_server import RedisServer, Wire
from tests.serve.tide import snapshot

PUSHED = {"pushEnabled": "true"}
#: With four weeks of arrivals and a month's spendings: they are to move with the workload.
SEASON = Season("Europe/Berlin", "weekly", 71_017_776, levels="0A.." * 1344, slots_known=1344)
BILL = Bill(datetime(2026, 1, 5, tzinfo=UTC), 321.0, 802.5, "2026-01", 61.0, 7, 36.0)
STORED = StoredWorkload(
    Memory(idle_seconds=7.0, season=SEASON, bill=BILL), None, {}, datetime(2026, 1, 5, tzinfo=UTC), "", 0.0, 3
)


def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told is compared with Redis often, and a start waits for little."""
    monkeypatch.setattr(keeper, "COMPARE_SECONDS", 0.2)
    monkeypatch.setattr(copies, "ASKED_SLACK_SECONDS", 0.1)
    monkeypatch.setattr(keeper, "START_SECONDS", 1.0)


def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease ends and no question is given up while the machine stands still for seconds: a workload that moved then
    would have moved rightly. What becomes of both is in test_redis_silence.py.
    """
    monkeypatch.setattr(lease, "LEASE_SECONDS", 30.0)
    monkeypatch.setattr(redis_link, "ANSWER_SECONDS", 30.0)
    monkeypatch.setattr(copies, "CALL_SECONDS", 30.0)


class Scaler:
    """One scaler without a loop: it decides what a test says."""

    def __init__(
        self,
        redis: RedisServer,
        steady_seconds: float = 600.0,
        wire: Wire | None = None,
        tick_seconds: float = 5.0,
    ) -> None:
        self.workloads = Workloads(PolicyFile.empty(), tick_seconds=tick_seconds)
        self.evaluated: list[str] = []
        link = RedisLink(redis.url if wire is None else f"redis://127.0.0.1:{wire.port}/0")
        self.ownership = SharedOwnership(self.workloads, link, steady_seconds=steady_seconds)
        self.workloads.ownership = self.ownership
        self.workloads.evaluate = self._evaluate

    def _evaluate(self, workload: Workload) -> None:
        self.ownership.notice(workload)
        if self.ownership.owns(workload.name):
            self.evaluated.append(workload.name)

    async def decide(self, name: str, replicas: int, active: bool = True) -> None:
        workload = self.known(name)
        now = Now(self.workloads.utc(), self.workloads.mono())
        made: Snapshot = snapshot(name, decided_at=now)
        targets = replace(made.decision.targets, replicas=replicas, active=active)
        made = replace(made, decision=replace(made.decision, targets=targets))
        await self.ownership.publish(workload, made, lambda: STORED)
        self.workloads.publish(workload, made)

    async def replicas(self, name: str) -> int:
        told = await self.workloads.first_snapshot(self.known(name))
        assert told is not None
        return told.decision.targets.replicas

    def known(self, name: str) -> Workload:
        workload = self.workloads.get(name)
        assert workload is not None
        return workload


@asynccontextmanager
async def running(*scalers: Scaler) -> AsyncIterator[None]:
    try:
        for each in scalers:
            await each.ownership.start()
        yield
    finally:
        for each in scalers:
            await each.ownership.stop()


async def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until ``what`` gives, or what it gives to await gives, something that is true."""
    deadline = time.monotonic() + seconds
    while True:
        found = what()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


async def answered(scaler: Scaler, name: str = "prod/m", seconds: float = 60.0) -> int:
    """The replicas that ``scaler`` asks for, as KEDA gets them, who asks again where it is told UNAVAILABLE."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await scaler.replicas(name)
        except OwnerUnheard:
            assert time.monotonic() < deadline, "there is no answer"
        await asyncio.sleep(0.01)


async def owner_and_other(red: Scaler, green: Scaler) -> tuple[Scaler, Scaler]:
    if red.workloads.get("prod/m") is None:
        red.workloads.register("prod/m", PUSHED)
    await until(lambda: green.workloads.get("prod/m"))
    await until(lambda: red.ownership.owns("prod/m") or green.ownership.owns("prod/m"))
    return (red, green) if red.ownership.owns("prod/m") else (green, red)
