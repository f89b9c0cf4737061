"""Workloads nobody asks for: when they go, what keeps them, and what comes back with who asks again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from scaler.control.model import Memory
from scaler.policy.layers import PolicyFile
from scaler.serve.dormant import KEEP_SECONDS, MOST, Dormant
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.loop import Loop
from scaler.serve.store import MemoryStore, SqliteStore, Store, StoredWorkload
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Demand, EngineSample, Observation

TICK = 0.05
FORGET = 1.2
METADATA = {"replicasMax": "9", "pushEnabled": "true", "idleTimeoutSeconds": "600"}


async def quiet(workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]) -> Observation:
    """An engine that has been up for long and has nothing to do."""
    at = mono()
    sample = EngineSample(at, 1.7e9, {"running": 0.0, "waiting": 0.0}, {"finished": {"": 100.0}})
    return Observation(at, {"engine": sample}, Demand(at, 0.0, False))


@dataclass
class Scaler:
    """Registry and loop over one store; ``utc`` may be moved."""

    workloads: Workloads
    loop: Loop
    shift: timedelta = timedelta()

    def series(self, name: str) -> bool:
        """Whether ``/metrics`` says anything of the workload."""
        registry = CollectorRegistry()
        registry.register(WorkloadCollector(self.workloads))
        return f'workload="{name}"' in generate_latest(registry).decode()

    async def unasked(self, name: str, seconds: float = 60.0) -> None:
        """Wait until the workload is forgotten."""
        async with asyncio.timeout(seconds):
            while self.workloads.get(name) is not None:  # noqa: ASYNC110  nothing announces it
                await asyncio.sleep(TICK)


@asynccontextmanager
async def running(store: Store, policies: PolicyFile | None = None) -> AsyncIterator[Scaler]:
    """A loop that restores from ``store`` and ticks until the end of the block."""
    workloads = Workloads(policies or PolicyFile.empty(), tick_seconds=TICK)
    loop = Loop(workloads, store, observe=quiet, forget_after_seconds=FORGET)
    loop.restore()
    stopping = asyncio.Event()
    task = asyncio.create_task(loop.run(stopping))
    try:
        yield Scaler(workloads, loop)
    finally:
        stopping.set()
        await task


def policy_file(folder: Path, text: str) -> PolicyFile:
    (folder / "policy.yaml").write_text(text)
    return PolicyFile.load(folder / "policy.yaml")


async def test_one_that_nobody_asks_for_goes_with_its_series_and_the_polled_one_stays() -> None:
    async with running(MemoryStore()) as scaler:
        scaler.workloads.register("ns/a", METADATA)
        scaler.workloads.register("ns/b", METADATA)
        async with asyncio.timeout(60):
            while not (scaler.series("a") and scaler.series("b")):  # noqa: ASYNC110  nothing announces it
                await asyncio.sleep(TICK)
            while scaler.workloads.get("ns/b") is not None:
                scaler.workloads.register("ns/a", METADATA)
                await asyncio.sleep(TICK)
        for _ in range(int(FORGET / TICK)):
            scaler.workloads.register("ns/a", METADATA)
            await asyncio.sleep(TICK)
        assert scaler.workloads.names() == ["ns/a"]
        assert not scaler.series("b")
        assert scaler.series("a")


async def test_what_it_remembered_comes_back_with_who_asks_again() -> None:
    """Paused and resumed: the batch, the generation, the idle timer and the time away are as after a restart."""
    async with running(MemoryStore()) as scaler:
        workload = scaler.workloads.register("ns/a", METADATA)
        async with asyncio.timeout(60):
            while not workload.memory.idle_seconds:
                await scaler.workloads.wait_change(workload, workload.version, 1.0)
        before, generation = workload.memory, workload.generation
        await scaler.unasked("ns/a")
        await asyncio.sleep(FORGET)
        again = scaler.workloads.register("ns/a", METADATA)
        assert again is not workload
        assert again.memory.targets == before.targets
        assert again.generation == generation
        assert again.snapshot is None
        async with asyncio.timeout(60):
            while again.memory.idle_seconds < 1.8 * FORGET:  # nothing moved meanwhile: the time away was idle
                await scaler.workloads.wait_change(again, again.version, 1.0)
        assert again.version <= 10, "it was idle for as long only after it came back"


async def test_a_consumer_of_its_target_keeps_it_and_a_pushing_gateway_does_not() -> None:
    async with running(MemoryStore()) as scaler:
        followed, pushed = (scaler.workloads.register(f"ns/{name}", METADATA) for name in ("followed", "pushed"))
        async with asyncio.timeout(60):
            while scaler.workloads.get("ns/pushed") is not None:
                scaler.workloads.asked(followed)
                pushed.inbox.report(1.0)
                await asyncio.sleep(TICK)
        assert scaler.workloads.names() == ["ns/followed"]


async def test_the_policy_file_s_own_are_never_forgotten(tmp_path: Path) -> None:
    policies = policy_file(tmp_path, "workloads:\n  ns/declared: {replicas: {max: 3}}\n")
    async with running(MemoryStore(), policies) as scaler:
        scaler.workloads.register("ns/called", METADATA)
        scaler.workloads.register("ns/declared", METADATA)
        await scaler.unasked("ns/called")
        await asyncio.sleep(FORGET)
        assert scaler.workloads.names() == ["ns/declared"]
        assert scaler.series("declared")


async def test_one_taken_out_of_the_file_and_put_back_remembers(tmp_path: Path) -> None:
    text = "workloads:\n  ns/declared: {replicas: {max: 3}, push: {enabled: true}}\n"
    store = MemoryStore()
    async with running(store, policy_file(tmp_path, text)) as scaler:
        declared = scaler.workloads.get("ns/declared")
        assert declared is not None
        await scaler.workloads.wait_change(declared, 1, 60.0)
        scaler.workloads.replace_policies(policy_file(tmp_path, "workloads: {}\n"))
        assert scaler.workloads.names() == []
        async with asyncio.timeout(60):
            while "ns/declared" not in store.load():  # noqa: ASYNC110  a store rings no bell
                await asyncio.sleep(TICK)


def test_time_in_which_nobody_could_ask_does_not_count() -> None:
    """A process that was frozen for an hour forgets nobody when it thaws."""
    now = [1000.0]
    workloads = Workloads(PolicyFile.empty(), tick_seconds=5.0, mono=lambda: now[0])
    workloads.register("ns/a", METADATA)
    for _ in range(119):
        now[0] += 5.0
        assert workloads.forget_unasked(600.0) == []
    now[0] += 3600.0
    assert workloads.forget_unasked(600.0) == []
    now[0] += 5.0
    assert workloads.forget_unasked(600.0) == []
    now[0] += 5.0
    assert [workload.name for workload in workloads.forget_unasked(600.0)] == ["ns/a"]


async def test_a_restart_brings_back_at_once_only_what_was_still_asked_for(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "memory.db")
    async with running(store) as scaler:
        old = scaler.workloads.register("ns/old", METADATA)
        await scaler.workloads.wait_change(old, 3, 60.0)
        targets = old.memory.targets
        await scaler.unasked("ns/old")
        await asyncio.sleep(FORGET)
        young = scaler.workloads.register("ns/young", METADATA)
        await scaler.workloads.wait_change(young, 3, 60.0)
    async with running(store) as scaler:
        assert scaler.workloads.names() == ["ns/young"]
        assert scaler.workloads.register("ns/old", METADATA).memory.targets == targets
    store.close()


class TestDormant:
    @pytest.fixture
    def stored(self) -> StoredWorkload:
        return StoredWorkload(Memory(), None, {}, datetime(2026, 1, 1, tzinfo=UTC), "boot", 0.0, 1)

    def test_a_week_is_kept_and_no_more(self, stored: StoredWorkload) -> None:
        away = {0.0: KEEP_SECONDS, 1.0: KEEP_SECONDS + 1}
        dormant = Dormant(lambda item: away[item.boot_mono])
        dormant.put("kept", stored)
        dormant.put("old", replace(stored, boot_mono=1.0))
        assert dormant.take("old") is None
        dormant.put("old", replace(stored, boot_mono=1.0))
        assert dormant.drop_old() == ["old"]
        assert dormant.take("kept") is stored
        assert dormant.take("kept") is None

    def test_names_that_somebody_makes_up_push_out_the_oldest(self, stored: StoredWorkload) -> None:
        dormant = Dormant(lambda item: 0.0)
        for number in range(MOST + 2):
            dormant.put(f"ns/{number}", stored)
        assert dormant.drop_old() == ["ns/0", "ns/1"]
        assert dormant.take("ns/0") is None
        assert dormant.take("ns/2") is stored

    async def test_the_store_is_rid_of_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scaler.serve.dormant.KEEP_SECONDS", 3.0)
        monkeypatch.setattr("scaler.serve.loop.PURGE_SECONDS", 0.1)
        store = MemoryStore()
        async with running(store) as scaler:
            scaler.workloads.register("ns/a", METADATA)
            await scaler.unasked("ns/a")
            assert "ns/a" in store.load()
            async with asyncio.timeout(60):
                while "ns/a" in store.load():  # noqa: ASYNC110
                    await asyncio.sleep(TICK)
