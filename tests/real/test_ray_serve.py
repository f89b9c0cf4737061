"""A real Ray Serve follows the batch through ``reconfigure``: nothing restarted, nothing else changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from scaler.consume.engine import EngineError
from scaler.consume.engine_http import EngineHttp
from scaler.consume.link import EngineLink
from scaler.consume.ray_serve import RayServe
from tests.real import ray_cluster

pytestmark = pytest.mark.real
OWN_BATCH = 48


@pytest.fixture(scope="module")
def cluster(ray_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ray_cluster.Cluster]:
    with ray_cluster.serve(ray_environment, tmp_path_factory.mktemp("ray"), OWN_BATCH) as running:
        yield running


def asking(session: aiohttp.ClientSession, cluster: ray_cluster.Cluster) -> EngineHttp:
    return EngineHttp(session, cluster.dashboard, timeout_seconds=60.0)


def replicas(cluster: ray_cluster.Cluster) -> list[str]:
    return [each["replica_id"] for each in cluster.applications()["chat"]["deployments"]["Model"]["replicas"]]


def config(cluster: ray_cluster.Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.applications()["chat"]["deployed_app_config"]
    return found


async def largest_batch(session: aiohttp.ClientSession, url: str, requests: int = 150) -> int:
    """The most requests that were put together, of many sent at once; every one must be answered."""

    async def one() -> int:
        async with session.get(url) as answer:
            assert answer.status == 200
            return int(await answer.text())

    return max(await asyncio.gather(*[one() for _ in range(requests)]))


async def full_batches(session: aiohttp.ClientSession, url: str, batch: int) -> None:
    """Never more than ``batch``, and as many as that: at once, unless who asks stood still between two requests."""
    for _ in range(5):
        largest = await largest_batch(session, url)
        assert largest <= batch
        if largest == batch:
            return
    pytest.fail(f"no batch of {batch}, the largest had {largest}")


async def test_the_batch_follows_and_no_replica_restarts(cluster: ray_cluster.Cluster) -> None:
    before, whole = replicas(cluster), config(cluster)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        engine = RayServe(
            asking(session, cluster),
            "chat",
            "Model",
            own_batch=OWN_BATCH,
            api_key=cluster.token,
        )
        link = EngineLink(engine, mono=asyncio.get_running_loop().time)
        for wanted, batch in ((8, 8), (32, 32), (1000, OWN_BATCH), (4, 4), (None, OWN_BATCH)):
            followed = await link.follow(wanted)
            assert (followed.size, followed.trouble) == (batch, "")
            await full_batches(session, cluster.url, batch)
    assert replicas(cluster) == before
    assert config(cluster) == whole, "declared again as it was, the secret of its environment too"


async def test_a_name_that_is_not_there_is_told_with_those_that_are(cluster: ray_cluster.Cluster) -> None:
    async with aiohttp.ClientSession() as session:
        http = asking(session, cluster)
        with pytest.raises(EngineError, match="there are: chat"):
            await RayServe(http, "caht", "Model", own_batch=OWN_BATCH, api_key=cluster.token).read()


async def test_without_its_token_the_dashboard_tells_nothing(cluster: ray_cluster.Cluster) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(EngineError, match=r"HTTP 401 .*--engine-key-file"):
            await RayServe(asking(session, cluster), "chat", "Model", own_batch=OWN_BATCH).read()
