"""The observer: which source each workload is read from, and what workloads share."""

from __future__ import annotations

import asyncio
import time

import aiohttp
from aiohttp import web

from scaler.policy.layers import PolicyFile
from scaler.serve.lookup import Lookup
from scaler.serve.observe import Observer, source_health
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.api_server import ApiServer
from scaler.signals.kubernetes import Cluster
from scaler.signals.model import Known, Unknown
from scaler.signals.observation import EngineSample, Observation, Queried, ReadFailure
from tests.serve.test_gpu_wiring import Page, served
from tests.signals.api_server_double import PODS, ClusterDouble, api_server, client_of, pod, scale
from tests.signals.fake_prometheus import FakePrometheus, Series, replica, serving
from tests.signals.timeline import Timeline, down
from tests.signals.timeline import pod as pod_page


def declared(url: str, workloads: str, timeout_seconds: float = 30.0) -> Workloads:
    sources = f"sources: {{main: {{url: '{url}', timeout_seconds: {timeout_seconds}}}}}\nworkloads:\n"
    return Workloads(PolicyFile.parse("p.yaml", sources + workloads), tick_seconds=5.0)


def known(workloads: Workloads, name: str) -> Workload:
    workload = workloads.get(name)
    assert workload is not None
    return workload


async def observed(workloads: Workloads, *names: str, observer: Observer | None = None) -> list[Observation]:
    observer = observer or Observer(workloads)
    async with aiohttp.ClientSession() as session:
        reads = [observer(known(workloads, name), session, time.monotonic) for name in names]
        return list(await asyncio.gather(*reads))


def bound(model: str) -> str:
    return f"{{prometheus: {{source: main, match: {{namespace: chat, model_name: {model}}}}}}}"


async def test_all_workloads_of_a_prometheus_share_one_round() -> None:
    async with serving(FakePrometheus()) as fake:
        fake.series = [each for i in range(30) for each in replica(f"pod-{i}", model=f"m{i}", running=i)]
        workloads = declared(fake.url, "".join(f"  chat/w{i}: {bound(f'm{i}')}\n" for i in range(30)))
        observations = await observed(workloads, *workloads.names())
        assert len(fake.queries) == 12
    running = {}
    for name, observation in zip(workloads.names(), observations, strict=True):
        ((endpoint, read),) = observation.endpoints.items()
        assert isinstance(read, EngineSample)
        running[name] = (endpoint, read.gauges["running"])
        assert (observation.source, observation.interval_seconds) == ("prometheus main", 15.0)
    assert running == {f"chat/w{i}": (f"pod-{i}", float(i)) for i in range(30)}


async def test_a_hanging_prometheus_delays_its_own_workloads_only() -> None:
    async def hang() -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async with serving(FakePrometheus(respond=lambda query: hang())) as fake:
        workloads = declared(fake.url, f"  chat/a: {bound('m')}\n  chat/b: {{}}\n", timeout_seconds=1.0)
        observer = Observer(workloads)
        async with aiohttp.ClientSession() as session:
            slow = asyncio.create_task(observer(known(workloads, "chat/a"), session, time.monotonic))
            await observer(known(workloads, "chat/b"), session, time.monotonic)
            assert not slow.done()
            observation = await slow
    assert observation.lost == "source main: timed out after 1 s"


async def test_what_was_found_is_waited_for_when_prometheus_fails() -> None:
    async with serving(FakePrometheus()) as fake:
        fake.series = replica("a", running=3)
        workloads = declared(fake.url, f"  chat/a: {bound('m')}\n")
        workloads.tick_seconds = 0.0
        observer = Observer(workloads)
        (before,) = await observed(workloads, "chat/a", observer=observer)
        assert before.lost is None
        fake.respond = lambda query: web.Response(status=503)
        after = before
        async with asyncio.timeout(60):
            while after.lost is None:  # a round rests three times as long as it took
                await asyncio.sleep(0.1)
                (after,) = await observed(workloads, "chat/a", observer=observer)
    assert after.lost == "source main: HTTP 503"
    assert isinstance(after.endpoints["a"], ReadFailure)
    assert [(each.source, each.endpoint, each.ok, each.detail) for each in source_health(after)] == [
        ("prometheus", "main/a", False, "source main: HTTP 503"),
        ("prometheus", "main", False, "source main: HTTP 503"),
    ]


async def test_a_prometheus_without_the_workloads_series_is_in_good_health() -> None:
    async with serving(FakePrometheus()) as fake:
        fake.series = replica("a", model="other", running=3)
        (observation,) = await observed(declared(fake.url, f"  chat/a: {bound('m')}\n"), "chat/a")
    ((name, ok, detail),) = [(each.endpoint, each.ok, each.detail) for each in source_health(observation)]
    assert (name, ok) == ("main", True)
    assert 'no series with namespace="chat", model_name="m"' in detail


async def test_a_scraped_workload_is_not_read_from_prometheus_too() -> None:
    async with serving(FakePrometheus()) as fake:
        scraped = "{scrape: {urls: ['http://127.0.0.1:9/metrics']}, prometheus: {source: main, match: {a: b}}}"
        (observation,) = await observed(declared(fake.url, f"  chat/a: {scraped}\n"), "chat/a")
        assert fake.queries == []
    assert list(observation.endpoints) == ["http://127.0.0.1:9/metrics"]
    assert observation.source == "scrape"


async def test_queries_of_the_operators_own_go_with_any_source() -> None:
    async with serving(FakePrometheus()) as fake:
        fake.respond = lambda query: web.json_response(
            {"status": "success", "data": {"resultType": "scalar", "result": [0, "4"]}}
        )
        body = "{prometheus: {source: main, queries: {waiting: '4', running: vector(1)}}}"
        (observation,) = await observed(declared(fake.url, f"  chat/a: {body}\n"), "chat/a")
        assert sorted(fake.queries) == ["4", "vector(1)"]
    assert {name: type(each.signal) for name, each in observation.queried.items()} == {
        "waiting": Known,
        "running": Known,
    }


async def test_a_source_that_is_declared_otherwise_begins_anew() -> None:
    async with serving(FakePrometheus()) as first, serving(FakePrometheus()) as second:
        first.series, second.series = replica("a", running=1), replica("b", running=1)
        workloads = declared(first.url, f"  chat/a: {bound('m')}\n")
        observer = Observer(workloads)
        (one,) = await observed(workloads, "chat/a", observer=observer)
        workloads.replace_policies(declared(second.url, f"  chat/a: {bound('m')}\n").policies)
        (two,) = await observed(workloads, "chat/a", observer=observer)
    assert (list(one.endpoints), list(two.endpoints)) == (["a"], ["b"])


def test_health_tells_queries_beside_endpoints() -> None:
    queried = {"waiting": Queried(Known(1.0, 0.0)), "running": Queried(Unknown("HTTP 503"), "HTTP 503")}
    health = source_health(Observation(0.0, {}, queried=queried))
    assert [(each.source, each.endpoint, each.ok, each.detail) for each in health] == [
        ("prometheus", "queries.waiting", True, ""),
        ("prometheus", "queries.running", False, "HTTP 503"),
    ]


async def test_g2_07_ghosts_among_the_series_are_dropped_and_counted() -> None:
    """Too old by its own time, or no pod that the target has; each read counts what it drops."""
    double = ClusterDouble(scales={"llama": scale(1, "app=vllm")})
    double.put(PODS, pod("a"))
    async with serving(FakePrometheus()) as fake, api_server(double) as port:

        async def to_server() -> ApiServer:
            return client_of(port)

        fake.series = [*replica("a", running=1), *replica("fresh", running=2), *replica("old", running=3, age=95)]
        body = "{prometheus: {source: main, match: {namespace: chat, model_name: m}}, target: {name: llama}}"
        workloads = declared(fake.url, f"  chat/a: {body}\n  chat/untold: {bound('m')}\n")
        observer = Observer(workloads)
        observer._lookup = Lookup(workloads, cluster=lambda mono: Cluster(mono, connect=to_server))
        told, untold = await observed(workloads, "chat/a", "chat/untold", observer=observer)
        await observer.close()
    assert (sorted(told.endpoints), told.dropped_series) == (["a"], 2)
    assert (sorted(untold.endpoints), untold.dropped_series) == (["a", "fresh"], 1)


async def test_only_pods_of_the_bound_namespace_and_of_no_named_cluster_are_compared() -> None:
    double = ClusterDouble(scales={"llama": scale(1, "app=vllm")})
    double.put(PODS, pod("a"))
    async with serving(FakePrometheus()) as fake, api_server(double) as port:

        async def to_server() -> ApiServer:
            return client_of(port)

        fake.series = [
            Series(each.name, {**each.labels, **where}, each.value)
            for where in ({"namespace": "chat", "cluster": "west"}, {"namespace": "other"})
            for each in (*replica("a", running=1), *replica("b", running=2))
        ]
        bodies = {
            name: f"{{prometheus: {{source: main, match: {{{match}, model_name: m}}}}, target: {{name: llama}}}}"
            for name, match in (("west", "namespace: chat, cluster: west"), ("else", "namespace: other"))
        }
        workloads = declared(fake.url, "".join(f"  chat/{name}: {body}\n" for name, body in bodies.items()))
        observer = Observer(workloads)
        observer._lookup = Lookup(workloads, cluster=lambda mono: Cluster(mono, connect=to_server))
        read = await observed(workloads, "chat/west", "chat/else", observer=observer)
        await observer.close()
    assert [(len(each.endpoints), each.dropped_series) for each in read] == [(2, 0), (2, 0)]


async def test_samples_of_the_past_on_a_page_are_counted() -> None:
    page = Page('vllm:num_requests_waiting{model_name="m"} 0\nvllm:num_requests_running{model_name="m"} 9 1000\n')
    async with served(page) as (url,):
        workloads = Workloads(
            PolicyFile.parse("p.yaml", f"workloads:\n  chat/a: {{scrape: {{urls: ['{url}']}}}}\n"), tick_seconds=5.0
        )
        (observation,) = await observed(workloads, "chat/a")
    assert observation.dropped_series == 1


def test_g3_02_health_tells_for_how_long_a_replica_has_made_no_progress() -> None:
    line = Timeline(interval_seconds=15)
    for seconds in range(0, 165, 15):
        line.at(seconds, a=pod_page(running=5, finished=3), b=pod_page(running=0, finished=3), c=down())
    found = {each.endpoint: each.no_progress_seconds for each in source_health(line.observation, line.history)}
    assert found == {"a": 150.0, "b": 0.0, "c": None}
