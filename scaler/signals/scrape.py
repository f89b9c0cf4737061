"""The embedded source: reads the engines' own ``/metrics`` over HTTP, all endpoints at once.

An endpoint that cannot be read *whole* gives a :class:`ReadFailure` and nothing else: half a body looks like less load.
Nothing an endpoint sends can hold a tick longer than its time limit or fill the memory.
"""

from __future__ import annotations

import asyncio
import errno
import os
import zlib
from collections.abc import Callable
from typing import Final

import aiohttp

from scaler import __version__
from scaler.policy.model import Scrape
from scaler.signals.exposition import ExpositionError
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import Preset
from scaler.signals.reading import read_engine

#: A larger body is refused, counted after decompression. A real engine's is 50 kB.
LARGEST_BODY_BYTES: Final = 32 * 1024 * 1024

_HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4,text/plain;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": f"loadtide/{__version__}",
}
_CHUNK_BYTES: Final = 64 * 1024
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


async def scrape(
    session: aiohttp.ClientSession,
    config: Scrape,
    preset: Preset,
    *,
    mono: Callable[[], float],
    unix: Callable[[], float],
) -> dict[str, EngineSample | ReadFailure]:
    """Read every URL of ``config`` once, all together; the answer has an entry for each, in their order.

    ``mono`` and ``unix`` are the clocks (seconds). Each endpoint has ``timeout_seconds`` for connecting, waiting and
    reading together (waiting for a free connection of the session's pool included: give it ``limit=0``).
    Never raises for a bad endpoint; cancellation goes through.
    """
    reads = await asyncio.gather(*(_read(session, url, config, preset, mono, unix) for url in config.urls))
    return dict(zip(config.urls, reads, strict=True))


async def _read(
    session: aiohttp.ClientSession,
    url: str,
    config: Scrape,
    preset: Preset,
    mono: Callable[[], float],
    unix: Callable[[], float],
) -> EngineSample | ReadFailure:
    began = mono()
    try:
        async with asyncio.timeout(config.timeout_seconds):
            body = await _body(session, url)
        at = mono()
        return read_engine(body, preset, at, model_name=config.model_name, now_unix=unix(), seconds=at - began)
    except TimeoutError:
        reason = f"timed out after {config.timeout_seconds:g} s"
    except (_RefusedError, ExpositionError) as error:
        reason = str(error)
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        reason = _trouble(error)
    failed = mono()
    return ReadFailure(at=failed, reason=reason, seconds=failed - began)


class _RefusedError(Exception):
    """An answer that must not be used; the text is the reason."""


async def _body(session: aiohttp.ClientSession, url: str) -> str:
    """The whole body of a 200 answer, decompressed. Bytes that are not UTF-8 are replaced: they cost their own line."""
    async with session.get(
        url,
        headers=_HEADERS,
        allow_redirects=False,  # a redirect leads to a login page, or to a server that nobody named
        auto_decompress=False,  # we count while inflating: 32 kB of gzip can hold 32 MB
        timeout=aiohttp.ClientTimeout(total=None),  # the limit is ours, around all of this
    ) as response:
        if response.status in range(300, 400) and (location := response.headers.get("Location")):
            target = ascii(location.partition("?")[0][:120])  # what follows may be a secret; bytes may be anything
            raise _RefusedError(
                f"HTTP {response.status}: redirected to {target}, which is not followed (a login page?)"
            )
        if response.status != 200:
            raise _RefusedError(f"HTTP {response.status}")
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip", "x-gzip"):
            raise _RefusedError(f"Content-Encoding {encoding[:40]!a} was not asked for and is not understood")
        content = await (_inflated if "gzip" in encoding else _plain)(response)
    return content.decode("utf-8", errors="replace")


async def _plain(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    try:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            _check_size(body)
    except aiohttp.ClientPayloadError as error:
        raise _RefusedError(_cut(len(body), response)) from error
    return bytes(body)


async def _inflated(response: aiohttp.ClientResponse) -> bytes:
    body, received = bytearray(), 0
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    try:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            received += len(chunk)
            body += inflater.decompress(chunk, LARGEST_BODY_BYTES + 1 - len(body))
            _check_size(body)
            if inflater.unused_data:  # would pile up inside the inflater, beyond any limit
                raise _RefusedError("data after the end of the gzip body")
    except aiohttp.ClientPayloadError as error:
        raise _RefusedError(_cut(received, response)) from error
    except zlib.error as error:
        raise _RefusedError("not valid gzip although Content-Encoding says so") from error
    if not inflater.eof:
        raise _RefusedError(f"body cut at {received} bytes, inside its gzip data")
    return bytes(body)


def _check_size(body: bytearray) -> None:
    if len(body) > LARGEST_BODY_BYTES:
        raise _RefusedError(f"body larger than {LARGEST_BODY_BYTES // 1024**2} MiB")


def _cut(received_bytes: int, response: aiohttp.ClientResponse) -> str:
    expected = response.content_length
    return f"body cut at {received_bytes} bytes" + ("" if expected is None else f" of {expected}")


def _trouble(error: Exception) -> str:
    """A transport error in a person's words, without the URL (who reads the reason has it beside it)."""
    match error:
        case aiohttp.ClientConnectorDNSError() | UnicodeError():  # no host name at all, to the resolver's codec
            return "the host's name does not resolve"
        case aiohttp.ClientConnectorCertificateError():
            return f"TLS certificate not accepted: {error.certificate_error}"
        case aiohttp.ClientSSLError():
            return "TLS handshake failed"
        case aiohttp.ServerDisconnectedError():
            return "connection closed before an answer"
        case aiohttp.InvalidURL():
            return "not a URL"
        case OSError(errno=errno.ECONNREFUSED):
            return "connection refused"
        case OSError(errno=errno.ECONNRESET):
            return "connection reset"
        case OSError(errno=int(number)) if number in errno.errorcode:
            return os.strerror(number).lower()
        case aiohttp.ClientResponseError():
            return "the answer is not HTTP"
        case _:
            return f"{type(error).__name__}: {error}"
