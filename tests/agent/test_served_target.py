"""A target served to an engine that asks for it itself: the scaler's contract, from the agent beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from scaler.agent.ruling import Ruling
from scaler.agent.served_target import VALID_SECONDS, ServedTargets
from scaler.consume.contract import VALID_SECONDS_HEADER, AppliedReport, hold, valid_seconds

PATH = "/v1/workloads/chat/m/target"


class Rules:
    """What rules, and what the engine reported."""

    def __init__(self) -> None:
        self.ruling = Ruling(32, 2048, "open", 7, "target")
        self.reports: list[AppliedReport] = []
        self.taken = True

    async def reported(self, report: AppliedReport) -> bool:
        self.reports.append(report)
        return self.taken


@asynccontextmanager
async def serving(rules: Rules) -> AsyncIterator[tuple[aiohttp.ClientSession, ServedTargets]]:
    served = ServedTargets("chat/m", lambda: rules.ruling, rules.reported)
    app = web.Application(client_max_size=64 * 1024)
    app.add_routes(served.routes())
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as session:
            yield session, served
    finally:
        await runner.cleanup()


async def test_a_consumer_holds_it_as_it_would_the_scalers() -> None:
    async with serving(Rules()) as (session, _), session.get(PATH) as answer:
        held = hold(await answer.read(), answer.headers["ETag"], 100.0)
        target = held.at(100.0 + VALID_SECONDS - 0.1)
        assert target is not None
        assert (target.batch_size, target.token_budget, target.admission, target.generation) == (32, 2048, "open", 7)
        assert held.at(100.0 + VALID_SECONDS) is None, "an agent that died leaves nothing behind"


async def test_nothing_that_rules_is_the_engines_own_setting() -> None:
    rules = Rules()
    rules.ruling = Ruling()
    async with serving(rules) as (session, _), session.get(PATH) as answer:
        document = await answer.json()
        assert (document["batch_size"], document["token_budget"], document["admission"]) == (None, None, "open")


async def test_one_that_waits_hears_of_another_at_once() -> None:
    rules = Rules()
    async with serving(rules) as (session, served):
        known = {"If-None-Match": rules.ruling.tag}
        waiting = asyncio.ensure_future(session.get(PATH, params={"wait": "30"}, headers=known))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        rules.ruling = Ruling(8, None, "hold", 7, "guard")
        served.changed()
        async with asyncio.timeout(60), await waiting as answer:
            assert answer.status == 200
            assert (await answer.json())["batch_size"] == 8


async def test_without_another_it_is_renewed() -> None:
    rules = Rules()
    async with (
        serving(rules) as (session, _),
        session.get(PATH, params={"wait": "0.1"}, headers={"If-None-Match": rules.ruling.tag}) as answer,
    ):
        assert answer.status == 304
        assert valid_seconds(answer.headers[VALID_SECONDS_HEADER]) == VALID_SECONDS


async def test_the_end_lets_everybody_go() -> None:
    rules = Rules()
    async with serving(rules) as (session, served):
        known = {"If-None-Match": rules.ruling.tag}
        waiting = asyncio.ensure_future(session.get(PATH, params={"wait": "30"}, headers=known))
        await asyncio.sleep(0.1)
        served.stop()
        async with asyncio.timeout(60), await waiting as answer:
            assert answer.status == 304


@pytest.mark.parametrize("wait", ["", "soon", "-1", "nan", "inf", "1e999"])
async def test_a_wait_that_is_none(wait: str) -> None:
    rules = Rules()
    async with (
        serving(rules) as (session, _),
        asyncio.timeout(60),
        session.get(PATH, params={"wait": wait}, headers={"If-None-Match": rules.ruling.tag}) as answer,
    ):
        assert answer.status == 304


async def test_what_it_applied_goes_on_to_the_scaler() -> None:
    rules = Rules()
    report = AppliedReport("llama-0", 8, 2048, "open", 3, 7)
    async with serving(rules) as (session, _):
        async with session.post("/v1/workloads/chat/m/applied", data=report.body()) as answer:
            assert answer.status == 202
        rules.taken = False
        async with session.post("/v1/workloads/chat/m/applied", data=report.body()) as answer:
            assert answer.status == 502
    assert rules.reports == [report, report]


@pytest.mark.parametrize("ruling", [Ruling(), Ruling(4, None, "hold", None, "guard")])
async def test_an_engine_that_follows_no_target_of_the_scalers_is_told_to_it_as_one_that_follows_none(
    ruling: Ruling,
) -> None:
    rules = Rules()
    rules.ruling = ruling
    async with serving(rules) as (session, _):
        async with session.get(PATH) as answer:
            generation = (await answer.json())["generation"]
        report = AppliedReport("llama-0", 4, 2048, "open", 3, generation)
        async with session.post("/v1/workloads/chat/m/applied", data=report.body()) as answer:
            assert answer.status == 202
    assert rules.reports == [AppliedReport("llama-0", 4, 2048, "open", 3, None)]


@pytest.mark.parametrize("body", [b"", b"{}", json.dumps({"replica": "x", "batch_size": 0}).encode(), b"x" * 5000])
async def test_a_bad_report_goes_nowhere(body: bytes) -> None:
    rules = Rules()
    async with serving(rules) as (session, _), session.post("/v1/workloads/chat/m/applied", data=body) as answer:
        assert answer.status == 400
    assert rules.reports == []
