"""A Prometheus asked with patience: what fails for a moment is asked again, what was answered once may be kept.

An answer is the body of an instant query. Kept answers lie in a folder, one zipped file each, named by a digest of the
server, the query and its time, so that a second backtest of the same days asks nothing, and one that was interrupted
goes on where it ended.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import aiohttp

from scaler.policy.prometheus import PrometheusServer
from scaler.signals.prometheus.answer import Answer, AnswerError, read_answer
from scaler.signals.prometheus.api import Api, QueryError
from scaler.value import frozen

#: The body that answers a query as of a time (Unix seconds).
Ask: TypeAlias = Callable[[str, float], Awaitable[bytes]]

#: Waits before the second and third try of what may have been a moment's trouble.
WAITS_SECONDS: Final = (1.0, 5.0)
#: What a server says that will say the same again at once, and that a shorter stretch of time may cure.
_TOO_MUCH: Final = re.compile(
    r"HTTP (?:400|413|414|422)\b|too many|limit|exceed|larger than|timed out|timeout|HTTP 50[034]\b", re.IGNORECASE
)
#: What no patience cures: who we are, where we ask, what we ask.
_NEVER: Final = re.compile(
    r"HTTP (?:401|403|404|405)\b|redirect|certificate|TLS|does not resolve|not a URL|HTML|not of a Prometheus API"
    r"|parse error|unknown function|cannot be read",
    re.IGNORECASE,
)
#: The last minutes may still be written to, so that an answer about them is not kept.
SETTLED_SECONDS: Final = 300.0


class AskError(Exception):
    """The server gave nothing usable, for a person; ``too_much``: less at a time might do."""

    def __init__(self, text: str, *, too_much: bool = False) -> None:
        super().__init__(text)
        self.too_much = too_much


@frozen
class Patience:
    """Asks ``api``, again where that may help. ``sleep`` is asyncio's."""

    api: Api
    session: aiohttp.ClientSession
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def __call__(self, query: str, unix: float) -> bytes:
        """The body. Raises :class:`AskError`."""
        for wait in (*WAITS_SECONDS, None):
            try:
                return await self.api.fetch(self.session, query, unix=unix)
            except QueryError as error:
                said = str(error)
                if wait is None or _NEVER.search(said) or _TOO_MUCH.search(said):
                    raise AskError(said, too_much=bool(_TOO_MUCH.search(said))) from error
            await self.sleep(wait)
        raise AssertionError("the last try returns or raises")


class Kept:
    """Answers of one server in a folder. ``asked`` and ``found`` count what was asked of it and what was there."""

    def __init__(self, folder: Path, server: PrometheusServer, ask: Ask, now: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._whose = "\n".join([server.url, *(f"{name}: {value}" for name, value in sorted(server.headers.items()))])
        self._ask = ask
        self._settled = now - SETTLED_SECONDS
        self.asked = self.found = 0

    async def __call__(self, query: str, unix: float) -> bytes:
        """The body, kept or fresh. A file that cannot be read is as good as none."""
        digest = hashlib.sha256(f"{self._whose}\n{query}\n{unix:.3f}".encode()).hexdigest()[:32]
        path = self._folder / f"{digest}.json.gz"
        try:
            body = await asyncio.to_thread(lambda: gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, ValueError):
            pass
        else:
            self.found += 1
            return body
        body = await self._ask(query, unix)
        self.asked += 1
        if unix <= self._settled:
            await asyncio.to_thread(_write, path, body)
        return body


def _write(path: Path, body: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(gzip.compress(body, compresslevel=1))
    fresh.replace(path)


async def vector(ask: Ask, query: str, unix: float) -> Answer:
    """The rows of an instant query. Raises :class:`AskError`."""
    body = await ask(query, unix)
    try:
        return read_answer(body)
    except AnswerError as error:
        raise AskError(str(error)) from error
