"""A real vLLM with the plugin: what runs follows what is published, live, and no request fails whatever is published.

One engine for all of it, booted with 64 sequences. Where a test says what is published, our own API serves it, over
decisions that the test makes; the last one has a whole scaler.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from scaler.control.model import Admission, Targets
from scaler.serve.http import make_app, start_http
from scaler.signals.model import Applied
from tests.plugins.wheel import unpacked
from tests.ports import free_port
from tests.real import load, vllm_cpu
from tests.running_scaler import running_scaler
from tests.serve.tide import START, FakeWorkload, FakeWorkloads, snapshot

pytestmark = pytest.mark.real

BOOT, TOKENS = 64, 2048
#: How often what passes in a prompt is counted.
TRIES = 8
WORKLOAD, TOKEN = "chat/tiny", "engine's own"
#: How long a published target may be used: longer than a machine stands still; short where a test waits for its end.
VALID_SECONDS, SHORT_SECONDS = 60.0, 3.0
#: For whatever is to come; it costs nothing when all is well.
LONG_SECONDS = 120.0


@pytest.fixture(scope="module")
def port() -> int:
    """Where the plugin is told that loadtide is; nobody is there between two tests."""
    return free_port()


@pytest.fixture(scope="module")
def engine(
    vllm_installation: vllm_cpu.Installation, tmp_path_factory: pytest.TempPathFactory, port: int
) -> Iterator[vllm_cpu.Server]:
    """A vLLM whose image has the plugin's wheel. Its log must end as it began: without an error."""
    folder = tmp_path_factory.mktemp("follows")
    variables = {
        "PYTHONPATH": str(unpacked(folder)),
        "LOADTIDE_URL": f"http://127.0.0.1:{port}",
        "LOADTIDE_WORKLOAD": WORKLOAD,
        "LOADTIDE_TOKEN": TOKEN,
        "LOADTIDE_REPLICA": "tiny-0",
    }
    with vllm_cpu.serve(vllm_installation, folder / "vllm.log", max_num_seqs=BOOT, variables=variables) as server:
        yield server
        said = server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[-5000:]


class Publisher:
    """Our API on the plugin's port, saying what a test decides; ``junk`` answers in its place."""

    def __init__(self, workloads: FakeWorkloads, chat: FakeWorkload) -> None:
        self._workloads, self._chat = workloads, chat
        self._generation = 0
        self.junk: bytes | None = None

    async def publish(
        self,
        batch: int | None,
        budget: int | None = None,
        admission: Admission = Admission.OPEN,
        valid_seconds: float = VALID_SECONDS,
    ) -> int:
        """Publish it; its generation."""
        self._generation += 1
        targets = Targets(1, True, batch, budget, admission)
        lasts = START + timedelta(seconds=valid_seconds + 1)  # the fake snapshot is a second old
        made = snapshot(WORKLOAD, generation=self._generation, targets=targets, valid_until=lasts)
        await self._workloads.publish(self._chat, made)
        return self._generation

    def applied(self) -> Applied | None:
        """What the replica said last."""
        return next(iter(self._chat.applied.read(self._workloads.mono())), None)

    async def until_applied(self, **wanted: Any) -> Applied:
        """Wait until it says so."""
        deadline = time.monotonic() + LONG_SECONDS
        while True:
            told = self.applied()
            if told is not None and all(getattr(told, name) == value for name, value in wanted.items()):
                return told
            assert time.monotonic() < deadline, f"never applied {wanted}; the last report: {told}"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def publishing(port: int) -> AsyncIterator[Publisher]:
    workloads = FakeWorkloads()
    publisher = Publisher(workloads, workloads.add(WORKLOAD))
    app = make_app(workloads, token=TOKEN, registry=CollectorRegistry(), stopping=asyncio.Event())

    @web.middleware
    async def spoiled(request: web.Request, handler: Any) -> web.StreamResponse:
        if publisher.junk is None:
            answer: web.StreamResponse = await handler(request)
            return answer
        return web.Response(body=publisher.junk, headers={"ETag": '"junk"', "Loadtide-Valid-Seconds": "60"})

    app.middlewares.append(spoiled)
    runner, _ = await start_http(app, "127.0.0.1", port)
    try:
        yield publisher
    finally:
        await runner.cleanup()


def gauges(engine: vllm_cpu.Server) -> dict[str, float]:
    with urllib.request.urlopen(engine.metrics_url, timeout=LONG_SECONDS) as answer:
        page = answer.read().decode()
    return {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples}


def running(engine: vllm_cpu.Server, gauge: str = "vllm:num_requests_running") -> float:
    return gauges(engine)[gauge]


async def until_running(engine: vllm_cpu.Server, wanted: int, gauge: str = "vllm:num_requests_running") -> None:
    """Wait until so many run, and see that it stays: no more are admitted."""
    deadline = time.monotonic() + LONG_SECONDS
    while (now := await asyncio.to_thread(running, engine, gauge)) != wanted:
        assert time.monotonic() < deadline, f"{now:g} run, not {wanted}"
        await asyncio.sleep(0.1)
    for _ in range(5):
        assert await asyncio.to_thread(running, engine, gauge) <= wanted
        await asyncio.sleep(0.1)


@contextmanager
def loaded(engine: vllm_cpu.Server, streams: int = BOOT, max_tokens: int = 60) -> Iterator[None]:
    """``streams`` requests in flight for as long as the body takes; none of them may fail."""
    enough, outcomes = threading.Event(), []
    seconds = load.LONGEST_SECONDS  # beside it a scaler starts twice, which took 40 s each on a busy machine
    kept = load.keep_streams(engine.url, streams=streams, seconds=seconds, max_tokens=max_tokens, enough=enough)
    driving = threading.Thread(target=lambda: outcomes.append(asyncio.run(kept)))
    driving.start()
    try:
        yield
    finally:
        enough.set()
        driving.join()
    [outcome] = outcomes
    assert (outcome.failed, outcome.failures) == (0, [])
    assert outcome.ok >= streams


async def test_running_follows_the_target_without_a_restart(engine: vllm_cpu.Server, port: int) -> None:
    started = gauges(engine)["process_start_time_seconds"]
    async with publishing(port) as loadtide:
        await loadtide.publish(BOOT)
        await loadtide.until_applied(batch_size=BOOT, generation=1)
        with loaded(engine):
            await until_running(engine, BOOT)
            for number, batch in enumerate((8, 32, BOOT), start=2):
                await loadtide.publish(batch)
                await loadtide.until_applied(batch_size=batch, generation=number)
                await until_running(engine, batch)
            await loadtide.publish(BOOT, admission=Admission.HOLD)
            await until_running(engine, 0)  # what ran has finished, nothing was admitted
            await loadtide.publish(BOOT)
            await until_running(engine, BOOT)
            told = gauges(engine)
            assert told["loadtide_engine_batch_size"] == BOOT
            assert told["loadtide_engine_following"] == 1
    assert gauges(engine)["process_start_time_seconds"] == started


async def steps_of_a_prompt(session: aiohttp.ClientSession, url: str, *, at_most: int = 0) -> list[int]:
    """Engine steps while a prompt of 900 tokens is computed: the tokens that another request gets meanwhile, in several
    tries, the least first, for steps also pass while the prompt is on its way. With ``at_most``, until that is seen.
    """
    counted: list[int] = []
    async with asyncio.timeout(2 * LONG_SECONDS):
        while min(counted, default=900) > at_most if at_most else len(counted) < TRIES:
            counted += await steps_beside_one_stream(session, url, TRIES, at_most)
    return sorted(counted)


async def steps_beside_one_stream(session: aiohttp.ClientSession, url: str, tries: int, at_most: int) -> list[int]:
    """What :func:`steps_of_a_prompt` counts until the other request ends: on a busy machine it does so soon."""
    written, streaming = 0, asyncio.Event()

    async def stream() -> None:
        nonlocal written
        usage = {"include_usage": True, "continuous_usage_stats": True}
        body = {"prompt": [5] * 8, "max_tokens": 900, "ignore_eos": True, "stream": True, "stream_options": usage}
        async with session.post(f"{url}/v1/completions", json={"model": "tiny", **body}) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    written = json.loads(line[6:])["usage"]["completion_tokens"]
                    if written > 10:
                        streaming.set()

    counted: list[int] = []
    streamed = asyncio.create_task(stream())
    try:
        await asyncio.wait_for(streaming.wait(), LONG_SECONDS)
        while len(counted) < tries and min(counted, default=900) > at_most:
            before = written
            body = {"model": "tiny", "prompt": [7] * 900, "max_tokens": 1}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                assert answer.status == 200
            if streamed.done():
                break  # it saw a part of them only
            counted.append(written - before)
        return counted
    finally:
        streamed.cancel()


async def test_the_token_budget_is_followed_live(engine: vllm_cpu.Server, port: int) -> None:
    async with publishing(port) as loadtide, aiohttp.ClientSession() as session:
        await loadtide.publish(None, TOKENS)
        await loadtide.until_applied(token_budget=TOKENS, generation=1)
        assert (await steps_of_a_prompt(session, engine.url, at_most=4))[0] <= 4
        await loadtide.publish(None, 1)  # which would let no prompt go on: it gets a block of 128, beside what runs
        await loadtide.until_applied(token_budget=128, generation=2)
        # One try may have been miscounted: a client that stood still reads what was written meanwhile too late.
        assert (await steps_of_a_prompt(session, engine.url))[1] >= 900 // 128
        await loadtide.publish(None, TOKENS)
        await loadtide.until_applied(token_budget=TOKENS, generation=3)
        assert (await steps_of_a_prompt(session, engine.url, at_most=4))[0] <= 4


async def test_a_hundred_random_targets_and_answers_that_are_none_fail_no_request(
    engine: vllm_cpu.Server, port: int
) -> None:
    chance = random.Random(7)
    async with publishing(port) as loadtide:
        with loaded(engine):
            for number in range(100):
                admission = chance.choice([Admission.OPEN] * 4 + [Admission.HOLD, Admission.SHED])
                budget = chance.choice([None, 1, chance.randrange(1, 4000)])
                await loadtide.publish(chance.choice([None, 1, 10**6, chance.randrange(1, 100)]), budget, admission)
                if number % 10 == 0:
                    bad = [b"{", b"[]", b"<html>", b'{"batch_size": 0}', b'{"batch_size": -5}', b'{"batch_size": "8"}']
                    loadtide.junk = chance.choice(bad)
                await asyncio.sleep(0.1)
                loadtide.junk = None
            await loadtide.publish(16)
            await loadtide.until_applied(batch_size=16, token_budget=TOKENS, admission="open")
            await until_running(engine, 16)
            generation = await loadtide.publish(16, valid_seconds=SHORT_SECONDS)
            await loadtide.until_applied(batch_size=16, generation=generation)
            loadtide.junk = b'{"batch_size": 0}'  # and nothing else any more
            await until_running(engine, BOOT)  # what was held has expired
            loadtide.junk = None
            await loadtide.until_applied(batch_size=16, generation=await loadtide.publish(16))
            await until_running(engine, 16)


async def test_a_killed_scaler_gives_the_engine_back_and_a_new_one_takes_it_on(
    engine: vllm_cpu.Server, port: int, tmp_path: Any
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"workloads:\n  {WORKLOAD}:\n    scrape: {{urls: [{engine.metrics_url!r}]}}\n    batch: {{max: 12}}\n"
    )
    arguments = ("--policy", str(policy), "--store", str(tmp_path / "memory.db"), "--http", f"127.0.0.1:{port}")

    def reported(scaler: Any) -> dict[str, float]:
        families = text_string_to_metric_families(scaler.text("/metrics"))
        samples = [sample for family in families for sample in family.samples]
        return {
            sample.labels["replica"]: sample.value
            for sample in samples
            if sample.name == "loadtide_applied_batch_size" and sample.labels["workload"] == "tiny"
        }

    async def until_reported(scaler: Any) -> None:
        deadline = time.monotonic() + LONG_SECONDS
        while (told := await asyncio.to_thread(reported, scaler)) != {"tiny-0": 12.0}:
            assert time.monotonic() < deadline, f"never reported 12; last: {told}"
            await asyncio.sleep(0.1)
        document = scaler.get(f"/v1/workloads/{WORKLOAD}")
        assert document["capacity"]["sequences"] <= 12

    def scaling() -> Any:
        quick = ("--tick-seconds", "1")
        return running_scaler(tmp_path, *arguments, *quick, environment={"LOADTIDE_TOKEN": TOKEN})

    with loaded(engine):
        with scaling() as scaler:
            await until_reported(scaler)
            await until_running(engine, 12)
            scaler.kill()
        await until_running(engine, BOOT)  # the last target was valid for 12 ticks
        with scaling() as scaler:
            await until_reported(scaler)
            await until_running(engine, 12)
