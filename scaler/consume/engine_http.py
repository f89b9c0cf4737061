"""One request to an engine's own HTTP: bounded in time and size, and every failure one :class:`EngineError`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from scaler.consume.engine import EngineError

#: The longest answer that is read. SGLang's ``/server_info`` is the longest honest one: 150 kB.
LARGEST_BYTES: Final = 8 * 1024 * 1024
#: How much of an engine's own words goes into an error.
WORDS: Final = 200


class NoSuchRouteError(EngineError):
    """HTTP 404 or 405: this version of the engine does not have the route, or does not know what was named in it."""


class EngineHttp:
    """Requests to one engine at ``url`` (no path, or the path that all its routes are under).

    ``timeout_seconds`` is for one request whole: connecting, waiting and reading.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, *, timeout_seconds: float = 5.0) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds

    async def json(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """The JSON of a 2xx answer; None where it is empty. ``key`` is sent as a bearer token. Raises EngineError."""
        text = await self.text(method, path, body, key=key, timeout_seconds=timeout_seconds)
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            said = ascii(text[:40])
            raise EngineError(f"{method} {path}: the answer is not JSON ({said}); is it this engine's port?") from None

    async def text(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> str:
        """The body of a 2xx answer. Raises EngineError."""
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        headers: Mapping[str, str] = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(
                    method,
                    self._url + path,
                    json=body,
                    headers=headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None),  # the limit is ours, around all of this
                ) as answer,
            ):
                text = (await _limited(answer)).decode(errors="replace")
        except TimeoutError:
            raise EngineError(f"{method} {path}: no answer within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise EngineError(f"{method} {path}: {_trouble(error)}") from error
        if answer.status // 100 == 2:
            return text
        words = f"{method} {path}: HTTP {answer.status}{_words(text)}"
        if answer.status in (401, 403):
            raise EngineError(f"{words}; give the engine's key (--engine-key-file, --engine-admin-key-file)")
        if answer.status in (404, 405):
            raise NoSuchRouteError(words)
        raise EngineError(words)


async def _limited(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > LARGEST_BYTES:
            raise aiohttp.ClientPayloadError(f"the answer is longer than {LARGEST_BYTES // 1024**2} MiB")
    return bytes(body)


def _trouble(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect ({error.os_error.strerror or error.os_error})"
    return f"{type(error).__name__}: {error}"[:WORDS]


def _words(text: str) -> str:
    """What the engine said of a refusal, on one line."""
    said = " ".join(text.split())[:WORDS]
    return f" ({said})" if said else ""


def host_of(url: str) -> str:
    """Host and port of ``url``, for a log: without user, password, path and query."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
