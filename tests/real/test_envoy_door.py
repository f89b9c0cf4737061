"""A real Envoy, configured by our own example, holds requests while there is no replica and loses none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.door.envoy_door import declared, door_configuration
from tests.door.tiny_cluster import TinyCluster, first_token
from tests.ports import free_port
from tests.real import envoy_server
from tests.running_scaler import running_scaler

pytestmark = pytest.mark.real
COLD_START_SECONDS = 3.0
#: About 100 kB of prompt each: a held request is kept whole.
LONG = "tide " * 20_000


async def test_every_held_request_is_answered_once(envoy: str, tmp_path: Path) -> None:
    engine_port = free_port()
    configuration = door_configuration(engine_port)
    with envoy_server.serve(envoy, tmp_path, configuration, "--concurrency", "1") as door:
        (tmp_path / "policy.yaml").write_text(declared(engine_port, door.statistics))
        arguments = ("--policy", str(tmp_path / "policy.yaml"), "--store", "memory", "--tick-seconds", "1")
        with running_scaler(tmp_path, *arguments) as scaler:
            cluster = TinyCluster(scaler.grpc, engine_port, COLD_START_SECONDS)
            async with cluster.running(), aiohttp.ClientSession() as session:
                cluster.scale_from_zero()
                await cluster.until_zero()
                starts = cluster.starts
                asked = [asyncio.ensure_future(first_token(session, door.url, prompt=LONG)) for _ in range(8)]
                async with asyncio.timeout(180):
                    answered = await asyncio.gather(*asked)
                assert cluster.starts == starts + 1
                assert cluster.launched_at is not None
                assert min(answered) > cluster.launched_at
                page = await _text(session, f"{cluster.engine_url}/metrics")
        finished = next(line for line in page.splitlines() if "request_success_total" in line and '"length"' in line)
        assert float(finished.rpartition(" ")[2]) == 8.0, "each of them once"
        woken = [line for line in scaler.lines("adjusted") if line["changes"].get("active") == [False, True]]
        assert len(woken) == 1
        assert 1 <= woken[0]["signals"]["pending"] <= 8, "as many as are held, not as often as they were tried"


async def test_a_check_of_the_door_wakes_nobody_and_keeps_nobody_awake(envoy: str, tmp_path: Path) -> None:
    """G2-08: a load balancer and a monitor ask for ever."""
    engine_port = free_port()
    with envoy_server.serve(envoy, tmp_path, door_configuration(engine_port), "--concurrency", "1") as door:
        (tmp_path / "policy.yaml").write_text(declared(engine_port, door.statistics))
        arguments = ("--policy", str(tmp_path / "policy.yaml"), "--store", "memory", "--tick-seconds", "1")
        with running_scaler(tmp_path, *arguments) as scaler:
            cluster = TinyCluster(scaler.grpc, engine_port, COLD_START_SECONDS)
            async with cluster.running(), aiohttp.ClientSession() as session:

                async def check() -> None:
                    while True:
                        await _text(session, door.health)
                        await asyncio.sleep(0.2)

                checking = asyncio.ensure_future(check())
                cluster.scale_from_zero()
                await cluster.until_zero()
                await asyncio.sleep(3.0)
                assert cluster.starts == 1
                assert not checking.done()
                checking.cancel()


async def _text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as answer:
        assert answer.status == 200
        return await answer.text()
