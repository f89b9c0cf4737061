"""The scaler as an agent sees it: a target by long poll, held no longer than it is vouched for, and reports back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from scaler.agent.relay import Relay, ScalerAddress
from scaler.consume.contract import VALID_SECONDS_HEADER, AppliedReport, ServedTarget, parse_report


class Scaler:
    """The two routes of a scaler. ``status`` other than 200 is what it answers instead."""

    def __init__(self) -> None:
        self.batch: int | None = 32
        self.generation = 1
        self.valid = 30.0
        self.status = 200
        self.body: bytes | None = None
        self.asked: list[web.Request] = []
        self.reports: list[AppliedReport] = []
        self.report_status = 202
        self.hangs = False

    @property
    def tag(self) -> str:
        return f'"{self.generation}"'

    async def target(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        if self.hangs:
            await asyncio.sleep(60)
        if self.status != 200:
            return web.json_response({"error": "no workload 'chat/m'; known: chat/n"}, status=self.status)
        headers = {"ETag": self.tag, VALID_SECONDS_HEADER: str(self.valid)}
        if request.headers.get("If-None-Match") == self.tag:
            await asyncio.sleep(min(float(request.query["wait"]), 0.05))
            if request.headers.get("If-None-Match") == self.tag:
                return web.Response(status=304, headers=headers)
        told = ServedTarget(
            "chat/m", self.batch, None, "open", self.generation, datetime(2026, 6, 3, tzinfo=UTC), self.valid
        )
        return (
            web.json_response(told.document(), headers=headers) if self.body is None else web.Response(body=self.body)
        )

    async def applied(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer push":
            return web.json_response({"error": "a wrong token"}, status=401)
        self.reports.append(parse_report(await request.read()))
        return web.json_response({"accepted": True}, status=self.report_status)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def relaying(scaler: Scaler, clock: Clock, token: str = "push") -> AsyncIterator[Relay]:
    app = web.Application()
    app.add_routes([
        web.get("/v1/workloads/chat/m/target", scaler.target),
        web.post("/v1/workloads/chat/m/applied", scaler.applied),
    ])  # fmt: skip
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = ScalerAddress(
        f"http://127.0.0.1:{runner.addresses[0][1]}/", "chat/m", read_token="read", push_token=token
    )
    try:
        async with aiohttp.ClientSession() as session:
            yield Relay(session, address, mono=clock, changed=lambda: None)
    finally:
        await runner.cleanup()


async def test_a_target_is_held_while_it_is_renewed() -> None:
    scaler, clock = Scaler(), Clock()
    async with relaying(scaler, clock) as relay:
        assert relay.target() is None
        assert await relay._ask() == ""
        held = relay.target()
        assert held is not None
        assert (held.batch_size, held.generation) == (32, 1)
        clock.now += 29
        assert await relay._ask() == ""  # 304, and good for another 30 s
        clock.now += 29
        assert relay.target() is not None
        clock.now += 1
        assert relay.target() is None
    first, second = scaler.asked
    assert first.headers["Authorization"] == "Bearer read"
    assert "If-None-Match" not in first.headers
    assert second.headers["If-None-Match"] == '"1"'
    assert float(second.query["wait"]) <= 10.0, "well before the target ends"


async def test_another_target_takes_its_place() -> None:
    scaler, clock = Scaler(), Clock()
    async with relaying(scaler, clock) as relay:
        await relay._ask()
        scaler.batch, scaler.generation = 8, 2
        await relay._ask()
        held = relay.target()
        assert held is not None
        assert held.batch_size == 8


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_a_refusal_leaves_what_is_held_until_it_ends(status: int) -> None:
    scaler, clock = Scaler(), Clock()
    async with relaying(scaler, clock) as relay:
        await relay._ask()
        scaler.status = status
        assert f"HTTP {status}" in await relay._ask()
        assert relay.target() is not None
        clock.now += 30
        assert relay.target() is None


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"<html>", b'{"batch_size": "many"}', b'{"batch_size": -5}', b'{"other": 1}', b"\xff" * 200_000],
)
async def test_what_is_no_target_changes_nothing(body: bytes) -> None:
    scaler, clock = Scaler(), Clock()
    async with relaying(scaler, clock) as relay:
        await relay._ask()
        scaler.generation, scaler.body = 2, body
        assert await relay._ask() != ""
        held = relay.target()
        assert held is not None
        assert held.batch_size == 32


async def test_a_target_nobody_vouches_for_is_none() -> None:
    """``valid_seconds`` 0: a replica of the scaler that has not heard the owner for too long."""
    scaler, clock = Scaler(), Clock()
    scaler.valid = 0.0
    async with relaying(scaler, clock) as relay:
        assert await relay._ask() == "the scaler vouches for its target no longer"
        assert relay.target() is None


async def test_a_scaler_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaler.agent.relay.ANSWER_SECONDS", 0.1)
    scaler, clock = Scaler(), Clock()
    scaler.hangs = True
    async with relaying(scaler, clock) as relay:
        assert await relay._ask() == "the scaler does not answer"


async def test_the_loop_asks_again_and_again_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaler.agent.relay.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("scaler.agent.relay.RETRY_SECONDS", 0.01)
    scaler, clock = Scaler(), Clock()
    scaler.status = 503
    async with relaying(scaler, clock) as relay:
        task = asyncio.ensure_future(relay.run())
        await until(lambda: len(scaler.asked) > 2)
        assert "HTTP 503" in relay.trouble
        scaler.status = 200
        await until(lambda: not relay.trouble)
        assert relay.target() is not None
        task.cancel()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110  - what is waited for is another task's attribute
            await asyncio.sleep(0.01)


async def test_what_is_applied_is_reported() -> None:
    scaler, clock = Scaler(), Clock()
    report = AppliedReport("llama-0", 8, running=3, generation=1)
    async with relaying(scaler, clock) as relay:
        assert await relay.report(report)
        assert scaler.reports == [report]
        scaler.report_status = 503
        assert not await relay.report(report)
        assert "HTTP 503" in relay.push_troubles["applied"]


async def test_a_wrong_token_is_told_and_harms_nothing() -> None:
    scaler, clock = Scaler(), Clock()
    async with relaying(scaler, clock, token="old") as relay:
        assert not await relay.report(AppliedReport("llama-0", 8))
        assert "HTTP 401" in relay.push_troubles["applied"]
        assert "a wrong token" in relay.push_troubles["applied"]


async def test_a_name_that_is_not_known_is_said_with_what_belongs_there() -> None:
    """Of a manifest made for another namespace."""
    async with aiohttp.ClientSession() as session:
        address = ScalerAddress("http://loadtide.nowhere.invalid:8080", "chat/m")
        trouble = await Relay(session, address, mono=Clock(), changed=lambda: None)._ask()
    assert trouble.startswith("the name loadtide.nowhere.invalid is not known here (")
    assert trouble.endswith(
        "; --scaler or LOADTIDE_SCALER is http://SERVICE.NAMESPACE.svc:8080 of the scaler's Service"
    )


@pytest.mark.parametrize(
    "url", ["http://" + "a" * 300, "http://[::1", "http://127.0.0.1:99999", "http://no.such.invalid"]
)
async def test_an_address_that_is_none_is_a_reason(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        relay = Relay(session, ScalerAddress(url, "chat/m"), mono=Clock(), changed=lambda: None)
        assert await relay._ask() != ""
        assert not await relay.report(AppliedReport("llama-0", 8))
