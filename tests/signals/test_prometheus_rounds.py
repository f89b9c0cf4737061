"""Rounds against a stand-in of the API: asked once for everybody, split by target, coherent in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from scaler.policy.prometheus import Prometheus, PrometheusServer
from scaler.signals.preset import load_preset
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.plan import want
from scaler.signals.prometheus.rounds import Failed, Round, Source
from tests.patience import seconds_at_work
from tests.signals.fake_prometheus import UNIX, FakePrometheus, Series, replica, serving, vector

VLLM = load_preset("vllm")
CHAT = Prometheus.model_validate({"source": "main", "match": {"namespace": "chat", "model_name": "m"}})


class Clock:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Asking:
    """A source of a stand-in, and its rounds."""

    def __init__(self, fake: FakePrometheus, session: aiohttp.ClientSession) -> None:
        self.fake, self.clock, self._session = fake, Clock(), session
        self.limit(30)

    def limit(self, timeout_seconds: float) -> None:
        """Ask anew, with that time limit."""
        self.source = Source("main", Api(PrometheusServer(url=self.fake.url, timeout_seconds=timeout_seconds)))

    async def said(self, prometheus: Prometheus = CHAT) -> Round | Failed:
        return await self.source.round(
            self._session,
            self.clock,
            tick_seconds=5.0,
            preset=VLLM,
            prometheus=prometheus,
            wanted=lambda: want([(VLLM, CHAT), (VLLM, prometheus)]),
        )

    async def round(self, prometheus: Prometheus = CHAT) -> Round:
        said = await self.said(prometheus)
        assert isinstance(said, Round), said
        return said


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    async with serving(FakePrometheus()) as fake, aiohttp.ClientSession() as session:
        yield Asking(fake, session)


async def test_one_round_serves_everybody_of_a_tick(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1)
    rounds = await asyncio.gather(*(asking.said() for _ in range(100)))
    assert len(set(map(id, rounds))) == 1
    assert len(asking.fake.queries) == 12
    asking.clock.now += 3.7  # ticks are started over half a tick of 5 s
    assert await asking.said() is rounds[0]
    asking.clock.now += 0.1
    assert await asking.said() is not rounds[0]
    assert len(asking.fake.queries) == 14, "no target has a new sample: only ages and failing targets are asked"


async def test_who_gives_up_waiting_leaves_the_round_to_the_others(asking: Asking) -> None:
    first = asyncio.create_task(asking.said())
    second = asyncio.create_task(asking.said())
    await asyncio.sleep(0)
    first.cancel()
    assert isinstance(await second, Round)


async def test_a_workload_that_the_last_round_did_not_ask_for_gets_a_new_one(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1) + replica("b", namespace="other", running=2)
    first = await asking.round()
    other = Prometheus.model_validate({"match": {"namespace": "other"}})
    second = await asking.round(other)
    assert second is not first
    assert len(second.bound({"namespace": "other"})) == 1
    assert await asking.round() is second


async def test_the_answer_is_split_by_target_and_found_by_labels(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1, finished=3, ttft=4, started=UNIX - 60) + replica(
        "b", model="n", running=2
    )
    said = await asking.round()
    (place,) = said.bound({"namespace": "chat", "model_name": "m"})
    target = said.targets[place]
    assert target.labels == {"namespace": "chat", "pod": "a", "instance": "a:8000", "job": "vllm"}
    assert set(target.samples) == {
        "process_start_time_seconds",
        "vllm_num_requests_running",
        "vllm_request_success_total",
        "vllm_time_to_first_token_seconds_bucket",
        "vllm_time_to_first_token_seconds_count",
        "vllm_time_to_first_token_seconds_sum",
    }
    (running,) = target.samples["vllm_num_requests_running"]
    assert (running.value, running.labels.text) == (1.0, 'engine="0",instance="a:8000",model_name="m"')
    bounds = [sample.labels.bound for sample in target.samples["vllm_time_to_first_token_seconds_bucket"]]
    assert sorted(bounds) == [0.1, 1.0, float("inf")]
    assert len(said.bound({"namespace": "chat"})) == 2
    assert not said.bound({"namespace": "chat", "model_name": "x"})


async def test_a_sample_is_as_old_as_its_scrape_by_the_servers_own_clock(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1, age=12.5)
    (target,) = (await asking.round()).targets.values()
    assert (target.unix, target.at) == (UNIX - 12.5, 1000.0 - 12.5)


async def test_everything_is_asked_as_of_the_first_query(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1)
    await asking.round()
    times = [form.get("time") for form in asking.fake.forms]
    assert times[0] is None
    assert set(times[1:]) == {f"{UNIX:.3f}"}


async def test_a_target_that_was_not_scraped_since_is_the_same_object(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1) + replica("b", running=1, age=4.0)
    before = await asking.round()
    asking.clock.now += 5.03  # our clocks never agree to the millisecond
    asking.fake.unix += 5.0
    asking.fake.series = replica("a", running=2, age=6.0) + replica("b", running=2, age=1.0)
    after = await asking.round()
    a, b = sorted(after.targets, key=str)
    assert after.targets[a] is before.targets[a]
    assert after.targets[b] is not before.targets[b]
    assert after.targets[b].samples["vllm_num_requests_running"][0].value == 2.0


async def test_one_query_that_fails_fails_the_round(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1)
    asking.fake.respond = lambda query: web.Response(status=503) if "queue_time" in query else None
    said = await asking.said()
    assert isinstance(said, Failed)
    assert said.reason == "source main: HTTP 503"


async def test_a_failed_round_is_not_asked_again_by_each_workload(asking: Asking) -> None:
    asking.fake.respond = lambda query: web.Response(status=503)
    said = [await asking.said() for _ in range(5)]
    assert len(set(map(id, said))) == 1
    assert len(asking.fake.queries) == 1


async def test_who_waited_for_a_round_is_served_by_it_however_long_it_took(asking: Asking) -> None:
    async def slow() -> web.StreamResponse:
        asking.clock.now += 60.0
        return web.json_response(vector((replica("a", running=1)[0].labels, UNIX)))

    asking.fake.respond = lambda query: slow() if query.startswith("timestamp") else None
    rounds = await asyncio.gather(*(asking.said() for _ in range(20)))
    assert len(set(map(id, rounds))) == 1


async def test_a_hanging_server_delays_one_time_limit_not_one_for_each_query(asking: Asking) -> None:
    async def hang() -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    asking.fake.respond = lambda query: hang()
    asking.limit(1)
    async with seconds_at_work() as passed:
        said = await asyncio.gather(*(asking.said() for _ in range(50)))
        assert passed() < 3
    assert isinstance(said[0], Failed)
    assert said[0].reason == "source main: timed out after 1 s"


async def test_partial_data_in_any_answer_makes_the_round_partial(asking: Asking) -> None:
    asking.fake.series = replica("a", running=1)
    assert (await asking.round()).partial == ""
    asking.clock.now += 10
    asking.fake.warnings = ("store eu-2: unavailable",)
    assert (await asking.round()).partial == "store eu-2: unavailable"


async def test_targets_that_cannot_be_scraped_are_known(asking: Asking) -> None:
    dead = {"namespace": "chat", "pod": "b", "instance": "b:8000", "job": "vllm"}
    asking.fake.series = [*replica("a", running=1), Series("up", dead, 0)]
    said = await asking.round()
    assert said.tells_failing
    assert [
        dict(zip(("pod",), (value for value in place if value == "b"), strict=False)) for place in said.failing
    ] == [{"pod": "b"}]
    asking.clock.now += 10
    asking.fake.series = [each for each in replica("a", running=1) if each.name != "up"]
    assert not (await asking.round()).tells_failing


async def test_of_two_spellings_of_one_target_one_is_read(asking: Asking) -> None:
    both = replica("a", running=4)
    both += [Series(each.name.replace(":", "_"), each.labels, each.value) for each in both if ":" in each.name]
    asking.fake.series = both
    (target,) = (await asking.round()).targets.values()
    assert [sample.value for sample in target.samples["vllm_num_requests_running"]] == [4.0]
    assert target.spellings["vllm_num_requests_running"] == "vllm:num_requests_running"
