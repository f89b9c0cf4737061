"""Where the replicas are, from the policy to the fold: what one workload's answers were stays with that workload."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import aiohttp
from aiohttp import web

from scaler.policy.layers import PolicyFile
from scaler.serve.lookup import Lookup
from scaler.serve.observe import Observer, source_health
from scaler.serve.workloads import Workloads
from scaler.signals.api_server import ApiError, ApiServer
from scaler.signals.discovery import Urls
from scaler.signals.dns import Resolver
from scaler.signals.kubernetes import Cluster
from scaler.signals.observation import EngineSample
from tests.signals.api_server_double import (
    PODS,
    SLICES,
    ClusterDouble,
    api_server,
    client_of,
    endpoint,
    endpoint_slice,
    pod,
    scale,
)

PAGE = Path(__file__).parents[1] / "signals" / "bodies" / "vllm-0.32-load.txt"
OWN = {"scrapeDns": "vllm.chat.svc:8000"}


def known(**metadata: dict[str, str]) -> Workloads:
    """Workloads of the namespace chat by name."""
    workloads = Workloads(PolicyFile.empty(), tick_seconds=5.0)
    for name, each in metadata.items():
        workloads.register(f"chat/{name}", each)
    return workloads


def looking_up(workloads: Workloads, names: Callable[[str], Iterable[str]]) -> Lookup:
    async def nowhere() -> ApiServer:
        raise ApiError("there is no cluster")

    return Lookup(workloads, names=Resolver(names), cluster=lambda mono: Cluster(mono, connect=nowhere))


async def asked(lookup: Lookup, workloads: Workloads, name: str = "chat/a") -> Urls:
    workload = workloads.get(name)
    assert workload is not None
    return await lookup.urls(workload)


async def test_what_a_name_answered_before_is_kept_for_each_workload() -> None:
    zone: dict[str, list[str]] = {"vllm.chat.svc": ["10.0.0.7"]}

    def names(name: str) -> list[str]:
        if not zone.get(name):
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return zone[name]

    workloads = known(a=OWN, b={"scrapeDns": "other.chat.svc:8000"})
    lookup = looking_up(workloads, names)

    assert await asked(lookup, workloads) == Urls(("http://10.0.0.7:8000/metrics",))
    zone.clear()
    assert (await asked(lookup, workloads)).lost is not None
    assert (await asked(lookup, workloads)).absent == "no replica: the name resolves to nothing"
    assert (await asked(lookup, workloads, "chat/b")).absent is None
    await lookup.close()


async def test_without_a_declared_service_or_target_no_cluster_is_looked_for() -> None:
    workloads = known(a=OWN)
    searched = []

    async def search() -> ApiServer:
        searched.append(1)
        raise ApiError("there is no cluster")

    lookup = Lookup(
        workloads, names=Resolver(lambda _: ["10.0.0.7"]), cluster=lambda mono: Cluster(mono, connect=search)
    )
    workload = workloads.get("chat/a")
    assert workload is not None
    assert (await asked(lookup, workloads)).urls == ("http://10.0.0.7:8000/metrics",)
    assert await lookup.replica_counts(workload) is None
    assert searched == []
    await lookup.close()


async def test_a_service_and_a_target_are_those_of_the_workloads_namespace() -> None:
    double = ClusterDouble(scales={"vllm": scale(2)})
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.7", "vllm-a")))
    double.put(PODS, pod("vllm-a"), pod("vllm-b", ready=False))
    workloads = known(a={"scrapeEndpointSlice": "vllm:http", "targetKind": "Deployment", "targetName": "vllm"})
    workload = workloads.get("chat/a")
    assert workload is not None
    async with api_server(double) as port:

        async def to_server() -> ApiServer:
            return client_of(port)

        lookup = Lookup(workloads, cluster=lambda mono: Cluster(mono, connect=to_server))
        url = "http://10.0.0.7:8000/metrics"
        assert await asked(lookup, workloads) == Urls((url,), pods={url: "vllm-a"})
        counts = await lookup.replica_counts(workload)
        assert counts is not None
        assert (counts.asked, counts.ready, counts.pending, counts.unschedulable) == (2, 1, 1, 0)
        await lookup.close()


async def test_an_observer_reads_what_a_name_resolves_to_and_says_what_could_not_be_looked_up(tmp_path: Path) -> None:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=PAGE.read_text())

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"workloads:\n  chat/a: {{scrape: {{dns: 'localhost:{port}'}}}}\n"
        f"  chat/b: {{scrape: {{dns: '{'x' * 70}.svc:8000'}}}}\n"
    )
    workloads = Workloads(PolicyFile.load(policy), tick_seconds=5.0)
    a, b = workloads.get("chat/a"), workloads.get("chat/b")
    assert a is not None
    assert b is not None
    observer = Observer(workloads)
    async with aiohttp.ClientSession() as session:
        read = await observer(a, session, time.monotonic)
        lost = await observer(b, session, time.monotonic)
    await observer.close()
    await runner.cleanup()

    assert list(read.endpoints) == [f"http://127.0.0.1:{port}/metrics"]
    assert all(isinstance(each, EngineSample) for each in read.endpoints.values())
    assert (read.absent, read.lost, read.replicas) == (None, None, None)
    assert lost.endpoints == {}
    assert lost.lost is not None
    assert [(each.endpoint, each.ok, each.detail) for each in source_health(lost)] == [("endpoints", False, lost.lost)]
