"""A wake acts at once: also while an engine that should be read does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from structlog.testing import capture_logs

from scaler.control import activity
from scaler.control.model import Code, Decision
from scaler.policy.layers import PolicyFile
from scaler.serve.loop import Loop
from scaler.serve.store import MemoryStore, Store
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Demand, EngineSample, Observation

METADATA = {"pushEnabled": "true", "replicasMax": "9", "idleTimeoutSeconds": "0.1"}


class Engine:
    """An idle replica, or none where not ``up``; a read takes until ``answers`` is set."""

    def __init__(self) -> None:
        self.up = True
        self.answers = asyncio.Event()
        self.answers.set()
        self.reads = 0

    async def __call__(
        self, workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> Observation:
        self.reads += 1
        await self.answers.wait()
        at = mono()
        pushed = workload.inbox.read(at, workload.resolved.policy.push)
        demand = pushed or Demand(at, 0.0, False)
        if not self.up:
            return Observation(at, {}, demand, absent="asked for 0 replicas")
        sample = EngineSample(at, 1.7e9, {"running": 0.0, "waiting": 0.0}, {"finished": {"": 100.0}})
        return Observation(at, {"engine": sample}, demand)


class Scaler:
    def __init__(self, store: Store | None = None) -> None:
        self.workloads = Workloads(PolicyFile.empty(), tick_seconds=0.1)
        self.engine = Engine()
        self.stopping = asyncio.Event()
        self.store = store or MemoryStore()
        self.loop = Loop(self.workloads, self.store, observe=self.engine)
        self.loop.restore()
        self.task = asyncio.create_task(self.loop.run(self.stopping))

    async def idle(self, **metadata: str) -> Workload:
        """A workload that has come to rest at zero."""
        workload = self.workloads.register("ns/a", METADATA | metadata)
        async with asyncio.timeout(60):
            while workload.snapshot is None or workload.snapshot.decision.targets.active:
                await self.workloads.wait_change(workload, workload.version, 1.0)
        self.engine.up = False
        await asyncio.sleep(0.25)
        return workload


@pytest.fixture
async def scaler() -> AsyncIterator[Scaler]:
    made = Scaler()
    yield made
    made.stopping.set()
    await made.task


async def becomes(scaler: Scaler, workload: Workload, active: bool) -> Decision:
    """The decision with which the workload becomes so."""
    async with asyncio.timeout(60):
        while workload.snapshot is None or workload.snapshot.decision.targets.active is not active:
            await scaler.workloads.wait_change(workload, workload.version, 1.0)
    return workload.snapshot.decision


async def woken(scaler: Scaler, workload: Workload, seconds: float) -> bool:
    """Whether the next decision, made within ``seconds``, wants the workload."""
    await scaler.workloads.wait_change(workload, workload.version, seconds)
    return workload.snapshot is not None and workload.snapshot.decision.targets.active


async def test_a_wake_does_not_wait_for_the_next_tick_nor_for_a_source(scaler: Scaler) -> None:
    workload = await scaler.idle()
    scaler.engine.answers.clear()
    await asyncio.sleep(0.25)  # a read is under way and hangs
    reads = scaler.engine.reads
    workload.inbox.wake()
    scaler.workloads.evaluate_soon(workload)
    assert await woken(scaler, workload, 60.0)
    assert scaler.engine.reads == reads  # the one that hangs is the last
    scaler.engine.answers.set()
    await asyncio.sleep(0.3)
    assert workload.snapshot is not None
    assert workload.snapshot.decision.targets.active  # the reading that was under way knows of it too


async def test_pending_demand_wakes_as_a_wake_does(scaler: Scaler) -> None:
    workload = await scaler.idle()
    scaler.engine.answers.clear()
    await asyncio.sleep(0.25)
    reads = scaler.engine.reads
    workload.inbox.report(2.0)
    scaler.workloads.evaluate_soon(workload)
    assert await woken(scaler, workload, 60.0)
    assert scaler.engine.reads == reads


async def test_a_report_of_nothing_is_left_to_the_next_reading(scaler: Scaler) -> None:
    """Pushed news only ever raises: a zero from one gateway must not be judged before the others are read."""
    workload = await scaler.idle()
    scaler.engine.answers.clear()
    await asyncio.sleep(0.25)
    version, reads = workload.version, scaler.engine.reads
    workload.inbox.report(0.0)
    scaler.workloads.evaluate_soon(workload)
    await asyncio.sleep(0.2)
    assert workload.version == version
    assert scaler.engine.reads == reads  # one reading at a time


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt after a failed load comes at once."""
    monkeypatch.setattr(activity, "WAKE_BACKOFF_SECONDS", 0.3)


@pytest.mark.usefixtures("soon_again")
async def test_a_wake_whose_load_fails_is_tried_again_until_a_replica_is_ready(scaler: Scaler) -> None:
    workload = await scaler.idle(replicasLoadTimeoutSeconds="0.5")
    await scaler.workloads.tell(workload, None)
    for _ in range(2):  # nobody calls a second time
        await becomes(scaler, workload, active=True)
        failed = await becomes(scaler, workload, active=False)
        assert Code.LOAD_FAILED in {reason.code for reason in failed.reasons}
    await becomes(scaler, workload, active=True)
    scaler.engine.up = True
    loaded = await becomes(scaler, workload, active=False)  # served, and idle again
    while Code.LOAD_FAILED in {reason.code for reason in loaded.reasons}:  # its time was over before it was looked at
        await becomes(scaler, workload, active=True)
        loaded = await becomes(scaler, workload, active=False)
    assert Code.IDLE_PROVEN in {reason.code for reason in loaded.reasons}
    assert workload.inbox.wake_age_seconds() is None


@pytest.mark.usefixtures("soon_again")
async def test_a_wake_is_given_up_when_its_time_is_over_and_that_is_said(scaler: Scaler) -> None:
    with capture_logs() as lines:
        workload = await scaler.idle(replicasLoadTimeoutSeconds="0.5", pushWakeTtlSeconds="0.8")
        await scaler.workloads.tell(workload, None)
        await becomes(scaler, workload, active=True)
        await becomes(scaler, workload, active=False)
        await asyncio.sleep(1.5)
    assert workload.snapshot is not None
    assert not workload.snapshot.decision.targets.active
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "wake given up, no replica got ready in its time"
    ]


async def test_a_wake_survives_a_restart(scaler: Scaler) -> None:
    workload = await scaler.idle(pushWakeTtlSeconds="600")
    await scaler.workloads.tell(workload, None)
    async with asyncio.timeout(60):
        while scaler.store.load()["ns/a"].wake_age_seconds is None:  # noqa: ASYNC110 -- a store rings no bell
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    after_a_kill = Scaler(scaler.store)
    again, before = after_a_kill.workloads.get("ns/a"), workload.inbox.wake_age_seconds()
    assert again is not None
    assert before is not None
    age = again.inbox.wake_age_seconds()
    assert age is not None
    assert abs(age - before) < 0.9  # both count from the call
    after_a_kill.stopping.set()
    await after_a_kill.task
