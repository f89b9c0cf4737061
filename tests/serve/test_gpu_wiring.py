"""What reaches a workload from DCGM exporters and kube-state-metrics, and what their silence means: nothing waits."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy
from scaler.serve.gpu_attribution import pod_of
from scaler.serve.lookup import Lookup
from scaler.serve.observe import Observer, source_health
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.api_server import ApiServer
from scaler.signals.dcgm import PodName
from scaler.signals.kubernetes import Cluster
from scaler.signals.model import Known, NotApplicable, Signals, Stale, Unknown
from scaler.signals.observation import EngineSample, Observation
from scaler.signals.preset import known_engines
from scaler.signals.window import History, fold
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
from tests.signals.fake_prometheus import FakePrometheus, Series, replica, vector
from tests.signals.fake_prometheus import serving as serving_prometheus
from tests.signals.test_scrape import serving

VLLM = (Path(__file__).parents[1] / "signals" / "bodies" / "vllm-0.32-load.txt").read_text()
TRITON = (Path(__file__).parents[1] / "signals" / "bodies" / "triton.txt").read_text()


def gpu(uuid: str, busy: float, **labels: str) -> str:
    text = ",".join(f'{name}="{value}"' for name, value in {"UUID": uuid, "gpu": "0", **labels}.items())
    values = {"GPU_UTIL": busy, "FB_USED": 60000, "FB_FREE": 20000}
    return "".join(f"DCGM_FI_DEV_{name}{{{text}}} {value}\n" for name, value in values.items())


CHAT = gpu("GPU-1", 90, namespace="chat", pod="llama-0") + gpu("GPU-2", 50, namespace="chat", pod="llama-1")
OTHER = gpu("GPU-3", 10, namespace="other", pod="x")


@dataclass
class Page:
    """A page a test may change or break; it counts how often it is read."""

    text: str
    status: int = 200
    reads: int = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.reads += 1
        return web.Response(text=self.text, status=self.status)


@asynccontextmanager
async def served(*pages: Page) -> AsyncIterator[list[str]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(page.answer)) for page in pages]


def workload(workloads: Workloads, name: str = "chat/llama") -> Workload:
    found = workloads.get(name)
    assert found is not None
    return found


def declared(body: str, names: tuple[str, ...] = ("chat/llama",), sources: str = "") -> Workloads:
    text = sources + "workloads:\n" + "".join(f"  {name}: {body}\n" for name in names)
    return Workloads(PolicyFile.parse("p.yaml", text), tick_seconds=5.0)


async def ticked(observer: Observer, session: aiohttp.ClientSession, which: Workload) -> tuple[Observation, Signals]:
    observation = await observer(which, session, time.monotonic)
    policy = which.resolved.policy
    return observation, fold(History(), observation, time.monotonic(), policy, interval_seconds=5.0)[1]


def scraping(engine: str, *exporters: str, match: str = "{namespace: chat}", preset: str = "vllm") -> str:
    urls = ", ".join(f"'{url}'" for url in exporters)
    return f"{{engine: {preset}, scrape: {{urls: ['{engine}']}}, gpu: {{dcgm_urls: [{urls}], match: {match}}}}}"


async def test_the_gpus_that_match_become_signals_and_one_read_serves_every_workload() -> None:
    engine, exporter = Page(VLLM), Page(CHAT + OTHER)
    names = ("chat/llama", "chat/mistral")
    async with served(engine, exporter) as (url, dcgm), aiohttp.ClientSession() as session:
        workloads = declared(scraping(url, dcgm), names)
        observer = Observer(workloads)
        read = [await ticked(observer, session, workload(workloads, name)) for name in names]
    for observation, signals in read:
        assert isinstance(signals.gpu_busy_ratio, Known)
        assert signals.gpu_busy_ratio.value == pytest.approx(0.7)
        assert isinstance(signals.gpu_memory_free_ratio, NotApplicable)  # vLLM preallocates
        assert [(each.source, each.endpoint, each.ok) for each in source_health(observation)] == [
            ("scrape", url, True),
            ("dcgm", dcgm, True),
        ]
    assert (engine.reads, exporter.reads) == (2, 1)


async def test_an_engine_that_does_not_preallocate_has_free_memory_too() -> None:
    async with served(Page(TRITON), Page(CHAT)) as (url, dcgm), aiohttp.ClientSession() as session:
        workloads = declared(scraping(url, dcgm, preset="triton"))
        _, signals = await ticked(Observer(workloads), session, workload(workloads))
    assert isinstance(signals.gpu_memory_free_ratio, Known)
    assert signals.gpu_memory_free_ratio.value == pytest.approx(0.25)


async def test_an_exporter_that_is_down_makes_them_unknown_and_freezes_nothing() -> None:
    engine, first, second = Page(VLLM), Page(CHAT), Page("", status=503)
    async with served(engine, first, second) as (url, good, bad), aiohttp.ClientSession() as session:
        workloads = declared(scraping(url, good, bad))
        observation, signals = await ticked(Observer(workloads), session, workload(workloads))
    assert signals.gpu_busy_ratio == Unknown("no endpoint reports gpu_busy")
    assert isinstance(signals.running, Known)
    assert isinstance(signals.waiting, Known)
    assert isinstance(signals.ready_replicas, Known)
    assert [(each.endpoint, each.ok, each.detail) for each in source_health(observation) if each.source == "dcgm"] == [
        (good, True, ""),
        (bad, False, "HTTP 503"),
    ]


async def test_labels_that_match_no_gpu_are_told() -> None:
    async with served(Page(VLLM), Page(OTHER)) as (url, dcgm), aiohttp.ClientSession() as session:
        workloads = declared(scraping(url, dcgm))
        _, signals = await ticked(Observer(workloads), session, workload(workloads))
    assert isinstance(signals.gpu_busy_ratio, Unknown)
    assert 'gpu: no DCGM series with namespace="chat"' in signals.warnings


async def test_an_address_that_names_no_pod_gets_no_gpu_and_says_what_to_declare() -> None:
    async with served(Page(VLLM), Page(CHAT)) as (url, dcgm), aiohttp.ClientSession() as session:
        workloads = declared(scraping(url, dcgm, match="{}"))
        _, signals = await ticked(Observer(workloads), session, workload(workloads))
    assert isinstance(signals.gpu_busy_ratio, Unknown)
    assert any("declare gpu.match" in warning for warning in signals.warnings)


@pytest.mark.parametrize(
    ("endpoint", "source", "pod"),
    [
        ("http://llama-0.llama.chat.svc:8000/metrics", "scrape", PodName("chat", "llama-0")),
        ("http://llama-0.llama.chat.svc.cluster.local:8000/metrics", "scrape", PodName("chat", "llama-0")),
        ("http://vllm.chat.svc:8000/metrics", "scrape", None),
        ("http://10.0.0.7:8000/metrics", "scrape", None),
        ("http://[fd00::1]:8000/metrics", "scrape", None),
        ("llama-0", "prometheus main", PodName("", "llama-0")),
        ("east/chat/llama-0", "prometheus main", PodName("chat", "llama-0")),
    ],
)
def test_which_pod_an_endpoint_is(endpoint: str, source: str, pod: PodName | None) -> None:
    assert pod_of(endpoint, Observation(0.0, {}, source=source), Policy(), "chat") == pod


def from_prometheus(url: str, body: str) -> Workloads:
    reading = f"{{prometheus: {{source: main, match: {{namespace: chat, model_name: m}}}}, {body}}}"
    return declared(reading, sources=f"sources: {{main: {{url: '{url}'}}}}\n")


async def test_replicas_read_from_a_prometheus_have_the_gpus_their_pods_hold() -> None:
    async with (
        serving_prometheus(FakePrometheus(series=replica("llama-0", running=1))) as fake,
        served(Page(CHAT)) as (dcgm,),
        aiohttp.ClientSession() as session,
    ):
        workloads = from_prometheus(fake.url, f"gpu: {{dcgm_urls: ['{dcgm}']}}")
        observation, _ = await ticked(Observer(workloads), session, workload(workloads))
    (sample,) = observation.endpoints.values()
    assert isinstance(sample, EngineSample)
    assert sample.gauges["gpu_busy"] == pytest.approx(0.9)


def gpu_series(uuid: str, pod: str, busy: float, age: float = 5.0) -> list[Series]:
    """A GPU's series as a Prometheus that does not honour labels holds them."""
    labels = {"UUID": uuid, "exported_pod": pod, "exported_namespace": "chat", "pod": "dcgm-x", "namespace": "gpus"}
    values = {"GPU_UTIL": busy, "FB_USED": 60000.0, "FB_FREE": 20000.0, "XID_ERRORS": 0.0}
    return [Series(f"DCGM_FI_DEV_{name}", labels, value, age) for name, value in values.items()]


@asynccontextmanager
async def scraping_exporters(*series: Series) -> AsyncIterator[FakePrometheus]:
    """A Prometheus with an engine's series and these, answering the query for GPUs as the real one does."""
    fake = FakePrometheus(series=[*replica("llama-0", running=1), *replica("llama-1", running=1), *series])

    def respond(query: str) -> web.Response | None:
        if "DCGM" not in query:
            return None
        rows: list[tuple[dict[str, str], float]] = []
        for each in (each for each in fake.series if each.name.startswith("DCGM")):
            rows += [
                ({"__name__": each.name, **each.labels}, float(each.value)),
                ({**each.labels, "loadtide_times": "1"}, fake.unix - each.age),
            ]
        return web.json_response(vector(*rows, unix=fake.unix))

    fake.respond = respond
    async with serving_prometheus(fake):
        yield fake


TWO_GPUS = (*gpu_series("GPU-1", "llama-0", 90), *gpu_series("GPU-2", "llama-1", 50))


async def test_a_prometheus_that_scrapes_the_exporters_gives_every_workload_its_gpus_by_one_query() -> None:
    async with scraping_exporters(*TWO_GPUS) as fake, aiohttp.ClientSession() as session:
        reading = "{prometheus: {source: main, match: {namespace: chat, model_name: m}}, gpu: {source: main}}"
        names = tuple(f"chat/w{number}" for number in range(5))
        workloads = declared(reading, names, sources=f"sources: {{main: {{url: '{fake.url}'}}}}\n")
        observer = Observer(workloads)
        read = [await ticked(observer, session, workload(workloads, name)) for name in names]
        assert sum("DCGM" in query for query in fake.queries) == 1
    for observation, signals in read:
        assert isinstance(signals.gpu_busy_ratio, Known)
        assert signals.gpu_busy_ratio.value == pytest.approx(0.7)
        assert [
            each.gauges["gpu_busy"] for each in observation.endpoints.values() if isinstance(each, EngineSample)
        ] == [
            0.9,
            0.5,
        ]
        assert ("dcgm", "main", True) in [(each.source, each.endpoint, each.ok) for each in source_health(observation)]


async def test_engines_replica_counts_and_gpus_of_many_workloads_together_stay_within_25_queries_a_tick() -> None:
    async with scraping_exporters(*TWO_GPUS) as fake, aiohttp.ClientSession() as session:
        bodies = [
            f"  chat/w{number}: {{engine: {engine}, prometheus: {{source: main, match: {{namespace: chat}}}}, "
            "target: {name: llama}, gpu: {source: main}}\n"
            for number, engine in enumerate(known_engines() * 5)
        ]
        text = f"sources: {{main: {{url: '{fake.url}'}}}}\nworkloads:\n" + "".join(bodies)
        workloads = Workloads(PolicyFile.parse("p.yaml", text), tick_seconds=5.0)
        observer = Observer(workloads)
        await asyncio.gather(*(ticked(observer, session, workload(workloads, name)) for name in workloads.names()))
    assert len(workloads.names()) == 40
    assert len(fake.queries) <= 25
    assert sum("DCGM" in query for query in fake.queries) == 1


async def test_a_scraped_workload_may_have_its_gpus_from_a_prometheus_by_labels() -> None:
    async with (
        scraping_exporters(*TWO_GPUS) as fake,
        served(Page(VLLM)) as (url,),
        aiohttp.ClientSession() as session,
    ):
        body = f"{{scrape: {{urls: ['{url}']}}, gpu: {{source: main, match: {{exported_namespace: chat}}}}}}"
        workloads = declared(body, sources=f"sources: {{main: {{url: '{fake.url}'}}}}\n")
        _, signals = await ticked(Observer(workloads), session, workload(workloads))
    assert isinstance(signals.gpu_busy_ratio, Known)
    assert signals.gpu_busy_ratio.value == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("body", "narrowed"),
    [
        ("scrape: {urls: ['http://127.0.0.1:9/m']}, gpu: {source: main}", "chat"),
        ("scrape: {urls: ['http://llama-0.llama.prod.svc:8000/m']}, gpu: {source: main}", "chat|prod"),
        ("scrape: {urls: ['http://127.0.0.1:9/m']}, gpu: {source: main, match: {exported_namespace: gpus}}", "gpus"),
        ("scrape: {urls: ['http://127.0.0.1:9/m']}, gpu: {source: main, match: {hostname: n7}}", None),
        ("prometheus: {source: main, match: {namespace: other, model_name: m}}, gpu: {source: main}", "other"),
        ("prometheus: {source: main, match: {model_name: m}}, gpu: {source: main}", None),
    ],
)
async def test_the_query_for_gpus_asks_where_the_workloads_pods_may_be(body: str, narrowed: str | None) -> None:
    async with scraping_exporters() as fake, aiohttp.ClientSession() as session:
        workloads = declared(f"{{{body}}}", sources=f"sources: {{main: {{url: '{fake.url}'}}}}\n")
        await ticked(Observer(workloads), session, workload(workloads))
    (query,) = [each for each in fake.queries if "DCGM" in each]
    asked = set(re.findall(r',exported_namespace=~?"([^"]*)"', query))
    assert asked == (set() if narrowed is None else {narrowed})


async def test_a_prometheus_that_fails_makes_gpus_unknown_and_nothing_else() -> None:
    async with scraping_exporters() as fake, served(Page(VLLM)) as (url,), aiohttp.ClientSession() as session:
        fake.respond = lambda query: web.Response(status=503)
        body = f"{{scrape: {{urls: ['{url}']}}, gpu: {{source: main, match: {{exported_namespace: chat}}}}}}"
        workloads = declared(body, sources=f"sources: {{main: {{url: '{fake.url}'}}}}\n")
        observation, signals = await ticked(Observer(workloads), session, workload(workloads))
    assert isinstance(signals.gpu_busy_ratio, Unknown)
    assert isinstance(signals.running, Known)
    (health,) = [each for each in source_health(observation) if each.source == "dcgm"]
    assert (health.endpoint, health.ok, health.detail) == ("main", False, "source main: HTTP 503")


async def test_replicas_found_as_ip_addresses_have_the_gpus_of_the_pods_the_cluster_names() -> None:
    double = ClusterDouble(scales={"llama": scale(1, "app=vllm")})
    double.put(PODS, pod("llama-0", hosts=("127.0.0.1",)))
    async with (
        api_server(double) as port,
        served(Page(VLLM), Page(CHAT)) as (url, dcgm),
        aiohttp.ClientSession() as session,
    ):

        async def to_server() -> ApiServer:
            return client_of(port)

        target = "target: {name: llama}"
        workloads = declared(f"{{scrape: {{urls: ['{url}']}}, gpu: {{dcgm_urls: ['{dcgm}']}}, {target}}}")
        observer = Observer(workloads)
        observer._lookup = Lookup(workloads, cluster=lambda mono: Cluster(mono, connect=to_server))
        observation, signals = await ticked(observer, session, workload(workloads))
        await observer.close()
    assert observation.pods == {url: "llama-0"}
    assert isinstance(signals.gpu_busy_ratio, Known)
    assert signals.gpu_busy_ratio.value == pytest.approx(0.9)


async def test_replicas_of_an_endpoint_slice_have_the_gpus_of_the_pods_it_names() -> None:
    double = ClusterDouble()
    async with (
        api_server(double) as port,
        served(Page(VLLM), Page(CHAT)) as (url, dcgm),
        aiohttp.ClientSession() as session,
    ):
        number = url.rpartition(":")[2].partition("/")[0]
        double.put(SLICES, endpoint_slice("llama", endpoint("127.0.0.1", "llama-1")))

        async def to_server() -> ApiServer:
            return client_of(port)

        workloads = declared(f"{{scrape: {{endpoint_slice: 'llama:{number}'}}, gpu: {{dcgm_urls: ['{dcgm}']}}}}")
        observer = Observer(workloads)
        observer._lookup = Lookup(workloads, cluster=lambda mono: Cluster(mono, connect=to_server))
        observation, signals = await ticked(observer, session, workload(workloads))
        await observer.close()
    assert list(observation.pods.values()) == ["llama-1"]
    assert isinstance(signals.gpu_busy_ratio, Known)
    assert signals.gpu_busy_ratio.value == pytest.approx(0.5)


async def test_a_pod_that_holds_no_gpu_that_is_shown_gets_none_and_a_hint() -> None:
    async with scraping_exporters(*gpu_series("GPU-1", "llama-0", 90)) as fake, aiohttp.ClientSession() as session:
        workloads = from_prometheus(fake.url, "gpu: {source: main}")
        observation, signals = await ticked(Observer(workloads), session, workload(workloads))
    assert isinstance(signals.gpu_busy_ratio, Stale)  # of one replica of two
    assert [text for text in signals.warnings if "DCGM shows no GPU" in text] != []
    (lacking,) = [each for name, each in observation.endpoints.items() if name == "llama-1"]
    assert isinstance(lacking, EngineSample)
    assert "gpu_busy" not in lacking.gauges


async def test_a_new_error_of_a_gpu_is_told_once() -> None:
    exporter = Page(CHAT + 'DCGM_FI_DEV_XID_ERRORS{UUID="GPU-1",gpu="0"} 31\n')
    async with served(Page(VLLM), exporter) as (url, dcgm), aiohttp.ClientSession() as session:
        workloads = declared(scraping(url, dcgm), ("chat/llama", "chat/mistral"))
        workloads.tick_seconds = 0.0  # every call reads anew
        observer = Observer(workloads)
        with capture_logs() as logs:
            for code in (31, 31, 79, 79):  # 31 is of who knows when
                exporter.text = CHAT + f'DCGM_FI_DEV_XID_ERRORS{{UUID="GPU-1",gpu="0"}} {code}\n'
                for name in workloads.names():
                    await ticked(observer, session, workload(workloads, name))
    told = [{**each} for each in logs if each["event"] == "a GPU reports an error"]
    assert [(each["xid"], each["uuid"], each["source"]) for each in told] == [(79, "GPU-1", dcgm)]


def counted(name: str, value: float, age: float = 2.0, **labels: str) -> Series:
    return Series(name, {"namespace": "chat", **labels}, value, age)


@asynccontextmanager
async def kube_state(*series: Series) -> AsyncIterator[FakePrometheus]:
    """A Prometheus that has an engine's series and these; the query for them is answered as the real one does."""
    fake = FakePrometheus(series=[*replica("llama-0", running=1), *series])

    def respond(query: str) -> web.Response | None:
        if "kube_deployment" not in query:
            return None
        rows = [({"__name__": each.name, **each.labels}, each.value) for each in series]
        rows += [({}, fake.unix - min(each.age for each in series))] if series else []
        result = [{"metric": labels, "value": [fake.unix, repr(float(value))]} for labels, value in rows]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    fake.respond = respond
    async with serving_prometheus(fake):
        yield fake


async def counts(*series: Series, names: int = 1) -> tuple[Observation, Signals, int]:
    async with kube_state(*series) as fake, aiohttp.ClientSession() as session:
        workloads = from_prometheus(fake.url, "target: {name: llama}")
        observer = Observer(workloads)
        for _ in range(names):
            observation, signals = await ticked(observer, session, workload(workloads))
        return observation, signals, sum("kube_deployment" in query for query in fake.queries)


async def test_kube_state_metrics_count_the_replicas_where_no_cluster_can_be_asked() -> None:
    observation, signals, asked = await counts(
        counted("kube_deployment_spec_replicas", 3, deployment="llama"),
        counted("kube_deployment_status_replicas_ready", 1, deployment="llama"),
        counted("kube_pod_status_unschedulable", 1, pod="llama-7d9f8b6c5-x7k2m"),
        names=3,
    )
    assert (signals.asked_replicas, signals.pending_replicas, signals.unschedulable_replicas) == tuple(
        Known(value, observation.replicas.at if observation.replicas else 0.0) for value in (3.0, 1.0, 1.0)
    )
    assert observation.replicas is not None
    assert observation.at - observation.replicas.at > 2.0  # the sample's age, not the answer's
    assert asked == 1


async def test_labels_that_the_prometheus_does_not_honour_are_read_as_they_were_exposed() -> None:
    collector = {"namespace": "monitoring", "exported_namespace": "chat"}
    _, signals, _ = await counts(
        Series("kube_deployment_spec_replicas", {**collector, "deployment": "llama"}, 3),
        Series("kube_deployment_status_replicas_ready", {**collector, "deployment": "llama"}, 1),
        Series("kube_pod_status_unschedulable", {**collector, "exported_pod": "llama-7d9f8b6c5-x7k2m", "pod": "k"}, 1),
    )
    assert isinstance(signals.unschedulable_replicas, Known)
    assert signals.unschedulable_replicas.value == 1.0


async def test_series_of_several_clusters_are_not_mixed() -> None:
    _, signals, _ = await counts(
        counted("kube_deployment_spec_replicas", 3, deployment="llama", cluster="east"),
        counted("kube_deployment_spec_replicas", 9, deployment="llama", cluster="west"),
    )
    assert isinstance(signals.asked_replicas, Unknown)
    assert "add cluster to prometheus.match" in signals.asked_replicas.reason


async def test_without_its_series_the_counts_stay_unknown() -> None:
    _, signals, _ = await counts()
    assert isinstance(signals.asked_replicas, Unknown)
    assert "no kube_deployment_spec_replicas" in signals.asked_replicas.reason
    assert isinstance(signals.running, Known)
