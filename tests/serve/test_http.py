"""The HTTP API over a real loopback socket: what readers get, what gateways may push, what is refused and how."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import ClientSession, web
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from scaler.consume.contract import AppliedReport
from scaler.control.model import Admission, Code, Now, Reason, Target, Targets
from scaler.policy.model import Policy
from scaler.serve.applied import MAX_REPLICAS
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.http import make_app, start_http
from scaler.serve.timeline import moment
from scaler.signals.model import Applied
from tests.serve.tide import POLICY, START, FakeWorkloads, adjusted, snapshot

TOKEN = "correct horse"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
CHAT = "/v1/workloads/team-a/chat"


class Server:
    """A served application and a client of it."""

    def __init__(self, workloads: FakeWorkloads, stopping: asyncio.Event, session: ClientSession) -> None:
        self.workloads = workloads
        self.stopping = stopping
        self.session = session

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(path, headers=headers) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: bytes = b"", headers: dict[str, str] = BEARER) -> tuple[int, Any]:
        async with self.session.post(path, data=body, headers=headers) as answer:
            return answer.status, await answer.json()


async def serve(workloads: FakeWorkloads, token: str | None) -> AsyncIterator[Server]:
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    stopping = asyncio.Event()
    app = make_app(workloads, token=token, registry=registry, stopping=stopping)
    runner, port = await start_http(app, "127.0.0.1", 0)
    # auto_decompress off: the tests look at what is really sent.
    async with ClientSession(f"http://127.0.0.1:{port}", auto_decompress=False) as session:
        yield Server(workloads, stopping, session)
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    workloads = FakeWorkloads()
    chat = workloads.add("team-a/chat", snapshot())
    chat.adjustments.extend(adjusted(snapshot(), minute) for minute in range(3))
    workloads.add("team-b/search", snapshot("team-b/search"), POLICY.model_copy(update={"push": Policy().push}))
    async for served in serve(workloads, TOKEN):
        yield served


@pytest.fixture
async def without_token() -> AsyncIterator[Server]:
    workloads = FakeWorkloads()
    workloads.add("team-a/chat", snapshot())
    async for served in serve(workloads, None):
        yield served


# --- readers


async def test_all_workloads_at_a_glance(server: Server) -> None:
    status, document = await server.get("/v1/workloads")
    assert status == 200
    assert [workload["workload"] for workload in document["workloads"]] == ["team-a/chat", "team-b/search"]
    assert document["workloads"][0]["replicas"] == {
        "desired": 2,
        "needed": 2,
        "ready": 1,
        "asleep": 0,
        "floor": 0,
        "ceiling": 4,
    }


async def test_one_workload_whole(server: Server) -> None:
    status, document = await server.get(CHAT)
    assert (status, document["state"], document["current"]) == (200, "critical", True)
    assert document["reasons"][1]["sentence"] == "3 req/s arriving needs 2 replicas (one serves 1.6 req/s)"


async def test_a_workload_of_a_dead_loop_is_not_called_current(server: Server) -> None:
    server.workloads.current = False
    assert (await server.get(CHAT))[1]["current"] is False


async def test_an_unknown_workload_names_those_that_are_known(server: Server) -> None:
    for index in range(30):
        server.workloads.add(f"team-z/w{index:02}")
    status, document = await server.get("/v1/workloads/team-a/chta")
    assert status == 404
    assert document["error"].startswith("no workload 'team-a/chta'; known: team-a/chat, team-b/search, ")
    assert len(document["known"]) == 20


async def test_decisions_come_newest_first_and_as_many_as_asked(server: Server) -> None:
    _, document = await server.get(f"{CHAT}/decisions?limit=2")
    assert [entry["at"][11:16] for entry in document["decisions"]] == ["09:02", "09:01"]
    assert len((await server.get(f"{CHAT}/decisions"))[1]["decisions"]) == 3


async def test_a_timeline_in_columns_and_the_trend_of_all(server: Server) -> None:
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    for tick in range(3):
        chat.timeline.append(moment(snapshot(decided_at=Now(START, 90.0 + 5 * tick))))
    status, document = await server.get(f"{CHAT}/timeline?minutes=10")
    assert (status, document["minutes"], document["tick_seconds"]) == (200, 10.0, 5.0)
    assert document["age_seconds"] == [11.0, 6.0, 1.0]
    assert document["state"] == ["critical"] * 3
    assert document["running"] == [24.0] * 3
    assert document["waiting"] == [None] * 3  # stale then
    _, listed = await server.get("/v1/workloads?trend_minutes=2")
    assert listed["trend_slot_seconds"] == 30.0
    trends = {each["workload"]: each["in_flight_trend"] for each in listed["workloads"]}
    assert trends == {"team-a/chat": [None, None, None, 24.0], "team-b/search": [None] * 4}
    assert "in_flight_trend" not in (await server.get("/v1/workloads"))[1]["workloads"][0]


async def test_what_a_person_must_know_of_lost_data_is_in_the_summary(server: Server) -> None:
    lost = (Reason(Code.SIGNAL_LOST, Target.REPLICAS, "running", 12.0, 120.0),)
    server.workloads.add("team-a/chat", snapshot(reasons=lost))
    _, document = await server.get(CHAT)
    assert document["lost_signals"] == ["running"]
    assert document["in_flight"] == 24  # what waits is stale
    assert (document["age_seconds"], document["data_age_seconds"]) == (1.0, 41.0)
    assert document["objectives"][0]["status"] == "known"
    needed = {each["signal"]: each["required_for"] for each in document["signals"]}
    assert needed["running"] == ["replicas down", "zero"]
    assert document["suppressed"][0]["untimed_sentence"] == "wanted 6 replicas, kept 4: the ceiling"


@pytest.mark.parametrize(
    "query",
    ["timeline?minutes=61", "decisions?limit=0", "decisions?limit=many", "decisions?limit=nan", "target?wait=-1"],
)
async def test_a_bad_query_says_what_to_write(server: Server, query: str) -> None:
    status, document = await server.get(f"{CHAT}/{query}")
    assert status == 400
    assert "write " in document["error"]


async def test_an_unknown_route_lists_the_routes(server: Server) -> None:
    status, document = await server.get("/v2/workloads")
    assert status == 404
    assert "/v1/workloads/{namespace}/{name}/target" in document["routes"]


async def test_a_wrong_method_names_the_right_one(server: Server) -> None:
    status, document = await server.post("/v1/workloads")
    assert status == 405
    assert document["error"] == "POST is not for /v1/workloads; use GET, HEAD"


# --- targets


async def test_a_target_with_its_tag(server: Server) -> None:
    async with server.session.get(f"{CHAT}/target") as answer:
        assert answer.status == 200
        document = await answer.json()
        tag = answer.headers["ETag"]
    assert (document["batch_size"], document["admission"], document["generation"]) == (32, "open", 7)
    assert tag.startswith('"7-')
    assert tag.endswith('"')


async def test_the_target_one_has_is_not_sent_again_but_renewed(server: Server) -> None:
    tag = await tag_of(server)
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    await server.workloads.publish(chat, snapshot(valid_until=START + timedelta(seconds=90)))
    for sent in (tag, f"W/{tag}", f'"other", {tag}'):
        async with server.session.get(f"{CHAT}/target", headers={"If-None-Match": sent}) as answer:
            assert answer.status == 304
            assert await answer.read() == b""
            assert answer.headers["ETag"] == tag
            assert answer.headers["Loadtide-Valid-Until"] == "2025-03-03T09:01:30.000Z"
            assert answer.headers["Loadtide-Valid-Seconds"] == "89.000"


async def test_a_generation_that_starts_anew_is_not_taken_for_the_old_one(server: Server) -> None:
    tag = await tag_of(server)
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    chat.snapshot = snapshot(targets=Targets(2, True, 16, None, Admission.HOLD))  # generation 7 again
    status, document = await server.get(f"{CHAT}/target", **{"If-None-Match": tag})
    assert (status, document["batch_size"]) == (200, 16)


async def test_a_long_poll_returns_when_the_target_changes_and_not_at_each_tick(server: Server) -> None:
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    asked = asyncio.create_task(server.get(f"{CHAT}/target?wait=30", **{"If-None-Match": await tag_of(server)}))
    await asyncio.sleep(0.05)
    await server.workloads.publish(chat, snapshot())
    await asyncio.sleep(0.05)
    assert not asked.done()
    await server.workloads.publish(chat, snapshot(generation=8, targets=Targets(2, True, 16)))
    status, document = await asyncio.wait_for(asked, 60)
    assert (status, document["generation"], document["batch_size"]) == (200, 8, 16)


async def test_a_long_poll_without_a_change_ends_in_304(server: Server) -> None:
    tag, started = await tag_of(server), time.monotonic()
    async with server.session.get(f"{CHAT}/target?wait=0.2", headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304
    assert time.monotonic() - started >= 0.2


async def test_a_long_poll_without_a_tag_returns_at_once(server: Server) -> None:
    assert (await asyncio.wait_for(server.get(f"{CHAT}/target?wait=30"), 60))[0] == 200


async def test_a_long_poll_ends_when_the_server_stops(server: Server) -> None:
    tag = await tag_of(server)
    asked = asyncio.create_task(server.session.get(f"{CHAT}/target?wait=60", headers={"If-None-Match": tag}))
    await asyncio.sleep(0.05)
    server.stopping.set()
    answer = await asyncio.wait_for(asked, 60)
    assert answer.status == 304


async def test_a_long_poll_for_a_first_target_waits_for_the_first_tick(server: Server) -> None:
    new = server.workloads.add("team-c/new")
    status, document = await server.get("/v1/workloads/team-c/new/target")
    assert (status, document["error"]) == (503, "team-c/new has no target yet: its first tick is being made")
    asked = asyncio.create_task(server.get("/v1/workloads/team-c/new/target?wait=30"))
    await asyncio.sleep(0.05)
    await server.workloads.publish(new, snapshot("team-c/new"))
    assert (await asyncio.wait_for(asked, 60))[0] == 200


async def tag_of(server: Server) -> str:
    async with server.session.get(f"{CHAT}/target") as answer:
        return answer.headers["ETag"]


# --- gateways


async def test_pushed_demand_is_taken_and_evaluated_at_once(server: Server) -> None:
    body = json.dumps({"pending": 3, "arrivals_per_second": 1.5, "source": "gateway-a"}).encode()
    assert await server.post(f"{CHAT}/demand", body) == (202, {"accepted": True})
    assert server.workloads.evaluated == ["team-a/chat"]
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    demand = chat.inbox.read(101.0, POLICY.push)
    assert demand is not None
    assert (demand.pending, demand.arrivals_per_second) == (3, 1.5)


@pytest.mark.parametrize("body", [b"", b"{}", b"anything a webhook sends"])
async def test_a_wake_needs_no_body(server: Server, body: bytes) -> None:
    assert await server.post(f"{CHAT}/wake", body) == (202, {"accepted": True})
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    demand = chat.inbox.read(101.0, POLICY.push)
    assert demand is not None
    assert demand.wake_requested
    assert server.workloads.evaluated == ["team-a/chat"]


@pytest.mark.parametrize("path", ["demand", "wake"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer größe"},
    ],
)
async def test_without_the_token_nothing_is_pushed_and_nothing_told(
    server: Server, path: str, headers: dict[str, str]
) -> None:
    for workload in ("team-a/chat", "no/such"):
        async with server.session.post(f"/v1/workloads/{workload}/{path}", headers=headers, data=b"{}") as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="loadtide"'
            assert set(await answer.json()) == {"error"}
    assert server.workloads.evaluated == []


async def test_a_body_that_cannot_be_unpacked_is_refused_in_words(server: Server) -> None:
    headers = BEARER | {"Content-Encoding": "gzip"}
    status, document = await server.post(f"{CHAT}/demand", b"no gzip", headers)
    assert status == 400
    assert "the body cannot be read" in document["error"]


async def test_without_a_configured_token_it_says_how_to_configure_one(without_token: Server) -> None:
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
        status, document = await without_token.post(f"{CHAT}/wake", headers=headers)
        assert status == 503
        assert "--token-file or LOADTIDE_TOKEN" in document["error"]


async def test_a_push_to_an_unknown_workload_is_404_and_to_one_without_push_409(server: Server) -> None:
    assert (await server.post("/v1/workloads/team-a/chta/wake"))[0] == 404
    status, document = await server.post("/v1/workloads/team-b/search/demand", b'{"pending": 1}')
    assert status == 409
    assert "push.enabled: true" in document["error"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not JSON"),
        (b"pending=3", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 50_000, "nested too deeply"),
        (b"[3]", "must be a JSON object"),
        (b"{}", '"pending" is missing'),
        (b'{"pending": -1}', "must lie in 0 .. 1000000000, not -1"),
        (b'{"pending": NaN}', "NaN is not a number that can be acted on"),
        (b'{"pending": Infinity}', "Infinity is not a number"),
        (b'{"pending": 1e400}', "must lie in 0 .. 1000000000, not inf"),
        (b'{"pending": 1' + b"0" * 300 + b"}", "must lie in 0"),
        (b'{"pending": 1' + b"0" * 5000 + b"}", "not JSON"),
        (b'{"pending": true}', '"pending" must be a number, not true'),
        (b'{"pending": "3"}', '"pending" must be a number, not "3"'),
        (b'{"pending": null}', '"pending" must be a number, not null'),
        (b'{"pending": 1, "arrivals_per_second": -0.5}', '"arrivals_per_second" must lie in'),
        (
            b'{"pending": 1, "arrivals": 2}',
            "unknown field 'arrivals'; the fields are pending, arrivals_per_second, source",
        ),
        (b'{"pending": 1, "source": 7}', '"source" must be a name'),
        (b'{"pending": 1, "source": "a\\nb"}', '"source" must be a name'),
    ],
)
async def test_a_body_that_cannot_be_meant_is_refused_with_what_to_send(server: Server, body: bytes, told: str) -> None:
    status, document = await server.post(f"{CHAT}/demand", body)
    assert status == 400
    assert told in document["error"]
    assert server.workloads.evaluated == []


@pytest.mark.parametrize("path", ["demand", "wake"])
async def test_a_body_over_the_limit_is_refused(server: Server, path: str) -> None:
    status, document = await server.post(f"{CHAT}/{path}", b" " * (64 * 1024 + 1))
    assert (status, document["error"]) == (413, "the body is larger than 65536 bytes")


async def test_a_caller_that_invents_a_name_per_report_is_stopped(server: Server) -> None:
    for index in range(64):
        body = json.dumps({"pending": 1, "source": f"request-{index}"}).encode()
        assert (await server.post(f"{CHAT}/demand", body))[0] == 202
    status, document = await server.post(f"{CHAT}/demand", b'{"pending": 1, "source": "one more"}')
    assert status == 429
    assert "one lasting name" in document["error"]


# --- what engines applied


async def test_what_a_replica_applied_is_taken_and_wakes_nobody(server: Server) -> None:
    body = b'{"replica": "chat-0", "batch_size": 32, "token_budget": 2048, "running": 17, "generation": 7}'
    assert await server.post(f"{CHAT}/applied", body) == (202, {"accepted": True})
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    assert chat.applied.read(103.0) == (Applied("chat-0", 2.0, 32, 2048, "open", 17, 7),)
    assert server.workloads.evaluated == []


async def test_an_engine_may_report_where_no_gateway_may_push(server: Server) -> None:
    path = "/v1/workloads/team-b/search/applied"  # push.enabled is about demand
    assert (await server.post(path, b'{"replica": "search-0", "batch_size": 8}'))[0] == 202


async def test_without_the_token_nothing_is_reported(server: Server, without_token: Server) -> None:
    body = b'{"replica": "chat-0", "batch_size": 32}'
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert (await server.post(f"{CHAT}/applied", body, headers))[0] == 401
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    assert chat.applied.read(101.0) == ()
    assert (await without_token.post(f"{CHAT}/applied", body))[0] == 503


async def test_a_report_that_cannot_be_meant_is_refused_with_what_to_send(server: Server) -> None:
    status, document = await server.post(f"{CHAT}/applied", b'{"batch_size": 32}')
    assert status == 400
    assert document["error"].startswith('"replica" is missing; send for example {"replica": "chat-0"')
    status, document = await server.post(f"{CHAT}/applied", b" " * 5000)
    assert (status, document["error"]) == (400, "the report has 5000 bytes; 4096 are the most. One replica a report")
    assert (await server.post("/v1/workloads/team-a/chta/applied", b"{}"))[0] == 404


async def test_a_replica_that_invents_a_name_per_report_is_stopped(server: Server) -> None:
    chat = server.workloads.get("team-a/chat")
    assert chat is not None
    for number in range(MAX_REPLICAS):
        chat.applied.report(AppliedReport(f"chat-{number}", 8))
    status, document = await server.post(f"{CHAT}/applied", b'{"replica": "one-more", "batch_size": 8}')
    assert status == 429
    assert "under the pod's name" in document["error"]
    assert (await server.post(f"{CHAT}/applied", b'{"replica": "chat-0", "batch_size": 16}'))[0] == 202


# --- metrics, probes, page


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=nonsense", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0"),
    ],
)
async def test_metrics_in_the_format_and_coding_asked_for(
    server: Server, accept: str, content_type: str, zipped: bool
) -> None:
    headers = {"Accept": accept, "Accept-Encoding": "gzip" if zipped else "identity"}
    async with server.session.get("/metrics", headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith(content_type)
        assert ("Content-Encoding" in answer.headers) == zipped
        body = await answer.read()
    text = (gzip.decompress(body) if zipped else body).decode()
    opened = "openmetrics" in content_type
    assert text.endswith("# EOF\n") == opened
    families = parse_openmetrics(text) if opened else parse_text(text)
    assert "loadtide_desired_replicas" in {family.name for family in families}


async def test_concurrent_scrapes_see_whole_pictures_while_workloads_change(server: Server) -> None:
    async def scrape() -> str:
        async with server.session.get("/metrics", headers={"Accept-Encoding": "identity"}) as answer:
            return (await answer.read()).decode()

    scrapes = [asyncio.create_task(scrape()) for _ in range(8)]
    for index in range(50):
        server.workloads.add(f"team-x/w{index}", snapshot(f"team-x/w{index}"))
        await asyncio.sleep(0)
    for text in await asyncio.gather(*scrapes):
        counts = {family.name: family for family in parse_text(text)}
        told = len(counts["loadtide_desired_replicas"].samples)
        assert counts["loadtide_workloads"].samples[0].value == told


async def test_alive_always_and_ready_only_after_the_first_round(server: Server) -> None:
    async def status_of(path: str) -> int:
        async with server.session.get(path) as answer:
            return answer.status

    server.workloads.ready = False
    assert (await status_of("/healthz"), await status_of("/readyz")) == (200, 503)
    server.workloads.ready = True
    assert (await status_of("/healthz"), await status_of("/readyz")) == (200, 200)
    server.stopping.set()
    assert (await status_of("/healthz"), await status_of("/readyz")) == (200, 503)


@pytest.mark.parametrize("path", ["/", "/v1/workloads", "/metrics", "/nowhere", f"{CHAT}/target"])
async def test_every_answer_forbids_what_the_page_does_not_need(server: Server, path: str) -> None:
    async with server.session.get(path) as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Python" not in answer.headers["Server"]


async def test_a_taken_port_is_an_error_and_leaves_nothing_behind(server: Server) -> None:
    port = server.session._base_url.port  # type: ignore[union-attr]
    assert port is not None
    with pytest.raises(OSError, match="address already in use"):
        await start_http(web.Application(), "127.0.0.1", port)
