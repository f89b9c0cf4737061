"""From the first request at zero replicas to its first token, through two doors. ``make bench NAME=door``.

A real scaler at its default tick, KEDA's stream and polls replayed, and the stand-in engine as a process that is
started ``COLD_START_SECONDS`` after it was asked for. No cluster runs: what a cluster adds (scheduling, pulling an
image, kube-proxy) is part of a real cold start. The doors: a small proxy that tells loadtide of what it holds at once,
as a gateway can that calls us, and a real Envoy as in deploy/examples/envoy-door.yaml, whose statistics loadtide reads
once a tick.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.agent.running_agent import free_port
from tests.door.envoy_door import declared, door_configuration
from tests.door.holding_proxy import HoldingProxy
from tests.door.tiny_cluster import TinyCluster, first_token
from tests.real import envoy_server
from tests.running_scaler import running_scaler

ROUNDS = 5
COLD_START_SECONDS = 5.0
TICK_SECONDS = 5.0
TOKEN = "tide"


@dataclass(frozen=True)
class Wake:
    """One wake, seconds since the request was sent: the replica asked for, it ready, the first token."""

    asked: float
    ready: float
    first_token: float

    @property
    def added(self) -> float:
        """What is not the engine's own start."""
        return self.first_token - (self.ready - self.asked)


@asynccontextmanager
async def proxy(folder: Path, engine_port: int) -> AsyncIterator[tuple[TinyCluster, aiohttp.ClientSession, str]]:
    """A door that tells of demand at once."""
    policy = declared(engine_port, "http://127.0.0.1:1/").splitlines()
    start = next(number for number, line in enumerate(policy) if "gateway:" in line)
    policy[start : start + 4] = ["    push: {enabled: true}"]
    async with scaled(folder, engine_port, "\n".join(policy)) as (cluster, session, http):
        demand = f"http://{http}/v1/workloads/door/chat/demand"
        async with HoldingProxy(session, cluster.engine_url, demand, TOKEN).serving() as url:
            yield cluster, session, url


@asynccontextmanager
async def envoy(folder: Path, engine_port: int) -> AsyncIterator[tuple[TinyCluster, aiohttp.ClientSession, str]]:
    """A door whose statistics are read."""
    configuration = door_configuration(engine_port)
    with envoy_server.serve(envoy_server.binary(), folder, configuration, "--concurrency", "1") as door:
        async with scaled(folder, engine_port, declared(engine_port, door.statistics)) as (cluster, session, _):
            yield cluster, session, door.url


@asynccontextmanager
async def scaled(
    folder: Path, engine_port: int, policy: str
) -> AsyncIterator[tuple[TinyCluster, aiohttp.ClientSession, str]]:
    (folder / "policy.yaml").write_text(policy)
    arguments = ("--policy", str(folder / "policy.yaml"), "--store", "memory", "--tick-seconds", str(TICK_SECONDS))
    with running_scaler(folder, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler:
        cluster = TinyCluster(scaler.grpc, engine_port, COLD_START_SECONDS)
        async with cluster.running(), aiohttp.ClientSession() as session:
            cluster.scale_from_zero()
            yield cluster, session, scaler.http


async def measure(door: str) -> list[Wake]:
    """The wakes through one door."""
    wakes = []
    with tempfile.TemporaryDirectory() as folder:
        opened = proxy if door == "proxy" else envoy
        async with opened(Path(folder), free_port()) as (cluster, session, url):
            for number in range(ROUNDS):
                await cluster.until_zero(120.0)
                # At another moment between two ticks each time: a wake must not fall beside one by chance.
                await asyncio.sleep(2 * TICK_SECONDS + number * TICK_SECONDS / ROUNDS)
                began = time.monotonic()
                token = await first_token(session, url)
                assert cluster.asked_at is not None
                assert cluster.ready_at is not None
                wakes.append(Wake(cluster.asked_at - began, cluster.ready_at - began, token - began))
    return wakes


def main() -> None:
    """Measure both doors; the result line has the medians."""
    results = []
    for door in ("proxy", "envoy"):
        try:
            wakes = asyncio.run(measure(door))
        except envoy_server.Unavailable as reason:
            print(f"{door}: not measured: {reason}")  # noqa: T201
            continue
        for wake in wakes:
            print(  # noqa: T201
                f"{door}: asked for after {wake.asked:.3f} s, ready after {wake.ready:.2f} s, "
                f"first token after {wake.first_token:.2f} s"
            )
        asked, added = [wake.asked for wake in wakes], [wake.added for wake in wakes]
        results += [
            f"{door}_asked_seconds_median={statistics.median(asked):.3f}",
            f"{door}_asked_seconds_max={max(asked):.3f}",
            f"{door}_added_seconds_median={statistics.median(added):.2f}",
            f"{door}_first_token_to_start_ratio="
            f"{statistics.median([wake.first_token / (wake.ready - wake.asked) for wake in wakes]):.2f}",
        ]
    print(f"{ROUNDS} wakes each, cold start {COLD_START_SECONDS:g} s, tick {TICK_SECONDS:g} s")  # noqa: T201
    print("result: " + " ".join(results))  # noqa: T201


if __name__ == "__main__":
    main()
