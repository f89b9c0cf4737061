"""The guard's loop over real pages and an NVML of the test's own: what an engine that does not preallocate needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import aiohttp
from aiohttp import web

from scaler.agent.engine_watch import EngineWatch
from scaler.agent.gpu_watch import GpuWatch
from scaler.agent.guard_loop import GuardLoop
from scaler.policy.model import Policy
from scaler.signals.model import Known, NotApplicable, known_value
from scaler.signals.nvml import LocalGpus
from tests.signals.fake_nvml import GIB, FakeNvml, whole

BODIES = Path(__file__).parents[1] / "signals" / "bodies"


def card(free_gib: float) -> SimpleNamespace:
    """Memory of an 80 GiB card."""
    return SimpleNamespace(total=80 * GIB, used=(79 - free_gib) * GIB, free=free_gib * GIB, reserved=GIB)


class Beside:
    """An engine's page and a GPU; ``clock`` is the monotonic time."""

    def __init__(self, engine: str) -> None:
        self.body = (BODIES / f"{engine}.txt").read_text(encoding="utf-8")
        self.gpu = whole(0, memory_v2=card(30))
        self.gpus = GpuWatch(LocalGpus(load=lambda: FakeNvml(self.gpu), mono=lambda: self.clock))
        self.policy = Policy.model_validate({"engine": engine})
        self.clock = 1000.0
        self.down = False
        self.changes = 0

    @asynccontextmanager
    async def guarded(self, in_force: int | None) -> AsyncIterator[GuardLoop]:
        async def page(_request: web.Request) -> web.Response:
            return web.Response(status=503) if self.down else web.Response(text=self.body)

        app = web.Application()
        app.router.add_get("/metrics", page)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
        try:
            async with aiohttp.ClientSession() as session:
                watch = EngineWatch(
                    session, url, self.policy, mono=lambda: self.clock, gpus=self.gpus.engines_own, unix=lambda: 2e9
                )

                def changed() -> None:
                    self.changes += 1

                yield GuardLoop(watch, self.policy, mono=lambda: self.clock, in_force=lambda: in_force, changed=changed)
        finally:
            await runner.cleanup()

    async def second(self, loop: GuardLoop) -> None:
        self.clock += 1
        await self.gpus.look()
        await loop.look()


async def test_a_card_that_fills_up_halves_a_tritons_batch_and_holds_its_reloads() -> None:
    beside = Beside("triton")
    async with beside.guarded(in_force=16) as loop:
        for _ in range(3):
            await beside.second(loop)
        free = known_value(loop.engine.signals.gpu_memory_free_ratio)
        assert free is not None
        assert 0.37 < free < 0.38
        assert isinstance(loop.engine.signals.kv_use_ratio, NotApplicable)
        assert loop.guard.limit is None
        beside.gpu.memory_v2 = card(5)
        await beside.second(loop)
        assert loop.guard.pressed
        assert loop.guard.limit is not None
        assert loop.guard.limit <= 8
        assert (loop.lowered, beside.changes) == (1, 1)


async def test_a_full_card_of_an_engine_that_preallocates_says_nothing() -> None:
    """A flat 92 % of VRAM in use is how such an engine looks when it is idle."""
    beside = Beside("sglang")
    beside.gpu.memory_v2 = card(2)
    async with beside.guarded(in_force=16) as loop:
        for _ in range(5):
            await beside.second(loop)
        assert isinstance(loop.engine.signals.gpu_memory_free_ratio, NotApplicable)
        assert isinstance(loop.engine.signals.kv_use_ratio, Known)
        assert (loop.guard.limit, loop.guard.pressed) == (None, False)


async def test_an_engine_that_cannot_be_read_is_told_once_and_moves_nothing() -> None:
    beside = Beside("triton")
    async with beside.guarded(in_force=16) as loop:
        beside.down = True
        beside.gpu.memory_v2 = card(1)
        for _ in range(5):
            await beside.second(loop)
        assert loop.engine.trouble == "HTTP 503"
        assert (loop.guard.limit, loop.engine.running) == (None, None)
