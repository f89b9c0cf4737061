"""The plugin's link to loadtide: against our own API over a loopback socket, and against what is no answer of it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import loadtide_vllm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadtide_vllm import Applied, Follower, Link, Target, settings_of
from prometheus_client import CollectorRegistry, generate_latest

from scaler.consume.contract import ContractError, parse_target
from scaler.control.model import Admission, Targets
from scaler.serve.http import make_app, start_http
from tests.plugins.fake_scheduler import Scheduler032
from tests.serve.tide import FakeWorkload, FakeWorkloads, snapshot

TOKEN, READ_TOKEN = "engine's own", "reader"


def link_to(url: str, **more: str) -> Link:
    settings = settings_of({"LOADTIDE_URL": url, "LOADTIDE_WORKLOAD": "team-a/chat", "POD_NAME": "chat-0", **more})
    assert settings is not None
    return Link(settings)


class Scaler:
    """Our own API, served; it changes its mind when a test says so."""

    def __init__(self, workloads: FakeWorkloads, chat: FakeWorkload, url: str) -> None:
        self.workloads, self.chat, self.url = workloads, chat, url

    async def decide(self, generation: int, batch: int | None, admission: Admission = Admission.OPEN) -> None:
        targets = Targets(2, True, batch, None, admission)
        await self.workloads.publish(self.chat, snapshot(generation=generation, targets=targets))


@pytest.fixture
async def scaler() -> AsyncIterator[Scaler]:
    workloads = FakeWorkloads()
    chat = workloads.add("team-a/chat", snapshot())
    app = make_app(
        workloads, token=TOKEN, registry=CollectorRegistry(), stopping=asyncio.Event(), read_token=READ_TOKEN
    )
    runner, port = await start_http(app, "127.0.0.1", 0)
    yield Scaler(workloads, chat, f"http://127.0.0.1:{port}")
    await runner.cleanup()


async def test_what_the_scaler_decides_is_held_renewed_and_replaced(scaler: Scaler) -> None:
    link = link_to(scaler.url, LOADTIDE_READ_TOKEN=READ_TOKEN)
    assert link.target() is None
    began = time.monotonic()
    assert await asyncio.to_thread(link.fetch)
    assert link.target() == Target(32, None, "open", 7)
    held = link._held
    assert held is not None
    assert began + 58 < held.ends < time.monotonic() + 60  # the snapshot's 60 s, less the second it is old

    link._held = held._replace(ends=time.monotonic() + 2.0)
    assert not await asyncio.to_thread(link.fetch)  # 304
    assert link._held.ends >= held.ends

    link._held = held._replace(ends=time.monotonic() + 30)
    waiting = asyncio.create_task(asyncio.to_thread(link.fetch))
    await asyncio.sleep(0.1)
    await scaler.decide(8, 16, Admission.HOLD)
    assert await asyncio.wait_for(waiting, 60)  # the long poll ends with the decision
    assert link.target() == Target(16, None, "hold", 8)


async def test_a_target_that_nobody_renews_ends(scaler: Scaler) -> None:
    link = link_to(scaler.url, LOADTIDE_READ_TOKEN=READ_TOKEN)
    await asyncio.to_thread(link.fetch)
    assert link._held is not None
    link._held = link._held._replace(ends=time.monotonic() + 30.0)
    assert link.target() is not None
    link._held = link._held._replace(ends=time.monotonic())
    assert link.target() is None


async def test_what_is_applied_is_reported_as_the_scaler_takes_it(scaler: Scaler, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    link = link_to(scaler.url, LOADTIDE_TOKEN_FILE=str(tmp_path / "token"), LOADTIDE_READ_TOKEN=READ_TOKEN)
    follower = Follower(Scheduler032(max_num_seqs=64, max_num_batched_tokens=2048), link)
    await asyncio.to_thread(link.report, follower)
    await asyncio.to_thread(link.fetch)
    [before] = scaler.chat.applied.read(101.0)
    assert (before.replica, before.batch_size, before.token_budget, before.generation) == ("chat-0", 64, 2048, None)
    await asyncio.to_thread(link.report, follower)
    [after] = scaler.chat.applied.read(101.0)
    assert (after.batch_size, after.running, after.generation) == (32, 0, 7)

    (tmp_path / "token").write_text("replaced by a wrong one")
    with pytest.raises(OSError, match="HTTP 401"):
        await asyncio.to_thread(link.report, follower)


def test_scalers_that_disagree_are_not_asked_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        pass

    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Ended

    link = link_to("http://127.0.0.1:9")
    answers = iter(range(100))

    def fetch() -> bool:
        if next(answers) == 50:
            raise Ended  # it asks and asks
        return True

    monkeypatch.setattr(link, "fetch", fetch)
    monkeypatch.setattr(loadtide_vllm.time, "sleep", sleep)
    with pytest.raises(Ended):
        link._fetch_for_ever(Follower(Scheduler032(max_num_seqs=64), link))
    assert pauses == [0.25] * 3


async def test_refusals_say_what_to_do(scaler: Scaler) -> None:
    with pytest.raises(OSError, match=r"HTTP 401.*read token"):
        await asyncio.to_thread(link_to(scaler.url).fetch)
    elsewhere = link_to(scaler.url, LOADTIDE_WORKLOAD="team-a/chta", LOADTIDE_READ_TOKEN=READ_TOKEN)
    with pytest.raises(OSError, match=r"HTTP 404.*no workload 'team-a/chta'"):
        await asyncio.to_thread(elsewhere.fetch)


async def test_the_threads_follow_report_and_outlive_the_scaler(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loadtide_vllm, "RETRY_SECONDS", 0.05)
    caplog.set_level(logging.INFO, "vllm.loadtide")
    link = link_to(scaler.url, LOADTIDE_TOKEN=TOKEN, LOADTIDE_READ_TOKEN=READ_TOKEN)
    follower = Follower(Scheduler032(max_num_seqs=64), link)
    link.start(follower)

    async def until(batch: int, generation: int | None) -> None:
        for _ in range(1200):
            told = scaler.chat.applied.read(101.0)
            if told and (told[0].batch_size, told[0].generation) == (batch, generation):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never told {batch}; last: {told}")

    await until(32, 7)
    await scaler.decide(8, 8)
    await until(8, 8)
    scaler.workloads.remove("team-a/chat")  # every answer is a refusal now
    assert link._held is not None
    await scaler.decide(9, 9)
    for _ in range(1200):
        if link._said.get("fetch"):
            break
        await asyncio.sleep(0.05)
    link._held = link._held._replace(ends=0.0)
    assert follower.applied() == Applied(64, 64, "open", None)
    assert next(record.message for record in caplog.records if "no target from" in record.message).count("404")


# -- what is no answer of ours


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A server that says the same to everybody."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


GOOD = {"batch_size": 8, "token_budget": None, "admission": "open", "generation": 3, "valid_seconds": 30.0}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>gateway timeout</html>",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b"[" * 30_000,
        b"x" * 200_000,
        *(
            json.dumps(GOOD | wrong).encode()
            for wrong in (
                {"batch_size": 0},
                {"batch_size": -5},
                {"batch_size": "8"},
                {"batch_size": 8.5},
                {"batch_size": True},
                {"token_budget": []},
                {"admission": "closed"},
                {"admission": None},
                {"generation": "seven"},
            )
        ),
    ],
)
def test_a_bad_answer_changes_nothing_of_what_is_held(body: bytes) -> None:
    with answering(200, json.dumps(GOOD).encode()) as url:
        link = link_to(url)
        link.fetch()
    held = link._held
    with answering(200, body) as url:
        other = link_to(url)
        other._held = held
        with pytest.raises((ValueError, RecursionError)):
            other.fetch()
        assert other._held == held
        assert other.target() == Target(8, None, "open", 3)


@pytest.mark.parametrize("status", [204, 400, 401, 404, 429, 500, 502, 503])
def test_an_answer_that_is_none_is_raised_and_changes_nothing(status: int) -> None:
    with answering(status, b'{"error": "no"}' if status != 204 else b"") as url:
        link = link_to(url)
        with pytest.raises((OSError, ValueError)):
            link.fetch()
        assert link.target() is None


def test_a_redirect_is_not_followed_for_it_would_carry_the_token_away() -> None:
    with answering(200, json.dumps(GOOD).encode()) as elsewhere, answering(302, b"", Location=elsewhere) as url:
        link = link_to(url, LOADTIDE_TOKEN=TOKEN)
        with pytest.raises(OSError, match="HTTP 302"):
            link.fetch()


@pytest.mark.parametrize(
    ("said", "lasts"), [({}, 30.0), ({"Loadtide_Valid_Seconds": "12"}, 12.0), ({"Loadtide_Valid_Seconds": "nan"}, 0.0)]
)
def test_how_long_a_target_lasts_is_in_its_header_or_else_its_body(said: dict[str, str], lasts: float) -> None:
    with answering(200, json.dumps(GOOD).encode(), **said) as url:
        link = link_to(url)
        before = time.monotonic()
        link.fetch()
        assert link._held is not None
        assert before + lasts <= link._held.ends <= time.monotonic() + lasts


def test_nobody_there_is_an_error_like_any_other() -> None:
    link = link_to("http://127.0.0.1:9")
    with pytest.raises(OSError, match="refused"):
        link.fetch()


whatever = st.none() | st.booleans() | st.integers(-3, 10) | st.floats() | st.sampled_from(["open", "hold", "8", ""])


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), whatever).map(lambda wrong: GOOD | wrong))
def test_it_takes_no_target_that_the_contract_refuses_and_reads_the_others_alike(document: dict[str, Any]) -> None:
    document |= {"valid_until": "2026-01-05T09:00:00Z"}
    try:
        read = loadtide_vllm.parse_target(document)
    except ValueError:
        return
    body = json.dumps(document)
    try:
        ours = parse_target(body)
    except ContractError as error:
        raise AssertionError(f"the plugin takes what the contract refuses: {error}") from error
    assert read == Target(ours.batch_size, ours.token_budget, ours.admission, ours.generation)


# -- gauges in the engine's own /metrics


def test_the_api_server_tells_what_the_engine_cores_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loadtide_vllm.STATE_VARIABLE, str(tmp_path))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    registry = CollectorRegistry()
    registry.register(loadtide_vllm.StateCollector())
    assert generate_latest(registry) == b""
    link = link_to("http://127.0.0.1:9")
    loadtide_vllm.publish(Follower(Scheduler032(max_num_seqs=64, max_num_batched_tokens=2048), link))
    link._held = loadtide_vllm.Held(Target(8, 512, "open", 3), "", float("inf"))
    second = Scheduler032(max_num_seqs=64, max_num_batched_tokens=2048, parallel={"data_parallel_index": 1})
    loadtide_vllm.publish(Follower(second, link))
    (tmp_path / "2.json").write_text("half wri")
    (tmp_path / "3.json").write_text(json.dumps({"pid": 2**22 + 1, "gauges": {"loadtide_engine_batch_size": 1.0}}))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert lines == [
        'loadtide_engine_batch_size{engine="0"} 64.0',
        'loadtide_engine_batch_size{engine="1"} 8.0',
        'loadtide_engine_token_budget{engine="0"} 2048.0',
        'loadtide_engine_token_budget{engine="1"} 512.0',
        'loadtide_engine_following{engine="0"} 0.0',
        'loadtide_engine_following{engine="1"} 1.0',
    ]


def test_a_folder_that_is_gone_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loadtide_vllm.STATE_VARIABLE, os.fspath(tmp_path / "gone"))
    loadtide_vllm.publish(Follower(Scheduler032(), link_to("http://127.0.0.1:9")))
    assert list(tmp_path.iterdir()) == []


def test_a_password_in_the_scalers_url_is_refused_and_not_repeated() -> None:
    """urllib would take it for a part of the host, and the log would name it with every trouble."""
    with pytest.raises(ValueError, match="LOADTIDE_TOKEN_FILE") as refusal:
        settings_of({"LOADTIDE_URL": "http://user:hush@loadtide:8080", "LOADTIDE_WORKLOAD": "team-a/chat"})
    assert "hush" not in str(refusal.value)
