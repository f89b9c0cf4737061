"""Requests that come while there is no replica: held at a door, woken for, answered, and none lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.door.holding_proxy import HoldingProxy
from tests.door.tiny_cluster import TinyCluster, first_token
from tests.ports import free_port
from tests.running_scaler import RunningScaler, running_scaler

TOKEN = "tide"
COLD_START_SECONDS = 2.0


def declared(engine_port: int) -> str:
    return f"""\
workloads:
  door/chat:
    scrape: {{urls: ["http://127.0.0.1:{engine_port}/metrics"]}}
    push: {{enabled: true}}
    replicas: {{min: 0, max: 1, cold_start_seconds: {COLD_START_SECONDS}}}
    window_seconds: 10
    idle: {{timeout_seconds: 4}}
    batch: {{max: 16}}
"""


@asynccontextmanager
async def asleep(folder: Path) -> AsyncIterator[tuple[RunningScaler, TinyCluster, str, aiohttp.ClientSession]]:
    """A workload that has come to rest at zero behind a holding proxy; gives the proxy's URL."""
    port = free_port()
    (folder / "policy.yaml").write_text(declared(port))
    arguments = ("--policy", str(folder / "policy.yaml"), "--store", "memory", "--tick-seconds", "0.5")
    with running_scaler(folder, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler:
        cluster = TinyCluster(scaler.grpc, port, COLD_START_SECONDS)
        async with cluster.running(), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            demand = f"http://{scaler.http}/v1/workloads/door/chat/demand"
            proxy = HoldingProxy(session, cluster.engine_url, demand, TOKEN)
            async with proxy.serving() as url:
                cluster.scale_from_zero()  # it has to have been there once: nothing is known of one that never was
                await cluster.until_zero()
                yield scaler, cluster, url, session


async def test_every_request_held_at_zero_is_answered_by_the_one_replica_it_woke(tmp_path: Path) -> None:
    async with asleep(tmp_path) as (scaler, cluster, url, session):
        assert cluster.replicas == 0
        starts = cluster.starts
        asked = [asyncio.ensure_future(first_token(session, url)) for _ in range(12)]
        async with asyncio.timeout(60):
            answered = await asyncio.gather(*asked)
        assert cluster.starts == starts + 1, "twelve who wait are one wake"
        assert cluster.launched_at is not None
        assert min(answered) > cluster.launched_at
        woken = [line for line in scaler.lines("adjusted") if line["changes"].get("active") == [False, True]]
        assert len(woken) == 1


async def test_what_is_held_while_the_scaler_is_away_is_held_and_told_when_it_is_back() -> None:
    port, told = free_port(), []
    here = web.Application()

    async def take(request: web.Request) -> web.Response:
        told.append((await request.json())["pending"])
        return web.Response(status=202 if len(told) > 1 else 503)

    async def ready(_request: web.Request) -> web.Response:
        return web.Response(status=200 if len(told) > 2 else 503)  # it loads only once it was asked for

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="data: a token\n\ndata: [DONE]\n\n")

    here.add_routes([web.post("/demand", take), web.get("/health", ready), web.post("/v1/completions", answer)])
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}"
        async with HoldingProxy(session, url, f"{url}/demand", TOKEN).serving() as door:
            asked = asyncio.ensure_future(first_token(session, door))
            await asyncio.sleep(1.5)  # nobody is there, neither engine nor scaler
            assert not asked.done()
            runner = web.AppRunner(here)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            async with asyncio.timeout(60):
                await asked
            await runner.cleanup()
    assert told[:3] == [1, 1, 1]


async def test_one_whose_client_gave_up_while_it_loads_is_not_taken_back_to_zero(tmp_path: Path) -> None:
    """A replica that is loading looks idle; taken to zero then, it would be woken for ever (field case G2-05)."""
    async with asleep(tmp_path) as (_, cluster, url, session):
        impatient = asyncio.ensure_future(first_token(session, url))
        async with asyncio.timeout(60):
            while not cluster.replicas:  # noqa: ASYNC110  - another task's doing
                await asyncio.sleep(0.02)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        async with asyncio.timeout(60):
            while cluster.ready_at is None:
                assert cluster.replicas == 1, "taken to zero while it loads"
                await asyncio.sleep(0.02)
        await cluster.until_zero()
