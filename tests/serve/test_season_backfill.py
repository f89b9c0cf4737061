"""A season read from a Prometheus: what is asked, what is learned of the answer, and what is done about a bad one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from scaler.policy.layers import PolicyFile
from scaler.policy.model import SLOT_SECONDS, Policy, Prometheus, Seasonal
from scaler.policy.texts import Texts
from scaler.serve.season_backfill import ENOUGH_SLOTS, Backfill, arrivals_query, read_rates, season_of
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.preset import load_preset

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
NAME = "chat/llama"


def office(at: float) -> float:
    """2 req/s from nine to five on working days; ``at`` is the end of the quarter of an hour."""
    local = datetime.fromtimestamp(at - 450, UTC)
    return 2.0 if local.weekday() < 5 and 9 <= local.hour < 17 else 0.0


def answered(end: float, rate: Callable[[float], float] = office, *, series: int = 1) -> bytes:
    values = [[end - SLOT_SECONDS * back, str(rate(end - SLOT_SECONDS * back))] for back in range(2687, -1, -1)]
    result = [{"metric": {}, "values": values}] * series
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


class TestWhatIsAsked:
    def test_by_the_engines_counter_and_the_labels_it_has(self) -> None:
        policy = Policy(prometheus=Prometheus(source="main", match=Texts({"namespace": "chat"})))
        query = arrivals_query(policy, load_preset("vllm"))
        assert query is not None
        assert query.startswith('sum(rate({__name__=~"vllm[:_]request[:_]success_total"')
        assert 'namespace="chat"' in query.replace('=~"chat"', '="chat"')
        assert query.endswith("[900s]))")

    def test_as_declared(self) -> None:
        policy = Policy(season=Seasonal(source="main", query="sum(rate(gateway_requests_total[5m])) or vector(0)"))
        assert arrivals_query(policy, load_preset("vllm")) == policy.season.query

    def test_nothing_without_labels_to_go_by(self) -> None:
        assert arrivals_query(Policy(season=Seasonal(source="main")), load_preset("vllm")) is None


class TestWhatIsLearned:
    def test_four_weeks_are_a_season_at_once(self) -> None:
        season = season_of(read_rates(answered(MONDAY.timestamp())), Seasonal())
        assert season.period == "weekly"
        law = Seasonal()
        nine = law.slot(MONDAY.replace(hour=9))
        assert season.usually(nine, "weekly") == pytest.approx(2.0, rel=0.01)
        assert season.usually(nine - 1, "weekly") == 0.0

    def test_numbers_that_are_none_are_gaps(self) -> None:
        end = MONDAY.timestamp()
        rates = read_rates(answered(end, lambda at: float("nan") if at == end else office(at)))
        assert end not in rates
        assert len(rates) == 2687

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            (answered(0.0, series=2), "gave 2 series; write one that gives one, for example sum"),
            (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "gave 0 series"),
            (b'{"status":"error","error":"too many samples"}', "too many samples"),
            (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "no series"),
            (b"[]", "cannot be read"),
            (b"<html>", "Expecting value"),
        ],
    )
    def test_what_is_no_answer_is_said(self, body: bytes, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            read_rates(body)


@asynccontextmanager
async def prometheus(status: int = 200, body: bytes | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    asked: list[str] = []

    async def query(request: web.Request) -> web.Response:
        form = await request.post()
        asked.append(str(form["query"]))
        told = answered(float(str(form["time"]))) if body is None else body
        return web.Response(status=status, body=told, content_type="application/json")

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/"), asked


def known(url: str) -> tuple[Workloads, Workload]:
    text = (
        f"sources:\n  main: {{url: '{url}'}}\nworkloads:\n  {NAME}:\n"
        "    season: {source: main, query: 'sum(rate(gateway_requests_total[15m]))'}\n"
    )
    workloads = Workloads(PolicyFile.parse("policy.yaml", text), tick_seconds=5.0, utc=lambda: MONDAY.replace(hour=10))
    workload = workloads.get(NAME)
    assert workload is not None
    return workloads, workload


async def filled(url: str) -> tuple[Backfill, Workload]:
    workloads, workload = known(url)
    backfill = Backfill(workloads)
    assert backfill.due(workload)
    async with aiohttp.ClientSession() as session:
        await backfill.fill(workload, session)
    return backfill, workload


def test_it_is_read_once_and_what_is_known_then_is_not_asked_again() -> None:
    async def play() -> None:
        async with prometheus() as (url, asked):
            backfill, workload = await filled(url)
            assert workload.memory.season.period == "weekly"
            assert workload.memory.season.slots_known >= ENOUGH_SLOTS
            assert asked == ["(sum(rate(gateway_requests_total[15m])))[2419200s:900s]"]
            backfill._tried.clear()
            assert not backfill.due(workload)

    asyncio.run(play())


@pytest.mark.parametrize(("status", "body"), [(503, b"{}"), (200, b"<html>"), (200, answered(0.0, series=2))])
def test_a_bad_answer_changes_nothing_and_is_not_asked_for_at_every_tick(status: int, body: bytes) -> None:
    async def play() -> None:
        async with prometheus(status, body) as (url, _):
            backfill, workload = await filled(url)
            assert workload.memory.season.slots_known == 0
            assert not backfill.due(workload)

    asyncio.run(play())


def test_a_source_that_is_not_declared_is_an_error_of_the_policy() -> None:
    with pytest.raises(Exception, match="is no source of the policy file"):
        PolicyFile.parse("policy.yaml", f"workloads:\n  {NAME}:\n    season: {{source: other}}\n")
