"""One HTTP answer read whole or refused: what scraping an engine and asking a Prometheus have in common.

Nothing a server sends can fill the memory (bytes are counted after decompression: 32 kB of gzip can hold 32 MB), lead
to a server nobody named (redirects are not followed), or pass as whole when it was cut. Time limits are the caller's.
"""

from __future__ import annotations

import errno
import os
import zlib
from typing import Final

import aiohttp

from scaler import __version__
from scaler.policy.addresses import shown_text, shown_url

#: What every request says of itself. Give the request ``auto_decompress=False`` and ``allow_redirects=False``.
HEADERS: Final = {"Accept-Encoding": "gzip", "User-Agent": f"loadtide/{__version__}"}

_CHUNK_BYTES: Final = 64 * 1024
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class RefusedError(Exception):
    """An answer that must not be used; the text is the reason, for a person."""


def refuse_redirect(response: aiohttp.ClientResponse) -> None:
    """Raise :class:`RefusedError` for a redirect: it leads to a login page, or to a server that nobody named."""
    if response.status in range(300, 400) and (location := response.headers.get("Location")):
        target = ascii(shown_url(location)[:120])  # bytes may be anything
        raise RefusedError(f"HTTP {response.status}: redirected to {target}, which is not followed (a login page?)")


async def whole_body(response: aiohttp.ClientResponse, largest_bytes: int) -> bytes:
    """The body, decompressed. Raises :class:`RefusedError` for one that is cut, larger than ``largest_bytes`` after
    decompression, or in an encoding that was not asked for.
    """
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise RefusedError(f"Content-Encoding {encoding[:40]!a} was not asked for and is not understood")
    return await (_inflated if "gzip" in encoding else _plain)(response, largest_bytes)


async def _plain(response: aiohttp.ClientResponse, largest_bytes: int) -> bytes:
    body = bytearray()
    try:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            _check_size(body, largest_bytes)
    except aiohttp.ClientPayloadError as error:
        raise RefusedError(_cut(len(body), response)) from error
    return bytes(body)


async def _inflated(response: aiohttp.ClientResponse, largest_bytes: int) -> bytes:
    body, received = bytearray(), 0
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    try:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            received += len(chunk)
            body += inflater.decompress(chunk, largest_bytes + 1 - len(body))
            _check_size(body, largest_bytes)
            if inflater.unused_data:  # would pile up inside the inflater, beyond any limit
                raise RefusedError("data after the end of the gzip body")
    except aiohttp.ClientPayloadError as error:
        raise RefusedError(_cut(received, response)) from error
    except zlib.error as error:
        raise RefusedError("not valid gzip although Content-Encoding says so") from error
    if not inflater.eof:
        raise RefusedError(f"body cut at {received} bytes, inside its gzip data")
    return bytes(body)


def _check_size(body: bytearray, largest_bytes: int) -> None:
    if len(body) > largest_bytes:
        raise RefusedError(f"body larger than {largest_bytes // 1024**2} MiB")


def _cut(received_bytes: int, response: aiohttp.ClientResponse) -> str:
    expected = response.content_length
    return f"body cut at {received_bytes} bytes" + ("" if expected is None else f" of {expected}")


def trouble(error: Exception) -> str:
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
            return f"{type(error).__name__}: {shown_text(str(error))}"
