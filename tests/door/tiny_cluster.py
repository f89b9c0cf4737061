"""A cluster of one Deployment with at most one replica: KEDA's stream and polls, and an engine with a cold start.

The engine is the stand-in (:mod:`scaler.lab.standin`), a process that is started ``cold_start_seconds`` after it was
asked for. KEDA's half is :mod:`tests.contract.keda_client`, with its real waits.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import grpc

from tests.contract.keda_client import Operator, scaled_object


class TinyCluster:
    """One workload, "door/chat", scaled between 0 and 1. Times are of ``time.monotonic``."""

    def __init__(self, grpc_address: str, engine_port: int, cold_start_seconds: float) -> None:
        self.engine_url = f"http://127.0.0.1:{engine_port}"
        self._port = engine_port
        self._cold_start_seconds = cold_start_seconds
        self._operator = Operator(grpc_address)
        self._ref = scaled_object("chat", "door")
        self._engine: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self.asked_at: float | None = None
        """When the replica was asked for."""
        self.launched_at: float | None = None
        """When the last one's process was begun."""
        self.ready_at: float | None = None
        self.starts = 0

    @property
    def replicas(self) -> int:
        return 0 if self.asked_at is None else 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold KEDA's stream and poll every second; end with the engine."""
        push = self._operator.push(self._ref)
        tasks = [asyncio.ensure_future(self._on_push(push)), asyncio.ensure_future(self._poll())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await push.stop()
            await self._operator.close()
            await self._scale_to_zero()

    async def until_zero(self, seconds: float = 180.0) -> None:
        """Return once KEDA has taken the workload to zero."""
        async with asyncio.timeout(seconds):
            while self.replicas:  # noqa: ASYNC110  - another task's doing
                await asyncio.sleep(0.05)

    async def _on_push(self, push: object) -> None:
        seen = 0
        while True:
            await push.until(lambda each: len(each.told) > seen, 3600.0)  # type: ignore[attr-defined]  # noqa: B023
            seen = len(push.told)  # type: ignore[attr-defined]
            self.scale_from_zero()  # KEDA ignores a pushed false

    async def _poll(self) -> None:
        """KEDA's poll, with the cooldown of 0 s: inactive takes the workload to zero from any count."""
        while True:
            with suppress(grpc.aio.AioRpcError):  # an error keeps the count
                told = await self._operator.check(self._ref)
                if told.active:
                    self.scale_from_zero()
                elif self.ready_at is not None:
                    await self._scale_to_zero()
            await asyncio.sleep(1.0)

    def scale_from_zero(self) -> None:
        """Ask for the replica, once."""
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            self.starts += 1
            self._starting = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        await asyncio.sleep(self._cold_start_seconds)
        self.launched_at = time.monotonic()
        self._engine = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scaler.lab.standin", "--port", str(self._port), "--max-num-seqs", "16"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"{self.engine_url}/health") as answer:
                        if answer.status == 200:
                            self.ready_at = time.monotonic()
                            return
                await asyncio.sleep(0.02)

    async def _scale_to_zero(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._engine is not None and self._engine.returncode is None:
            self._engine.terminate()
            await self._engine.wait()
        self._engine = self._starting = None
        self.asked_at = self.ready_at = None


async def first_token(session: aiohttp.ClientSession, url: str, *, prompt: str = "hello", tokens: int = 8) -> float:
    """When the first token of a streamed completion came. The whole answer must be there and whole."""
    body = {"prompt": prompt, "max_tokens": tokens, "stream": True}
    async with session.post(f"{url}/v1/completions", json=body, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        assert answer.status == 200, await answer.text()
        first = await answer.content.readline()
        at = time.monotonic()
        rest = await answer.content.read()
    assert first.startswith(b"data: ")
    assert rest.rstrip().endswith(b"data: [DONE]")
    return at
