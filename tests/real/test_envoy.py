"""A real Envoy, configured by our own example, lets exactly the published batch through, live and without a failure."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from scaler.consume.engine import EngineBatch
from scaler.consume.engine_http import EngineHttp
from scaler.consume.envoy import Envoy
from scaler.consume.link import EngineLink
from tests.deploy.test_examples import one
from tests.patience import comes_to
from tests.ports import free_port
from tests.real import envoy_server

pytestmark = pytest.mark.real
CLIENTS = 100
#: How long one request takes in the stand-in for an engine.
ANSWER_SECONDS = 0.1


class Backend:
    """An engine that only counts: how many requests it has at once, and the most of late."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def answer(self, _request: web.Request) -> web.Response:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(ANSWER_SECONDS)
        finally:
            self.now -= 1
        return web.Response(text="tide")

    def look_again(self) -> None:
        self.most = self.now

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not done():  # noqa: ASYNC110  - the requests are the clients' doing
                await asyncio.sleep(ANSWER_SECONDS / 4)


@asynccontextmanager
async def backend() -> AsyncIterator[tuple[Backend, int]]:
    counted = Backend()
    app = web.Application()
    app.router.add_post("/generate", counted.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
    try:
        yield counted, runner.addresses[0][1]
    finally:
        await runner.cleanup()


def configuration(engine_port: int) -> dict[str, Any]:
    """That of deploy/examples/tgi-envoy.yaml, on ports that are free here."""
    told: dict[str, Any] = yaml.safe_load(one("tgi-envoy.yaml", "ConfigMap")["data"]["envoy.yaml"])
    told["admin"]["address"]["socket_address"]["port_value"] = free_port()
    (listener,) = told["static_resources"]["listeners"]
    listener["address"]["socket_address"].update(address="127.0.0.1", port_value=free_port())
    (cluster,) = told["static_resources"]["clusters"]
    (endpoints,) = cluster["load_assignment"]["endpoints"]
    endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["port_value"] = engine_port
    return told


async def test_the_limit_follows_and_no_request_fails(envoy: str, tmp_path: Path) -> None:
    """64 → 8 → 32 → 1 → its own, under 100 clients that ask again and again: never one request more than the limit once
    those above it have finished, always as many as it lets through, the others wait, and all are answered.
    """
    answers: Counter[int] = Counter()
    async with backend() as (engine, port), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        with envoy_server.serve(envoy, tmp_path, configuration(port), "--concurrency", "1") as server:
            stopping = asyncio.Event()

            async def client() -> None:
                while not stopping.is_set():
                    async with session.post(f"{server.url}/generate", data=b"{}") as answer:
                        await answer.read()
                        answers[answer.status] += 1

            clients = [asyncio.ensure_future(client()) for _ in range(CLIENTS)]
            link = EngineLink(
                Envoy(EngineHttp(session, server.admin, timeout_seconds=30.0), "engine", own_batch=64),
                mono=asyncio.get_running_loop().time,
            )
            for wanted, limit in ((64, 64), (8, 8), (32, 32), (1, 1), (None, 64)):
                followed = await link.follow(wanted)
                assert (followed.size, followed.trouble) == (limit, "")
                # Those let through before finish; some may be on their way yet.
                await comes_to(lambda limit=limit: let_through(session, server.admin, limit))
                await engine.until(lambda limit=limit: engine.now <= limit)
                engine.look_again()
                await asyncio.sleep(8 * ANSWER_SECONDS)
                await engine.until(lambda limit=limit: engine.most >= limit)
                assert engine.most == limit
            await link.follow(8)
            await engine.until(lambda: engine.now == 8)
            await comes_to(lambda: all_others_wait(session, server.admin))
            await engine.until(lambda: answers[200] > 500)
            stopping.set()
            await asyncio.gather(*clients)
    assert set(answers) == {200}


async def let_through(session: aiohttp.ClientSession, admin: str, limit: int) -> EngineBatch:
    """What Envoy says of itself, once no more than ``limit`` are at the engine."""
    seen = await Envoy(EngineHttp(session, admin, timeout_seconds=30.0), "engine").read()
    assert seen.running is not None
    assert seen.running <= limit
    return seen


async def all_others_wait(session: aiohttp.ClientSession, admin: str) -> None:
    seen = await let_through(session, admin, 8)
    assert (seen.size, seen.follows_own) == (8, False)
    assert seen.waiting is not None
    assert CLIENTS / 2 < seen.waiting <= CLIENTS - 8, "all others but those between two requests"


async def test_a_text_is_taken_and_changes_nothing(envoy: str, tmp_path: Path) -> None:
    """Why what is applied is read back and never believed."""
    async with backend() as (_, port), aiohttp.ClientSession() as session:
        with envoy_server.serve(envoy, tmp_path, configuration(port), "--concurrency", "1") as server:
            key = "circuit_breakers.engine.default.max_connections"
            async with session.post(f"{server.admin}/runtime_modify?{key}=many") as answer:
                assert answer.status == 200
            told = await Envoy(EngineHttp(session, server.admin, timeout_seconds=30.0), "engine").read()
            assert (told.size, told.follows_own) == (64, False)
            await Envoy(EngineHttp(session, server.admin, timeout_seconds=30.0), "engine").restore()
            assert (await Envoy(EngineHttp(session, server.admin, timeout_seconds=30.0), "engine").read()).follows_own
