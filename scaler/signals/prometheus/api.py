"""One query asked of a Prometheus-compatible API, within its time limit."""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

from scaler.policy.prometheus import PrometheusServer
from scaler.signals.http_body import HEADERS, RefusedError, refuse_redirect, trouble, whole_body
from scaler.signals.prometheus.answer import Answer, AnswerError, read_answer, told_error
from scaler.signals.prometheus.credentials import Credentials

#: A larger answer is refused, counted after decompression: 2,000 replicas of vLLM make 25 MB of the largest family.
LARGEST_ANSWER_BYTES: Final = 256 * 1024 * 1024
#: What a server that refuses may say about it.
_LARGEST_ERROR_BYTES: Final = 1024 * 1024
#: Larger answers are decoded beside the event loop.
_SMALL_BYTES: Final = 64 * 1024
#: Queries of one source under way at a time: a Prometheus runs 20 for everybody (--query.max-concurrency).
CONCURRENT: Final = 4


class QueryError(Exception):
    """A query that gave nothing usable; the text says why, for a person, and names no secret."""


class Api:
    """One server of the policy file's ``sources:``."""

    def __init__(self, server: PrometheusServer) -> None:
        self.server = server
        self._credentials = Credentials(server)
        self._free = asyncio.Semaphore(CONCURRENT)

    async def ask(self, session: aiohttp.ClientSession, query: str, *, unix: float | None = None) -> Answer:
        """Evaluate ``query`` once, at ``unix`` (the server's time; None: now). Raises :class:`QueryError`."""
        body = await self.fetch(session, query, unix=unix)
        try:
            if len(body) <= _SMALL_BYTES:
                return read_answer(body)
            return await asyncio.to_thread(read_answer, body)
        except AnswerError as error:
            raise QueryError(str(error)) from error

    async def fetch(self, session: aiohttp.ClientSession, query: str, *, unix: float | None = None) -> bytes:
        """As :meth:`ask`, but the answer's body, not yet read. Waiting for our other queries is not in the limit."""
        limit = self.server.timeout_seconds
        try:
            async with self._free, asyncio.timeout(limit):
                return await self._post(session, query, unix)
        except TimeoutError as error:
            raise QueryError(f"timed out after {limit:g} s") from error
        except RefusedError as error:
            raise QueryError(str(error)) from error
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise QueryError(trouble(error)) from error

    async def _post(self, session: aiohttp.ClientSession, query: str, unix: float | None) -> bytes:
        # A VictoriaMetrics answers from 30 s ago without nocache (-search.latencyOffset); others ignore it.
        form = {"query": query, "nocache": "1", "timeout": f"{self.server.timeout_seconds:g}s"}
        if unix is not None:
            form["time"] = f"{unix:.3f}"
        async with session.post(
            f"{self.server.url}/api/v1/query",
            data=form,
            headers={**HEADERS, "Accept": "application/json", **self._credentials.headers()},
            ssl=self._credentials.ssl(),
            server_hostname=self.server.tls.server_name,
            allow_redirects=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),  # the limit is ours, around all of this
        ) as response:
            refuse_redirect(response)
            if response.status == 200:
                return await whole_body(response, LARGEST_ANSWER_BYTES)
            said = told_error(await whole_body(response, _LARGEST_ERROR_BYTES))
            if response.status in (401, 403) and not said:
                said = "the source's credentials are not accepted"
            raise RefusedError(f"HTTP {response.status}" + (f": {said}" if said else ""))
