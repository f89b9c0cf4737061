"""A server asked with patience, and its answers kept."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from scaler.lab.backtest.asking import AskError, Kept, Patience
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.prometheus.api import Api, QueryError

SERVER = PrometheusServer(url="http://prometheus:9090")


class Scripted(Api):
    """Answers in turn: a body, or why there is none."""

    def __init__(self, *answers: bytes | str) -> None:
        super().__init__(SERVER)
        self.answers: Iterator[bytes | str] = iter(answers)
        self.asked = 0

    async def fetch(self, session: aiohttp.ClientSession, query: str, *, unix: float | None = None) -> bytes:
        self.asked += 1
        answer = next(self.answers)
        if isinstance(answer, str):
            raise QueryError(answer)
        return answer


async def asked(api: Scripted) -> tuple[bytes | AskError, list[float]]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with aiohttp.ClientSession() as session:
        try:
            return await Patience(api, session, sleep)("up", 100.0), waits
        except AskError as error:
            return error, waits


async def test_a_moment_s_trouble_is_waited_out() -> None:
    answer, waits = await asked(Scripted("connection refused", "HTTP 502", b"body"))
    assert answer == b"body"
    assert waits == [1.0, 5.0]


async def test_trouble_that_lasts_is_told_after_three_tries() -> None:
    api = Scripted(*["connection refused"] * 9)
    error, _ = await asked(api)
    assert api.asked == 3
    assert isinstance(error, AskError)
    assert str(error) == "connection refused"
    assert not error.too_much


@pytest.mark.parametrize(
    "said",
    ["HTTP 401: who?", "HTTP 403", "HTTP 404", "TLS certificate not accepted: x", "the host's name does not resolve",
     "HTTP 400: bad_data: 1:5: parse error: unexpected end"],
)  # fmt: skip
async def test_what_no_patience_cures_is_told_at_once(said: str) -> None:
    api = Scripted(said)
    error, waits = await asked(api)
    assert isinstance(error, AskError)
    assert (str(error), waits, api.asked) == (said, [], 1)


@pytest.mark.parametrize(
    "said",
    [
        "HTTP 422: execution: query processing would load too many samples into memory in query execution",
        "HTTP 503: timeout: query timed out in expression evaluation",
        "HTTP 422: the query exceeded the maximum number of chunks (err-mimir-max-chunks-per-query)",
        "timed out after 60 s",
        "body larger than 256 MiB",
        "HTTP 413",
    ],
)
async def test_too_much_at_once_is_not_asked_again_as_it_was(said: str) -> None:
    api = Scripted(said)
    error, _ = await asked(api)
    assert api.asked == 1
    assert isinstance(error, AskError)
    assert error.too_much


class Counting:
    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []

    async def __call__(self, query: str, unix: float) -> bytes:
        self.asked.append((query, unix))
        return f"{query}@{unix}".encode()


NOW = 10_000.0


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_kept_answer_is_not_asked_for_again(tmp_path: Path) -> None:
    server = Counting()
    for _ in range(2):
        kept = Kept(tmp_path / "keep", SERVER, server, NOW)
        assert await kept("up", 5000.0) == b"up@5000.0"
    assert server.asked == [("up", 5000.0)]
    assert (kept.asked, kept.found) == (0, 1)


async def test_what_may_still_change_is_not_kept(tmp_path: Path) -> None:
    server = Counting()
    for _ in range(2):
        await Kept(tmp_path, SERVER, server, NOW)("up", NOW - 299.0)
    assert len(server.asked) == 2
    assert files(tmp_path) == []


async def test_another_query_time_server_or_tenant_is_another_answer(tmp_path: Path) -> None:
    server = Counting()
    tenant = SERVER.model_validate({"url": SERVER.url, "headers": {"X-Scope-OrgID": "b"}})
    other = SERVER.model_validate({"url": "http://other:9090"})
    for whose, query, unix in (
        (SERVER, "a", 1.0),
        (SERVER, "b", 1.0),
        (SERVER, "a", 2.0),
        (tenant, "a", 1.0),
        (other, "a", 1.0),
    ):
        await Kept(tmp_path, whose, server, NOW)(query, unix)
    assert len(server.asked) == 5


async def test_a_broken_file_is_as_good_as_none_and_no_half_one_is_left(tmp_path: Path) -> None:
    server = Counting()
    await Kept(tmp_path, SERVER, server, NOW)("up", 1.0)
    (file,) = files(tmp_path)
    file.write_bytes(gzip.compress(b"half")[:-4])
    assert await Kept(tmp_path, SERVER, server, NOW)("up", 1.0) == b"up@1.0"
    assert [path.suffix for path in files(tmp_path)] == [".gz"]
