"""The scrape source against real servers on loopback: what is read, what is refused and in which words."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from scaler.policy.model import Scrape
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import load_preset
from scaler.signals.scrape import LARGEST_BODY_BYTES, scrape
from tests.ports import free_port

BODY = (Path(__file__).parent / "bodies" / "vllm-0.32-load.txt").read_bytes()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A real aiohttp server; gives its URL."""
    app = web.Application()
    app.router.add_get("/metrics", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(script: Script) -> AsyncIterator[str]:
    """A server that says exactly what ``script`` writes, HTTP or not, and then closes the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await script(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"


def saying(answer: bytes) -> Script:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    return script


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *headers, "", ""]).encode() + body


async def read(*urls: str, timeout_seconds: float = 30.0, model_name: str | None = None) -> list[object]:
    async with aiohttp.ClientSession() as session:
        return await read_in(session, *urls, timeout_seconds=timeout_seconds, model_name=model_name)


async def read_in(
    session: aiohttp.ClientSession, *urls: str, timeout_seconds: float = 30.0, model_name: str | None = None
) -> list[object]:
    loop = asyncio.get_running_loop()
    config = Scrape(urls=urls, timeout_seconds=timeout_seconds, model_name=model_name)
    reads = await scrape(session, config, load_preset("vllm"), mono=loop.time, unix=lambda: 1.7e9)
    assert tuple(reads) == urls
    return list(reads.values())


async def reason(answered: bytes) -> str:
    """Why an endpoint that says ``answered`` could not be read."""
    async with raw_server(saying(answered)) as url:
        (failure,) = await read(url)
    assert isinstance(failure, ReadFailure)
    assert url not in failure.reason
    return failure.reason


async def test_an_engine_is_read_whatever_content_type_it_claims() -> None:
    seen: list[str] = []

    async def metrics(request: web.Request) -> web.Response:
        seen.append(request.headers["Accept"])
        return web.Response(body=BODY, headers={"Content-Type": "application/octet-stream"})

    before = asyncio.get_running_loop().time()
    async with serving(metrics) as url:
        (sample,) = await read(url, model_name="tiny")
    assert isinstance(sample, EngineSample)
    assert sample.gauges["running"] == 7.0
    assert before <= sample.at - sample.seconds <= sample.at <= asyncio.get_running_loop().time()
    assert seen[0].startswith("text/plain;version=0.0.4")


async def test_a_compressed_body_is_decompressed() -> None:
    async def metrics(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip"
        response = web.Response(body=BODY)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with serving(metrics) as url:
        (sample,) = await read(url)
    assert isinstance(sample, EngineSample)
    assert sample.gauges["running"] == 7.0


async def test_all_endpoints_are_read_at_once_and_one_bad_one_costs_only_itself() -> None:
    both_are_asked = asyncio.Barrier(2)

    async def metrics(request: web.Request) -> web.Response:
        await both_are_asked.wait()
        return web.Response(body=BODY)

    async with serving(metrics) as one, serving(metrics) as other, raw_server(saying(b"")) as bad:
        reads = await read(one, bad, other)
    assert [type(outcome) for outcome in reads] == [EngineSample, ReadFailure, EngineSample]


async def test_nothing_to_read_gives_nothing() -> None:
    assert await read() == []


@pytest.mark.parametrize(
    ("answered", "words"),
    [
        (answer(b"busy", "Content-Length: 4", status="503 Service Unavailable"), "HTTP 503"),
        (answer(BODY, status="206 Partial Content"), "HTTP 206"),
        (answer(b"", "Content-Length: 0"), "empty body"),
        (answer(b'{"status":"error","errorType":"timeout"}\n'), "not a metrics page: no sample line in it"),
        (answer(b"<html>502</html>", "Content-Type: text/html"), "not a metrics page: HTML"),
        (answer(b"<!doctype html>\n<form>log in</form>\n"), "not a metrics page: HTML"),
        (answer(b"sglang:num_running_reqs 3\n"), "the body has sglang: metrics; is engine: vllm right?"),
        (answer(BODY[:20_000], f"Content-Length: {len(BODY)}"), f"body cut at 20000 bytes of {len(BODY)}"),
        (answer(BODY[:-5]), "body cut: its last line has no end"),
        (answer(b"400\r\n" + BODY[:1000], "Transfer-Encoding: chunked"), "body cut at "),
        (answer(BODY, "Content-Encoding: br"), "Content-Encoding 'br' was not asked for and is not understood"),
        (answer(BODY, "Content-Encoding: gzip"), "not valid gzip although Content-Encoding says so"),
        (answer(gzip.compress(BODY)[:-20], "Content-Encoding: gzip"), "inside its gzip data"),
        (answer(gzip.compress(BODY)[:1000], "Content-Encoding: gzip", "Content-Length: 5000"), "1000 bytes of 5000"),
        (answer(gzip.compress(BODY) + b"more", "Content-Encoding: gzip"), "data after the end of the gzip body"),
        (b"", "connection closed before an answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "the answer is not HTTP"),
        (answer(BODY, "X-Long: " + "x" * 100_000), "the answer is not HTTP"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
async def test_a_bad_answer_is_a_failure_with_its_reason(answered: bytes, words: str) -> None:
    assert words in await reason(answered)


async def test_a_nan_is_a_read_whose_family_is_unknown() -> None:
    body = b'vllm:num_requests_running{model_name="m"} NaN\nvllm:num_requests_waiting{model_name="m"} 4\n'
    async with raw_server(saying(answer(body))) as url:
        (sample,) = await read(url)
    assert isinstance(sample, EngineSample)
    assert sample.gauges == {"waiting": 4.0}


async def test_bytes_that_are_not_text_cost_their_line_only() -> None:
    async with raw_server(saying(answer(b"\xff\xfe\x00 1\n" + BODY))) as url:
        (sample,) = await read(url)
    assert isinstance(sample, EngineSample)
    assert sample.gauges["running"] == 7.0
    assert sample.warnings == ("unreadable lines of the metrics skipped: 1",)


async def test_nobody_listening_is_connection_refused() -> None:
    (failure,) = await read(f"http://127.0.0.1:{free_port()}/metrics")
    assert isinstance(failure, ReadFailure)
    assert failure.reason == "connection refused"


async def test_a_name_that_does_not_resolve_is_said_so() -> None:
    class NoSuchName(aiohttp.abc.AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[aiohttp.abc.ResolveResult]:
            raise OSError(socket.EAI_NONAME, "Name or service not known")

        async def close(self) -> None:
            pass

    connector = aiohttp.TCPConnector(resolver=NoSuchName())
    async with aiohttp.ClientSession(connector=connector) as session:
        (failure,) = await read_in(session, "http://vllm-0.vllm/metrics")
    assert isinstance(failure, ReadFailure)
    assert failure.reason == "the host's name does not resolve"


@pytest.mark.parametrize("url", [f"http://{'a' * 300}/metrics", "http://.../metrics"])
async def test_an_address_that_cannot_be_is_a_failure_and_no_exception(url: str) -> None:
    (failure,) = await read(url)
    assert isinstance(failure, ReadFailure)


async def test_tls_spoken_to_a_plain_server_is_said_so() -> None:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=BODY)

    async with serving(metrics) as url:
        (failure,) = await read(url.replace("http:", "https:"))
    assert isinstance(failure, ReadFailure)
    assert failure.reason == "TLS handshake failed"


async def test_a_redirect_is_not_followed() -> None:
    followed = asyncio.Event()

    async def elsewhere(request: web.Request) -> web.Response:
        followed.set()
        return web.Response(body=BODY)

    async with serving(elsewhere) as target:
        location = f"Location: {target}?ticket=secret"
        why = await reason(answer(b"", location, "Content-Length: 0", status="302 Found"))
    assert why == f"HTTP 302: redirected to '{target}', which is not followed (a login page?)"
    assert not followed.is_set()


async def test_a_slow_drip_is_given_up_at_the_time_limit() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", f"Content-Length: {len(BODY)}"))
        for byte in BODY:  # each byte within any time-out that starts anew with every read
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with raw_server(drip) as url, asyncio.timeout(60):
        (failure,) = await read(url, timeout_seconds=0.3)
    assert isinstance(failure, ReadFailure)
    assert failure.reason == "timed out after 0.3 s"
    assert failure.seconds >= 0.3


async def test_a_server_that_accepts_and_says_nothing_is_given_up_at_the_time_limit() -> None:
    async def nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(nothing) as url, asyncio.timeout(60):
        (failure,) = await read(url, timeout_seconds=0.2)
    assert isinstance(failure, ReadFailure)
    assert failure.reason == "timed out after 0.2 s"


def two_gib_in_gzip() -> bytes:
    """The head of a gzip stream that inflates to 2 GiB: one compressed MiB of zeros, 2048 times."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    head = deflater.compress(b"") + deflater.flush(zlib.Z_FULL_FLUSH)
    return head + (deflater.compress(bytes(1024**2)) + deflater.flush(zlib.Z_FULL_FLUSH)) * 2048


async def test_a_gzip_bomb_is_refused_without_filling_the_memory() -> None:
    bomb = answer(two_gib_in_gzip(), "Content-Encoding: gzip")
    tracemalloc.start()
    try:
        why = await reason(bomb)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert why == "body larger than 32 MiB"
    assert peak_bytes < 4 * LARGEST_BODY_BYTES


async def test_an_endless_plain_body_is_refused_at_the_same_size() -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b""))
        while True:
            writer.write(b"w 1\n" * 65536)
            await writer.drain()

    async with raw_server(endless) as url:
        (failure,) = await read(url, timeout_seconds=30.0)
    assert isinstance(failure, ReadFailure)
    assert failure.reason == "body larger than 32 MiB"


async def test_cancelling_the_tick_cancels_its_reads() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        gone.set()

    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(raw_server(hang))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        await stack.enter_async_context(asyncio.timeout(60))
        tick = asyncio.create_task(read_in(session, url, timeout_seconds=60.0))
        await asked.wait()
        tick.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tick
        await gone.wait()
