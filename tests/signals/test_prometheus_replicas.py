"""From a Prometheus' answers to a workload's signals: ghosts, copies, partial data, and everything that must not be
read as zero. The time lines go through the same fold as scraping does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from scaler.policy.model import Policy
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.exposition import parse
from scaler.signals.model import Known, NotApplicable, Signals, Stale, Unknown
from scaler.signals.observation import EngineSample, Observation, ReadFailure
from scaler.signals.preset import load_preset
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.plan import want
from scaler.signals.prometheus.replicas import Bound, Found, Replica, find
from scaler.signals.prometheus.rounds import Source
from scaler.signals.reading import read_engine
from scaler.signals.window import History, fold
from tests.signals.fake_prometheus import UNIX, FakePrometheus, Series, replica, serving

VLLM = load_preset("vllm")
BODIES = Path(__file__).parent / "bodies"


class Line:
    """A workload's time line: ``await line.at(15, series)`` gives the signals when Prometheus holds ``series`` then."""

    def __init__(self, fake: FakePrometheus, session: aiohttp.ClientSession) -> None:
        self.fake, self._session = fake, session
        self._source = Source("main", Api(PrometheusServer(url=fake.url, timeout_seconds=30)))
        self._history = History()
        self._replicas: Mapping[str, Replica] = {}
        self.found = Found()
        self.bind(namespace="chat", model_name="m")

    def bind(self, *, model_name_filter: str | None = None, empty_means: str = "unknown", **match: str) -> None:
        """Bind the workload to these labels."""
        prometheus = {"source": "main", "match": match, "empty_means": empty_means}
        self.policy = Policy.model_validate({"prometheus": prometheus, "scrape": {"model_name": model_name_filter}})

    async def at(
        self,
        seconds: float,
        *series: list[Series],
        warnings: tuple[str, ...] = (),
        existing: frozenset[str] | None = None,
    ) -> Signals:
        """The signals at ``seconds``. ``existing`` are the pods that the cluster knows, where it is asked."""
        self.fake.series = [each for group in series for each in group]
        self.fake.warnings, self.fake.unix = warnings, UNIX + seconds
        policy = self.policy
        said = await self._source.round(
            self._session,
            lambda: seconds,
            tick_seconds=5.0,
            preset=VLLM,
            prometheus=policy.prometheus,
            wanted=lambda: want([(VLLM, policy.prometheus)]),
        )
        bound = Bound("main", VLLM, policy.prometheus, policy.scrape.model_name, policy.hold_seconds)
        self.found = find(said, bound, self._replicas, seconds, existing)
        self._replicas = self.found.replicas
        observation = Observation(
            seconds, self.found.endpoints, absent=self.found.absent, lost=self.found.lost, interval_seconds=15.0
        )
        self._history, signals = fold(
            self._history, observation, seconds, policy, interval_seconds=5.0, now_unix=UNIX + seconds
        )
        return signals

    def sample(self, endpoint: str) -> EngineSample:
        read = self.found.endpoints[endpoint]
        assert isinstance(read, EngineSample), read
        return read

    def reason(self, endpoint: str) -> str:
        read = self.found.endpoints[endpoint]
        assert isinstance(read, ReadFailure), read
        return read.reason


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    async with serving(FakePrometheus()) as fake, aiohttp.ClientSession() as session:
        yield Line(fake, session)


def odd(response: web.Response) -> object:
    return lambda query: web.Response(
        status=response.status, body=response.body, headers={"Content-Type": "text/plain"}
    )


ODD_ANSWERS = {
    "HTTP 503": web.Response(status=503),
    "an error in JSON": web.Response(text='{"status":"error","errorType":"timeout","error":"late"}'),
    "a login page": web.Response(text="<html>Sign in</html>"),
    "an empty vector": web.Response(text='{"status":"success","data":{"resultType":"vector","result":[]}}'),
    "a matrix": web.Response(text='{"status":"success","data":{"resultType":"matrix","result":[]}}'),
}


@pytest.mark.parametrize("name", ODD_ANSWERS)
async def test_g2_01_no_good_answer_is_held_then_unknown_and_never_zero(line: Line, name: str) -> None:
    signals = await line.at(0, replica("a", running=30, waiting=12, ttft=5))
    assert (signals.running, signals.waiting) == (Known(30.0, -1.0), Known(12.0, -1.0))
    line.fake.respond = odd(ODD_ANSWERS[name])  # type: ignore[assignment]
    for seconds, at_least in ((20, 1.0), (60, 0.0), (110, 0.0)):  # up to 45 s old a sample still shows the present
        signals = await line.at(seconds)
        assert signals.running == Stale(30.0, -1.0, 30.0 * at_least)
        assert signals.waiting == Stale(12.0, -1.0, 12.0 * at_least)
        assert isinstance(signals.ready_replicas, Stale)
    signals = await line.at(125)
    assert isinstance(signals.waiting, Unknown)
    assert isinstance(signals.arrivals_per_second, Unknown)
    assert "source main: " in signals.waiting.reason
    line.fake.respond = lambda query: None
    assert (await line.at(140, replica("a", running=0, waiting=0))).running == Known(0.0, 139.0)


async def test_g2_01_partial_data_may_raise_and_may_not_lower(line: Line) -> None:
    await line.at(0, replica("a", running=30, waiting=12))
    partial = {"warnings": ("store eu-2: unavailable",)}
    lower = await line.at(15, replica("a", running=3, waiting=0), **partial)
    assert isinstance(lower.running, Stale)
    assert lower.running.at_least == 3.0
    higher = await line.at(30, replica("a", running=60, waiting=9), **partial)
    assert higher.running == Stale(60.0, 29.0, 60.0)
    missing = await line.at(90, replica("b", running=1, waiting=0), **partial)
    assert missing.running == Stale(61.0, 29.0, 1.0), "a, which the answer lacks, is held"
    whole = await line.at(105, replica("a", running=2, waiting=0), replica("b", running=1, waiting=0))
    assert whole.running == Known(3.0, 104.0)


async def test_g2_01_nan_is_unknown_for_its_family_alone(line: Line) -> None:
    signals = await line.at(0, replica("a", running=3, waiting="NaN"))
    assert signals.running == Known(3.0, -1.0)
    assert isinstance(signals.waiting, Unknown)
    assert "waiting: vllm:num_requests_waiting is nan; read as unknown" in signals.warnings


async def test_empty_is_zero_only_for_whom_the_operator_said_so_and_only_a_whole_answer(line: Line) -> None:
    line.bind(namespace="chat", model_name="m", empty_means="zero")
    await line.at(0, replica("a", running=30, waiting=12))
    other = replica("x", model="other", running=1)
    signals = await line.at(10, other, warnings=("half of it",))
    assert isinstance(signals.running, Stale)
    line.fake.respond = odd(web.Response(status=503))  # type: ignore[assignment]
    assert isinstance((await line.at(20)).running, Stale)
    line.fake.respond = lambda query: None
    signals = await line.at(30, other)
    assert isinstance(signals.running, NotApplicable)
    assert signals.ready_replicas == Known(0.0, 30.0)


async def test_g2_07_a_ghost_is_left_out_by_its_age(line: Line) -> None:
    signals = await line.at(
        0, replica("aaa", running=0, waiting=0, age=2), replica("zzz", running=5, waiting=40, age=95)
    )
    assert signals.waiting == Known(0.0, -2.0)
    assert "series older than 45 s left out, of pods that are gone: zzz" in signals.warnings
    assert line.found.dropped_series == 2


async def test_g2_07_a_fresh_ghost_is_no_pod_that_exists(line: Line) -> None:
    """A store without staleness marks shows a deleted pod for as long as its last sample is fresh."""
    both = (replica("aaa", running=0, waiting=0), replica("zzz", running=5, waiting=40, kv_use=0.9))
    assert (await line.at(0, *both)).waiting == Known(40.0, -1.0)
    assert line.found.dropped_series == 0

    signals = await line.at(10, *both, existing=frozenset({"aaa", "new"}))
    assert (signals.waiting, signals.ready_replicas) == (Known(0.0, 9.0), Known(1.0, 9.0))
    assert "series left out, of pods that the target no longer has: zzz" in signals.warnings
    assert line.found.dropped_series == 3

    signals = await line.at(20, both[0], existing=frozenset({"aaa", "new"}))
    assert not any("left out" in warning for warning in signals.warnings)
    assert line.found.dropped_series == 0


async def test_g2_07_a_pod_that_is_gone_is_not_waited_for_though_its_target_is_still_known(line: Line) -> None:
    await line.at(0, replica("a", running=1), replica("b", running=7))
    down = [Series("up", replica("b")[0].labels, 0)]
    signals = await line.at(60, replica("a", running=1), down, existing=frozenset({"a"}))
    assert signals.running == Known(1.0, 59.0)


@pytest.mark.parametrize("existing", [frozenset({"llama-7d9f-x"}), frozenset()])
async def test_names_that_are_no_pods_names_are_not_compared_with_pods(line: Line, existing: frozenset[str]) -> None:
    """Replicas may be told apart by another label; and of a new rollout nothing may be scraped yet."""
    signals = await line.at(
        0, replica("10.0.0.7:8000", running=1), replica("10.0.0.8:8000", running=2), existing=existing
    )
    assert signals.running == Known(3.0, -1.0)
    assert line.found.dropped_series == 0


async def test_g2_07_a_pod_that_service_discovery_dropped_is_gone_at_once(line: Line) -> None:
    await line.at(0, replica("a", running=1), replica("b", running=7))
    signals = await line.at(10, replica("a", running=1))
    assert signals.running == Known(1.0, 9.0)
    assert signals.ready_replicas == Known(1.0, 9.0)


async def test_g2_07_a_pod_that_cannot_be_scraped_makes_the_sum_incomplete_not_smaller(line: Line) -> None:
    await line.at(0, replica("a", running=1), replica("b", running=7))
    down = [Series("up", replica("b")[0].labels, 0)]
    assert (await line.at(30, replica("a", running=1), down)).running == Known(8.0, -1.0), "two lost scrapes are usual"
    assert line.reason("b") == "source main: cannot scrape it (up is 0)"
    assert (await line.at(60, replica("a", running=1), down)).running == Stale(8.0, -1.0, 1.0)
    assert (await line.at(600, replica("a", running=1), down)).running == Stale(1.0, 599.0, 1.0)
    assert (await line.at(615, replica("a", running=1))).running == Known(1.0, 614.0)


async def test_without_up_a_vanished_pod_is_waited_for_until_its_sample_is_old(line: Line) -> None:
    def pods(*names: str) -> list[Series]:
        return [each for name in names for each in replica(name, running=1) if each.name != "up"]

    await line.at(0, pods("a", "b"))
    await line.at(40, pods("a"))
    assert line.reason("b") == "source main: has no series of it any more"
    await line.at(50, pods("a"))
    assert list(line.found.endpoints) == ["a"]


async def test_a_sample_that_ages_while_others_are_fresh_is_held_then_dropped(line: Line) -> None:
    await line.at(0, replica("a", running=1), replica("b", running=7))
    signals = await line.at(60, replica("a", running=1), replica("b", running=7, age=61))
    assert signals.running == Stale(8.0, -1.0, 1.0)
    assert line.reason("b") == "source main: its last sample is 61 s old"
    signals = await line.at(125, replica("a", running=1), replica("b", running=7, age=126))
    assert signals.running == Known(1.0, 124.0)


async def test_g3_07_a_model_that_is_not_there_is_unknown_and_those_that_are_are_listed(line: Line) -> None:
    line.bind(namespace="chat", model_name="sql")
    signals = await line.at(
        0, replica("a", model="/data/models/gemma (v2)", running=1), replica("b", model="m", running=1)
    )
    assert isinstance(signals.running, Unknown)
    assert signals.running.reason == (
        'source main: no series with namespace="chat", model_name="sql"; values of model_name that are there: '
        '"/data/models/gemma (v2)", "m"'
    )


async def test_labels_that_exist_but_not_together_are_said_so(line: Line) -> None:
    line.bind(pod="a", model_name="n")
    signals = await line.at(0, replica("a", running=1), replica("b", model="n", running=1))
    assert isinstance(signals.running, Unknown)
    assert signals.running.reason.endswith("each of these values is there, but not together")


@pytest.mark.parametrize("model", ["/data/models/gemma (v2)", "org/m+x", 'a"b', "a\\b", "a\nb", "ünï"])
async def test_g3_07_a_model_is_found_by_equality_whatever_its_name(line: Line, model: str) -> None:
    line.bind(namespace="chat", model_name=model)
    signals = await line.at(0, replica("a", model=model, running=3), replica("b", model="other", running=9))
    assert signals.running == Known(3.0, -1.0)


async def test_g3_05_a_collector_that_renames_changes_nothing(line: Line) -> None:
    renamed = [
        Series(each.name.replace(":", "_"), each.labels, each.value, each.age)
        for each in replica("a", running=4, ttft=2)
    ]
    assert (await line.at(0, renamed)).running == Known(4.0, -1.0)
    assert line.sample("a").histograms.keys() == {"ttft"}


async def test_of_two_servers_of_a_pair_the_newer_copy_counts(line: Line) -> None:
    def pair(first: float, second: float, finished: tuple[float, float]) -> list[Series]:
        copies = []
        for name, age, count in (("p-0", first, finished[0]), ("p-1", second, finished[1])):
            for each in replica("a", running=2, finished=count, age=age):
                labels = {**each.labels, "prometheus_replica": name}
                copies.append(Series(each.name, labels, each.value, each.age))
        return copies

    await line.at(0, pair(2, 9, (100, 98)))
    assert line.sample("a").gauges["running"] == 2.0
    signals = await line.at(15, pair(9, 2, (103, 106)))
    assert line.sample("a").counters["finished"] == {'engine="0",instance="a:8000",model_name="m"': 106.0}
    assert isinstance(signals.finished_per_second, Known)
    assert signals.finished_per_second.value == pytest.approx(6 / 15), "another copy's series are not new ones"


async def test_engine_processes_of_one_pod_are_one_replica(line: Line) -> None:
    def pod(started: float) -> list[Series]:
        first, second = replica("a", running=3, started=UNIX - 900), replica("a", running=4, started=started)
        return first + [Series(s.name, {**s.labels, "instance": "a:8001"}, s.value, s.age) for s in second]

    signals = await line.at(0, pod(UNIX - 100))
    assert signals.running == Known(7.0, -1.0)
    assert signals.ready_replicas == Known(1.0, -1.0)
    assert line.sample("a").process_start_seconds is None, "two that differ must not make one look restarted"
    await line.at(15, pod(UNIX - 900))
    assert line.sample("a").process_start_seconds == UNIX - 900


async def test_a_process_of_a_pod_that_cannot_be_scraped_makes_its_sum_incomplete_not_smaller(line: Line) -> None:
    def at_port(port: int, series: list[Series]) -> list[Series]:
        return [Series(s.name, {**s.labels, "instance": f"a:{port}"}, s.value, s.age) for s in series]

    def both(first: int, second: int) -> list[Series]:
        return at_port(8000, replica("a", running=first)) + at_port(8001, replica("a", running=second))

    down = [Series("up", at_port(8001, replica("a"))[0].labels, 0)]
    assert (await line.at(0, both(0, 7))).running == Known(7.0, -1.0)
    for seconds in (15, 30, 600):  # for as long as it fails, remembered from round to round
        signals = await line.at(seconds, at_port(8000, replica("a", running=0)), down)
        assert signals.running == Stale(0.0, seconds - 1.0, 0.0)
        assert line.found.lost == "source main: cannot scrape a:8001 of a"
    rising = await line.at(615, at_port(8000, replica("a", running=50)), down)
    assert rising.running == Stale(50.0, 614.0, 50.0), "what is seen may raise"
    assert (await line.at(630, both(1, 2))).running == Known(3.0, 629.0)
    assert (await line.at(645, at_port(8000, replica("a", running=1)))).running == Known(1.0, 644.0), "one is gone"


async def test_a_process_whose_sample_ages_beside_a_fresh_one_is_waited_for_a_while(line: Line) -> None:
    def pod(age: float) -> list[Series]:
        second = [
            Series(s.name, {**s.labels, "instance": "a:8001"}, s.value, s.age) for s in replica("a", running=7, age=age)
        ]
        return replica("a", running=1) + second

    await line.at(0, pod(1))
    assert isinstance((await line.at(60, pod(61))).running, Stale)
    assert (await line.at(130, pod(131))).running == Known(1.0, 129.0)


async def test_pods_of_several_namespaces_and_clusters_are_told_apart(line: Line) -> None:
    line.bind(model_name="m")
    pods = [
        Series(each.name, {**each.labels, "cluster": cluster}, each.value, each.age)
        for cluster, namespace in (("eu", "x"), ("eu", "y"), ("us", "x"))
        for each in replica("m-0", namespace=namespace, running=1)
    ]
    assert (await line.at(0, pods)).running == Known(3.0, -1.0)
    assert list(line.found.endpoints) == ["eu/x/m-0", "eu/y/m-0", "us/x/m-0"]
    line.bind(model_name="m", cluster="eu", namespace="x")
    assert (await line.at(20, pods)).running == Known(1.0, 19.0)


async def test_two_models_of_one_endpoint_are_told_apart_by_the_binding_or_warned_of(line: Line) -> None:
    both = replica("a", running=3, waiting=0) + replica("a", model="other", running=50, waiting=50)[:-1]
    assert (await line.at(0, both)).running == Known(3.0, -1.0)
    line.bind(namespace="chat")
    signals = await line.at(10, both)
    assert signals.running == Known(53.0, 9.0)
    assert any("2 models share the endpoint" in text for text in signals.warnings)
    line.bind(namespace="chat", model_name_filter="other")
    assert (await line.at(20, both)).running == Known(50.0, 19.0)


async def test_a_process_that_another_label_set_describes_belongs_to_every_model(line: Line) -> None:
    place = {
        name: value for name, value in replica("a", running=1)[0].labels.items() if name not in ("engine", "model_name")
    }
    config = Series("vllm:cache_config_info", {**place, "engine": "0", "kv_cache_size_tokens": "4096"}, 1)
    await line.at(0, [*replica("a", running=1, started=UNIX - 50), config])
    assert line.sample("a").gauges["kv_capacity_tokens"] == 4096.0
    assert line.sample("a").process_start_seconds == UNIX - 50


async def test_a_prometheus_that_scrapes_more_rarely_than_we_ask_gives_the_true_rate(line: Line) -> None:
    signals = Signals()
    for tick in range(0, 91, 5):
        scrape = tick - tick % 15  # 2 requests a second, as of the last scrape
        signals = await line.at(
            tick, replica("a", running=2, finished=2.0 * scrape, ttft=2 * scrape, age=tick - scrape + 0.1)
        )
    assert isinstance(signals.arrivals_per_second, Known)
    assert signals.arrivals_per_second.value == pytest.approx(2.0)
    assert isinstance(signals.arrivals_recent_per_second, Known)
    assert signals.arrivals_recent_per_second.value == pytest.approx(2.0)


@pytest.mark.parametrize("body", sorted(path.stem for path in BODIES.glob("*.txt")))
async def test_every_engines_page_gives_the_same_sample_by_either_way(body: str) -> None:
    """One replica's recorded page, read as a body and as the series that a Prometheus makes of it."""
    preset, text = load_preset(body.partition("-")[0]), (BODIES / f"{body}.txt").read_text()
    direct = read_engine(text, preset, 99.0, model_name=None, now_unix=UNIX, seconds=0.0)
    page = parse(text, preset.wanted.__contains__)
    place = {"namespace": "chat", "pod": "a", "instance": "a:8000", "job": "engines"}
    async with serving(FakePrometheus()) as fake, aiohttp.ClientSession() as session:
        fake.series = [
            Series(page.spellings[name], {**sample.labels.values, **place}, sample.value)
            for name, samples in page.samples.items()
            for sample in samples
        ]
        prometheus = Policy.model_validate(
            {"prometheus": {"source": "main", "match": {"namespace": "chat"}}}
        ).prometheus
        said = await Source("main", Api(PrometheusServer(url=fake.url))).round(
            session,
            lambda: 100.0,
            tick_seconds=5.0,
            preset=preset,
            prometheus=prometheus,
            wanted=lambda: want([(preset, prometheus)]),
        )
    found = find(said, Bound("main", preset, prometheus, None, 120.0), {}, 100.0)
    between = found.endpoints["a"]
    assert isinstance(between, EngineSample)
    assert (between.at, between.process_start_seconds) == (99.0, direct.process_start_seconds)
    assert between.gauges == pytest.approx(direct.gauges)
    assert between.not_applicable == direct.not_applicable
    assert between.warnings == direct.warnings
    for one, other in ((between.counters, direct.counters), (between.histograms, direct.histograms)):
        assert one.keys() == other.keys()
        for family, series in one.items():
            assert sorted(series.values(), key=repr) == sorted(other[family].values(), key=repr), family


async def test_another_engines_series_with_the_same_labels_are_no_replica(line: Line) -> None:
    line.bind(namespace="chat")
    sglang = [Series("sglang:num_running_reqs", {"namespace": "chat", "pod": "s", "instance": "s:1"}, 1)]
    signals = await line.at(0, sglang)
    assert isinstance(signals.running, Unknown)
    assert signals.running.reason.endswith("it has none of engine vllm at all")
