"""GPUs out of a Prometheus that scrapes DCGM exporters: one query for everybody, and nothing old, partial or mixed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from scaler.policy import promql
from scaler.policy.prometheus import QUERY_LENGTH, PrometheusServer
from scaler.signals.dcgm import PodName
from scaler.signals.gpu import GpuReading
from scaler.signals.observation import ReadFailure
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.gpus import ASKED, GpuSeries, Namespaces, query
from scaler.signals.scrape import Exporter
from tests.signals.fake_prometheus import UNIX, FakePrometheus, serving, vector

CHAT = frozenset({"chat"})


@dataclass
class Gpu:
    """One GPU's series as a Prometheus that does not honour labels holds them."""

    uuid: str
    pod: str = ""
    namespace: str = "chat"
    values: dict[str, float] = field(default_factory=lambda: {"GPU_UTIL": 40})
    age: float = 5.0
    labels: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[tuple[dict[str, str], float]]:
        own = {"UUID": self.uuid, "gpu": "0", "pod": "dcgm-x7x7x", "namespace": "gpu-operator", **self.labels}
        if self.pod:
            own |= {"exported_pod": self.pod, "exported_namespace": self.namespace}
        found = [({"__name__": f"DCGM_FI_DEV_{name}", **own}, value) for name, value in self.values.items()]
        return [*found, ({**own, "loadtide_times": "1"}, UNIX - self.age)]


class Asking:
    """A source of a stand-in that answers with these GPUs, whatever is asked for."""

    def __init__(self, fake: FakePrometheus, session: aiohttp.ClientSession) -> None:
        self.fake, self.now, self._session = fake, 1000.0, session
        self.series = GpuSeries("main", Api(PrometheusServer(url=fake.url, timeout_seconds=30)))
        self.gpus: list[Gpu] = []
        self.warnings: tuple[str, ...] = ()
        fake.respond = self._respond

    def _respond(self, _: str) -> web.Response:
        rows = [row for gpu in self.gpus for row in gpu.rows()]
        return web.json_response(vector(*rows, warnings=self.warnings))

    async def read(
        self,
        *,
        cluster: str | None = None,
        namespaces: Namespaces = CHAT,
        wanted: Namespaces = CHAT,
        interval: float = 15,
    ) -> Exporter | ReadFailure:
        return await self.series.read(
            self._session,
            lambda: self.now,
            tick_seconds=5.0,
            scrape_interval_seconds=interval,
            cluster=cluster,
            namespaces=namespaces,
            wanted=lambda: wanted,
        )

    async def gpus_of(self, pod: str, **asked: object) -> tuple[GpuReading, ...]:
        read = await self.read(**asked)  # type: ignore[arg-type]
        assert isinstance(read, Exporter), read
        return read.gpus.held_by(PodName("chat", pod))


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    async with serving(FakePrometheus()) as fake, aiohttp.ClientSession() as session:
        yield Asking(fake, session)


# The query


def test_the_query_is_promql_whose_only_values_are_namespaces_quoted() -> None:
    read = promql.read(query(frozenset({'a"b', "c.d"})))
    named = {label: value for each in read.selectors for label, value in each.items()}
    assert named == dict.fromkeys(("namespace", "exported_namespace", "pod_namespace"), ("=~", r'a"b|c\.d'))
    assert promql.read(query(None)).selectors == ({},) * (1 + len(ASKED))


def test_its_length_does_not_grow_with_the_namespaces_without_bound() -> None:
    def asked(count: int) -> str:
        return query(frozenset(f"namespace-{number:050}" for number in range(count)))

    assert len(asked(50)) <= QUERY_LENGTH
    assert asked(50) != query(None)
    assert asked(500) == query(None)


# Sharing


async def test_everybody_of_a_tick_shares_one_query(asking: Asking) -> None:
    asking.gpus = [Gpu("GPU-1", "a-0"), Gpu("GPU-2", "b-0", values={"GPU_UTIL": 90})]
    reads = await asyncio.gather(*(asking.read() for _ in range(100)))
    assert len(asking.fake.queries) == 1
    assert len({id(read.gpus) for read in reads if isinstance(read, Exporter)}) == 1
    assert [gpu.busy_ratio for gpu in await asking.gpus_of("b-0")] == [0.9]

    asking.now += 3.8
    await asking.read()
    assert len(asking.fake.queries) == 2


async def test_a_failed_answer_is_not_asked_again_by_each_workload(asking: Asking) -> None:
    asking.fake.respond = lambda _: web.Response(status=503)
    for _ in range(5):
        read = await asking.read()
        assert isinstance(read, ReadFailure)
        assert read.reason == "source main: HTTP 503"
    assert len(asking.fake.queries) == 1


async def test_a_namespace_the_last_query_left_out_gets_a_new_one_for_all(asking: Asking) -> None:
    await asking.read()
    await asking.read(namespaces=frozenset({"prod"}), wanted=frozenset({"chat", "prod"}))
    await asking.read()
    assert len(asking.fake.queries) == 2
    assert 'exported_namespace=~"chat|prod"' in asking.fake.queries[1]

    await asking.read(namespaces=None)  # who cannot say where its pods are needs everybody's
    await asking.read()
    assert [" and on " in each for each in asking.fake.queries] == [True, True, False]


# What may be used


@pytest.mark.parametrize(("age", "interval", "fresh"), [(44, 15, True), (46, 15, False), (100, 60, True)])
async def test_a_sample_older_than_three_scrapes_is_none(
    asking: Asking, age: float, interval: float, fresh: bool
) -> None:
    asking.gpus = [Gpu("GPU-1", "a-0", age=age)]
    assert bool(await asking.gpus_of("a-0", interval=interval)) is fresh


async def test_each_series_has_the_age_of_its_own_sample_and_not_of_the_answer(asking: Asking) -> None:
    left = Gpu("GPU-1", "gone-0", values={"GPU_UTIL": 99}, age=200)  # a pod that was deleted, still looked back on
    asking.gpus = [left, Gpu("GPU-1", "a-0", values={"GPU_UTIL": 10})]
    assert [gpu.busy_ratio for gpu in await asking.gpus_of("a-0")] == [0.1]
    assert await asking.gpus_of("gone-0") == ()


async def test_a_series_without_its_time_is_left_out(asking: Asking) -> None:
    rows = Gpu("GPU-1", "a-0").rows()
    asking.fake.respond = lambda _: web.json_response(vector(rows[0]))
    assert await asking.gpus_of("a-0") == ()


async def test_of_partial_data_nothing_is_used(asking: Asking) -> None:
    asking.gpus, asking.warnings = [Gpu("GPU-1", "a-0")], ("store eu-2: unavailable",)
    read = await asking.read()
    assert isinstance(read, ReadFailure)
    assert read.reason == "source main: partial data: store eu-2: unavailable"


async def test_the_last_error_is_the_one_sampled_last_though_its_code_is_a_label(asking: Asking) -> None:
    def error(code: int, age: float) -> Gpu:
        return Gpu("GPU-1", "a-0", values={"XID_ERRORS": code}, age=age, labels={"err_code": str(code)})

    asking.gpus = [error(79, 30), error(31, 2)]
    assert [gpu.xid for gpu in await asking.gpus_of("a-0")] == [31]


async def test_every_quantity_arrives_and_copies_count_once(asking: Asking) -> None:
    values = {"GPU_UTIL": 87.0, "FB_USED": 74058, "FB_FREE": 6912, "FB_RESERVED": 589, "XID_ERRORS": 0}
    one, other = (Gpu("GPU-1", "a-0", values=values, labels={"prometheus_replica": name}) for name in "ab")
    profiling = Gpu("GPU-1", "a-0", labels={"prometheus_replica": "a"})
    rows = [*one.rows(), *other.rows()]
    for name, ratio in (("SM_ACTIVE", 0.41), ("SM_OCCUPANCY", 0.21)):
        labels = {**profiling.rows()[0][0], "__name__": f"DCGM_FI_PROF_{name}"}
        rows.append((labels, ratio))
    asking.fake.respond = lambda _: web.json_response(vector(*rows))

    (gpu,) = await asking.gpus_of("a-0")
    assert (gpu.busy_ratio, gpu.sm_active_ratio, gpu.sm_occupancy_ratio, gpu.xid) == (0.87, 0.41, 0.21, 0)
    assert gpu.memory is not None
    mib = 1024**2
    assert (gpu.memory.used_bytes, gpu.memory.free_bytes, gpu.memory.reserved_bytes) == (
        74058 * mib,
        6912 * mib,
        589 * mib,
    )


# Clusters


def clustered(uuid: str, cluster: str, busy: float) -> Gpu:
    return Gpu(uuid, "a-0", values={"GPU_UTIL": busy}, labels={"cluster": cluster} if cluster else {})


async def test_pods_of_one_name_in_two_clusters_are_not_mixed(asking: Asking) -> None:
    asking.gpus = [clustered("GPU-1", "east", 90), clustered("GPU-2", "west", 10)]
    assert [gpu.busy_ratio for gpu in await asking.gpus_of("a-0", cluster="east")] == [0.9]
    assert [gpu.busy_ratio for gpu in await asking.gpus_of("a-0", cluster="west")] == [0.1]
    assert await asking.gpus_of("a-0", cluster="south") == ()
    read = await asking.read()
    assert isinstance(read, ReadFailure)
    assert "add cluster to gpu.match or prometheus.match" in read.reason
    assert len(asking.fake.queries) == 1


async def test_a_prometheus_of_one_cluster_need_not_label_its_series_with_it(asking: Asking) -> None:
    asking.gpus = [clustered("GPU-1", "", 90)]
    assert [gpu.busy_ratio for gpu in await asking.gpus_of("a-0", cluster="east")] == [0.9]
    asking.now += 10
    asking.gpus = [clustered("GPU-1", "east", 50)]
    assert [gpu.busy_ratio for gpu in await asking.gpus_of("a-0")] == [0.5]


def test_nothing_is_asked_that_says_nothing_about_load() -> None:
    assert len(ASKED) == 9
    assert not any("POWER" in name or "TEMP" in name for name in ASKED)
