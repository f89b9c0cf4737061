"""A real Prometheus between a replica and us: the same signals as by scraping, and every way it can fall silent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import mean
from threading import Thread

import aiohttp
import pytest
import yaml

from scaler.policy.layers import PolicyFile
from scaler.serve.observe import Observer
from scaler.serve.workloads import Workloads
from scaler.signals.model import Known, Signal, Signals, Stale, Unknown
from scaler.signals.observation import EngineSample, Observation, ReadFailure
from scaler.signals.window import History, fold
from tests.patience import LONG_SECONDS, comes_to
from tests.real import prometheus_server
from tests.real.prometheus_server import Server, Target

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("prometheus")]

#: Prometheus scrapes and we ask this often.
SECONDS = 1.0
#: Longer than a machine stands still: what is held is to be seen held.
HOLD_SECONDS = 12.0


@dataclass
class Page:
    """A replica's page whose text a test sets. ``address`` is its host and port."""

    text: str = ""
    address: str = ""


@contextmanager
def serving(page: Page) -> Iterator[Page]:
    """``page`` on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page.text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    page.address = f"127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield page
    finally:
        server.shutdown()
        server.server_close()


def vllm(model: str, running: int, waiting: int) -> str:
    """A vLLM's page with these gauges."""
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    labels = f'{{engine="0",model_name="{escaped}"}}'
    return f"vllm:num_requests_running{labels} {running}\nvllm:num_requests_waiting{labels} {waiting}\n"


@contextmanager
def standin() -> Iterator[str]:
    """A stand-in engine under its wave of load; gives its host and port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scaler.lab.standin", "--wave", "--speed", "4"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"].removeprefix("http://")
    finally:
        process.terminate()
        process.wait(10)


class Reader:
    """Workloads read by the server's own observer and fold, tick by tick."""

    def __init__(self, server: Server, session: aiohttp.ClientSession, workloads: dict[str, object]) -> None:
        policy = {
            "sources": {"main": {"url": server.url, "timeout_seconds": 1}},
            "defaults": {"hold_seconds": HOLD_SECONDS, "window_seconds": 10},
            "workloads": workloads,
        }
        self._workloads = Workloads(PolicyFile.parse("policy.yaml", yaml.safe_dump(policy)), tick_seconds=SECONDS)
        self._observer = Observer(self._workloads)
        self._session = session
        self._histories: dict[str, History] = {}
        self.observations: dict[str, Observation] = {}

    async def tick(self) -> dict[str, Signals]:
        """Every workload's signals now."""
        signals = {}
        for name in self._workloads.names():
            workload = self._workloads.get(name)
            assert workload is not None
            observation = await self._observer(workload, self._session, time.monotonic)
            self.observations[name] = observation
            self._histories[name], signals[name] = fold(
                self._histories.get(name, History()),
                observation,
                time.monotonic(),
                workload.resolved.policy,
                interval_seconds=SECONDS,
                now_unix=time.time(),
            )
        return signals

    async def until(self, name: str, wanted: type[Signal[float]], seconds: float = LONG_SECONDS) -> Signals:  # type: ignore[type-arg]
        """The signals of ``name`` at the first tick where ``running`` is of this status."""
        due = time.monotonic() + seconds
        while True:
            signals = (await self.tick())[name]
            if isinstance(signals.running, wanted):
                return signals
            assert time.monotonic() < due, f"running is {signals.running}, not {wanted.__name__}, after {seconds} s"
            await asyncio.sleep(SECONDS / 4)


def reading(**match: str) -> dict[str, object]:
    return {"prometheus": {"source": "main", "scrape_interval_seconds": SECONDS, "match": match}}


def known(signal: Signal[float]) -> float:
    assert isinstance(signal, Known), signal
    return signal.value


async def test_a_prometheus_in_between_gives_the_signals_that_scraping_gives(tmp_path: Path) -> None:
    with standin() as address:
        target = Target(address, {"namespace": "chat", "pod": "m-0"})
        with prometheus_server.serve(tmp_path, [target], scrape_seconds=SECONDS) as server:
            server.wait_for("vllm:num_requests_running")
            workloads: dict[str, object] = {
                "chat/direct": {"scrape": {"urls": [f"http://{address}/metrics"]}},
                "chat/between": reading(namespace="chat", model_name="stand-in"),
            }
            async with aiohttp.ClientSession() as session:
                reader = Reader(server, session, workloads)
                ticks: list[dict[str, Signals]] = []

                async def alike() -> None:
                    ticks.append(await reader.tick())
                    await asyncio.sleep(SECONDS)
                    agree(ticks)

                await comes_to(alike, 120)


def agree(ticks: list[dict[str, Signals]]) -> None:
    """Of the last ticks in which both could be read: a machine that stands still may cost one of them a reading."""
    read = [tick for tick in ticks if all(isinstance(each.kv_use_ratio, Known) for each in tick.values())]
    assert len(read) >= 30
    direct, between = ([tick[f"chat/{name}"] for tick in read[-18:]] for name in ("direct", "between"))
    assert mean(known(each.arrivals_per_second) for each in direct) > 1, "without load nothing is compared"
    for name, tolerance in (
        ("arrivals_per_second", 0.10),
        ("finished_per_second", 0.10),
        ("generation_tokens_per_second", 0.10),
        ("running", 0.15),
        ("waiting", 0.25),
        ("kv_use_ratio", 0.15),
    ):
        one, other = (mean(known(getattr(each, name)) for each in line) for line in (direct, between))
        assert other == pytest.approx(one, rel=tolerance, abs=0.5), name
    ttft = [known_latency(line[-1].ttft_seconds) for line in (direct, between)]
    assert ttft[1] == pytest.approx(ttft[0], rel=0.25)
    assert all(known(each.ready_replicas) == 1 for each in between)


def known_latency(signal: object) -> float:
    assert isinstance(signal, Known), signal
    return float(signal.value.mean_seconds)


async def test_an_exporter_that_stops_is_held_then_unknown_and_one_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    first, second = Page(vllm("m", 3, 1)), Page(vllm("m", 4, 2))
    with serving(first), serving(second) as stopping:
        targets = [
            Target(page.address, {"namespace": "chat", "pod": name}) for page, name in ((first, "a"), (second, "b"))
        ]
        with prometheus_server.serve(tmp_path, targets, scrape_seconds=SECONDS) as server:
            server.wait_for("vllm:num_requests_running", 2)
            async with aiohttp.ClientSession() as session:
                reader = Reader(server, session, {"chat/m": reading(namespace="chat", model_name="m")})
                signals = await reader.until("chat/m", Known)
                assert (known(signals.running), known(signals.waiting), known(signals.ready_replicas)) == (7, 3, 2)

                stopping.text = "not a metrics page {"

                async def held() -> None:
                    running = (await reader.tick())["chat/m"].running
                    assert isinstance(running, Stale)
                    failure = reader.observations["chat/m"].endpoints.get("b")
                    assert isinstance(failure, ReadFailure)
                    assert failure.reason == "source main: cannot scrape it (up is 0)"
                    assert (running.value, running.at_least) == (7.0, 3.0)

                await comes_to(held)

                server.retarget(targets[:1])  # what service discovery does when a pod is deleted
                assert known((await reader.until("chat/m", Known)).running) == 3

                first.text = "not a metrics page {"
                assert isinstance((await reader.until("chat/m", Stale)).waiting, Stale)
                signals = await reader.until("chat/m", Unknown)
                assert isinstance(signals.arrivals_per_second, Unknown)
                first.text = vllm("m", 5, 0)
                assert known((await reader.until("chat/m", Known)).running) == 5


async def test_a_prometheus_that_hangs_costs_its_time_limit_and_no_signal_becomes_zero(tmp_path: Path) -> None:
    with (
        serving(Page(vllm("m", 3, 1))) as page,
        prometheus_server.serve(tmp_path, [Target(page.address, {"pod": "a"})], scrape_seconds=SECONDS) as server,
    ):
        server.wait_for("vllm:num_requests_running")
        async with aiohttp.ClientSession() as session:
            reader = Reader(server, session, {"chat/m": reading(model_name="m")})
            await reader.until("chat/m", Known)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                signals = (await reader.until("chat/m", Stale)).running
                assert isinstance(signals, Stale)
                assert signals.value == 3.0
                assert reader.observations["chat/m"].lost == "source main: timed out after 1 s"
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await reader.until("chat/m", Known)


MODELS = ["org/m+x", 'a"b', "back\\slash", "two\nlines", '"} or vector(1) #', "/data/models/gemma (v2)"]


async def test_any_label_value_binds_exactly_its_own_series(tmp_path: Path) -> None:
    pages = [Page(vllm(model, number + 1, 0)) for number, model in enumerate(MODELS)]
    with (
        serving(pages[0]),
        serving(pages[1]),
        serving(pages[2]),
        serving(pages[3]),
        serving(pages[4]),
        serving(pages[5]),
    ):
        # The namespace is what a query may be narrowed by: so it is odd, too.
        targets = [
            Target(page.address, {"namespace": model, "pod": f"p{number}"})
            for number, (page, model) in enumerate(zip(pages, MODELS, strict=True))
        ]
        workloads: dict[str, object] = {
            f"chat/m{number}": reading(namespace=model, model_name=model) for number, model in enumerate(MODELS)
        }
        with prometheus_server.serve(tmp_path, targets, scrape_seconds=SECONDS) as server:
            server.wait_for("vllm:num_requests_running", len(MODELS))
            async with aiohttp.ClientSession() as session:
                everybodys = Reader(server, session, workloads)
                one = Reader(server, session, {"chat/m": workloads["chat/m1"]})

                async def bound() -> None:
                    signals, (alone,) = await everybodys.tick(), (await one.tick()).values()
                    running = [known(signals[f"chat/m{number}"].running) for number in range(len(MODELS))]
                    assert running == [1, 2, 3, 4, 5, 6]
                    assert known(alone.running) == 2

                await comes_to(bound)


async def test_queries_of_the_operators_own_are_judged_as_prometheus_answers_them(tmp_path: Path) -> None:
    first, second = Page(vllm("m", 3, 1)), Page(vllm("m", 4, 2))
    with serving(first), serving(second):
        targets = [Target(page.address, {"pod": name}) for page, name in ((first, "a"), (second, "b"))]
        with prometheus_server.serve(tmp_path, targets, scrape_seconds=SECONDS) as server:
            server.wait_for("vllm:num_requests_waiting", 2)
            queries = {
                "running": "sum(vllm:num_requests_running)",
                "waiting": "vllm:num_requests_waiting",
                "kv_use_ratio": "absent_metric",
                "ready_replicas": "scalar(count(vllm:num_requests_running))",
                "pending": "vllm:num_requests_waiting[1m]",
                "applied_batch": "sum(vllm:num_requests_running) / 0",
            }
            async with aiohttp.ClientSession() as session:
                reader = Reader(server, session, {"chat/m": {"prometheus": {"source": "main", "queries": queries}}})

                async def judged() -> None:
                    signals = (await reader.tick())["chat/m"]
                    assert (known(signals.running), known(signals.ready_replicas)) == (7, 2)
                    reasons = {name: each.reason for name, each in reader.observations["chat/m"].queried.items()}
                    assert reasons["waiting"].startswith("the query gives 2 series; write sum(...) around it")
                    assert reasons["kv_use_ratio"] == "the query gives no series"
                    assert reasons["applied_batch"] == "the query gives inf, which is no quantity"
                    assert reasons["pending"] == "the answer is a matrix; a query must give a vector or a number"
                    assert isinstance(signals.waiting, Unknown)

                await comes_to(judged)


async def test_a_round_is_as_old_as_its_samples(tmp_path: Path) -> None:
    with (
        serving(Page(vllm("m", 3, 1))) as page,
        prometheus_server.serve(tmp_path, [Target(page.address, {"pod": "a"})], scrape_seconds=5.0) as server,
    ):
        server.wait_for("vllm:num_requests_running")
        async with aiohttp.ClientSession() as session:
            reader = Reader(server, session, {"chat/m": reading(model_name="m")})

            async def as_old() -> None:
                await reader.tick()
                sample = reader.observations["chat/m"].endpoints.get("a")
                assert isinstance(sample, EngineSample)
                (found,) = server.query("timestamp(vllm:num_requests_running)")
                age = time.monotonic() - sample.at
                assert age == pytest.approx(time.time() - float(found["value"][1]), abs=0.5)
                assert 1.5 < age < 7

            await comes_to(as_old)
