"""What reaches a workload from DCGM exporters and kube-state-metrics, and what their silence means: nothing waits."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy
from scaler.serve.gpu_telemetry import pod_of
from scaler.serve.observe import Observer, source_health
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.dcgm import PodName
from scaler.signals.model import Known, NotApplicable, Signals, Unknown
from scaler.signals.observation import EngineSample, Observation
from scaler.signals.window import History, fold
from tests.signals.fake_prometheus import FakePrometheus, Series, replica
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
    assert pod_of(endpoint, source, Policy()) == pod


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
