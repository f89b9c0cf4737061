"""The read token: who gets to see the API, the page and /metrics, and who is always answered."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry

from scaler.serve.ask import ScalerUnreachable, fetch_workload
from scaler.serve.http import make_app, start_http
from tests.serve.tide import FakeWorkloads, snapshot

READ, PUSH = "low tide", "high tide"


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    workloads = FakeWorkloads()
    workloads.add("team-a/chat", snapshot())
    app = make_app(workloads, token=PUSH, read_token=READ, registry=CollectorRegistry(), stopping=asyncio.Event())
    runner, port = await start_http(app, "127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{port}") as made:
        yield made
    await runner.cleanup()


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


READABLE = ["/", "/metrics", "/v1/workloads", "/v1/workloads/team-a/chat/target", "/v1/nothing/here"]


@pytest.mark.parametrize("path", READABLE)
@pytest.mark.parametrize(
    "shown", [None, "Bearer wrong", f"Bearer {PUSH}", basic("wrong"), "Basic not-base64", "Basic /w==", f"Token {READ}"]
)
async def test_without_the_token_nothing_is_told(session: ClientSession, path: str, shown: str | None) -> None:
    headers = {} if shown is None else {"Authorization": shown}
    async with session.get(path, headers=headers) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")  # so that a browser asks its user
        assert "read token" in (await answer.json())["error"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("request_line", ["GET /v1/workloads", "POST /v1/workloads/team-a/chat/wake"])
@pytest.mark.parametrize("shown", [b"Bearer \xff\xfe", b"Basic \xff", b"\xff", b"Bearer \xed\xa0\x80"])
async def test_a_token_that_is_no_text_is_a_wrong_one(session: ClientSession, request_line: str, shown: bytes) -> None:
    base = session._base_url
    assert base is not None
    reader, writer = await asyncio.open_connection(base.host, base.port)
    head = f"{request_line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: "
    writer.write(head.encode() + shown + b"\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"401"
    writer.close()


@pytest.mark.parametrize("path", READABLE[:-1])
@pytest.mark.parametrize("shown", [f"Bearer {READ}", f"bearer  {READ}", basic(READ)])
async def test_with_it_all_is_told(session: ClientSession, path: str, shown: str) -> None:
    async with session.get(path, headers={"Authorization": shown}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_need_none(session: ClientSession, path: str) -> None:
    async with session.get(path) as answer:
        assert answer.status == 200


async def test_reading_and_pushing_are_two_rights(session: ClientSession) -> None:
    wake = "/v1/workloads/team-a/chat/wake"
    for token, status in ((READ, 401), (PUSH, 202)):
        async with session.post(wake, headers={"Authorization": f"Bearer {token}"}) as answer:
            assert answer.status == status


async def test_the_command_line_shows_it(session: ClientSession) -> None:
    url = str(session._base_url)
    assert (await fetch_workload(url, "team-a/chat", READ))["namespace"] == "team-a"
    with pytest.raises(ScalerUnreachable, match="read token"):
        await fetch_workload(url, "team-a/chat")
