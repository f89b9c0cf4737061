"""The scaler, as one replica's agent sees it: its target by long poll, and what was applied back to it.

A target that is not renewed ends by itself, whatever the reason: a scaler that is away, a name that does not resolve, a
token that is wrong. Nothing here raises; each trouble is told once when it begins.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from socket import gaierror
from typing import Final
from urllib.parse import quote

import aiohttp
import structlog

from scaler import __version__
from scaler.consume.contract import (
    VALID_SECONDS_HEADER,
    AppliedReport,
    HeldTarget,
    ServedTarget,
    hold,
    valid_seconds,
)
from scaler.policy.addresses import shown_text
from scaler.value import frozen

log = structlog.get_logger(__name__)
_CHANCE = Random()

#: Beyond the wait that was asked for, an answer has this long to come.
ANSWER_SECONDS: Final = 5.0
#: The longest target that is read. An honest one has 250 bytes.
TARGET_BYTES: Final = 64 * 1024
#: The first and the longest pause after a failure; somewhat random, so that a scaler that comes back is not met by all
#: its agents at once.
RETRY_SECONDS, RETRY_MOST_SECONDS = 1.0, 15.0
#: Between two requests at the least: where something on the way answers each of them at once.
PAUSE_SECONDS: Final = 0.25


@frozen
class ScalerAddress:
    """Where one workload's target is: the scaler's URL, the workload's ``namespace/name``, and the tokens it asks for:
    ``read_token`` to read targets, ``push_token`` to report.
    """

    url: str
    workload: str
    read_token: str | None = None
    push_token: str | None = None

    def path(self, what: str) -> str:
        """The URL of ``target``, ``applied`` or ``demand``."""
        namespace, _, name = self.workload.partition("/")
        return f"{self.url.rstrip('/')}/v1/workloads/{quote(namespace)}/{quote(name)}/{what}"


class Relay:
    """Asks the scaler for one workload's target, again and again. ``mono`` is the monotonic time.

    ``changed`` is called whenever there may be another target, or none any longer.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: ScalerAddress,
        *,
        mono: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._session = session
        self._address = address
        self._mono = mono
        self._changed = changed
        self._held: HeldTarget | None = None
        self.trouble = "not asked yet"
        """Why the last request for a target failed; "" where it did not."""
        self.push_troubles: dict[str, str] = {}
        """Why the last ``applied`` or ``demand`` was not taken; "" where it was."""

    def target(self) -> ServedTarget | None:
        """The target to follow now; None: none was ever had, or it has expired."""
        return None if self._held is None else self._held.at(self._mono())

    @property
    def ends_mono(self) -> float | None:
        """When the target ends unless it is renewed; None where there is none."""
        return None if self._held is None else self._held.ends_mono

    async def run(self) -> None:
        """Ask until cancelled."""
        failures = 0
        while True:
            trouble = await self._ask()
            failures = failures + 1 if trouble else 0
            self._tell(trouble)
            pause = PAUSE_SECONDS
            if trouble:
                pause = min(RETRY_SECONDS * 2 ** (failures - 1), RETRY_MOST_SECONDS) * _CHANCE.uniform(0.5, 1.0)
            await asyncio.sleep(pause)

    async def report(self, report: AppliedReport) -> bool:
        """Tell the scaler what this replica runs with; whether it was taken."""
        return await self._push("applied", report.body())

    async def demand(self, pending: int, source: str) -> bool:
        """Tell it of requests that wait outside the engine, where the engine's own metrics don't show them."""
        return await self._push("demand", json.dumps({"pending": pending, "source": source}).encode())

    async def _push(self, what: str, body: bytes) -> bool:
        headers = {"Content-Type": "application/json", **_headers(self._address.push_token)}
        trouble = ""
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._session.post(
                    self._address.path(what), data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                if answer.status != 202:
                    trouble = await _refusal(answer)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            trouble = _words(error)
        if trouble != self.push_troubles.get(what, ""):
            if trouble:
                log.warning("the scaler does not take what it is told", what=what, reason=trouble)
            else:
                log.info("the scaler takes what it is told again", what=what)
            self.push_troubles[what] = trouble
        return not trouble

    async def _ask(self) -> str:
        """One request; why it failed, or ""."""
        held = self._held
        wait = 0.0 if held is None else held.wait_seconds(self._mono())
        headers = _headers(self._address.read_token)
        if held is not None:
            headers["If-None-Match"] = held.tag
        try:
            async with (
                asyncio.timeout(wait + ANSWER_SECONDS),
                self._session.get(
                    self._address.path("target"),
                    params={"wait": f"{wait:.1f}"},
                    headers=headers,
                    allow_redirects=False,  # it would carry the token away
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as answer,
            ):
                if answer.status == 304 and held is not None:
                    seconds = valid_seconds(answer.headers.get(VALID_SECONDS_HEADER))
                    self._held = held.renewed(seconds, self._mono())
                elif answer.status == 200:
                    body = await _body(answer, TARGET_BYTES)
                    self._held = hold(body, answer.headers.get("ETag", ""), self._mono())
                    self._changed()
                else:
                    return await _refusal(answer)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:  # a target or a name that is none
            return _words(error)
        if self._held.at(self._mono()) is None:
            return "the scaler vouches for its target no longer"
        return ""

    def _tell(self, trouble: str) -> None:
        if trouble == self.trouble:
            return
        if trouble:
            log.warning("no target from the scaler", reason=trouble, workload=self._address.workload)
        else:
            log.info("the scaler's target is followed", workload=self._address.workload)
        self.trouble = trouble
        self._changed()


def _headers(token: str | None) -> dict[str, str]:
    agent = {"User-Agent": f"loadtide-agent/{__version__}"}
    return agent if token is None else agent | {"Authorization": f"Bearer {token}"}


async def _refusal(answer: aiohttp.ClientResponse) -> str:
    text = (await _body(answer, 1024)).decode(errors="replace")
    return f"HTTP {answer.status} ({' '.join(text.split())[:200]})"


async def _body(answer: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """The body, or as much of it as is read of one that is too long."""
    body = b""
    while len(body) < most_bytes and (chunk := await answer.content.read(most_bytes - len(body))):
        body += chunk
    return body


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the scaler does not answer"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, gaierror):
        what = f"the name {error.host} is not known here ({error.os_error.strerror})"
        return f"{what}; --scaler or LOADTIDE_SCALER is http://SERVICE.NAMESPACE.svc:8080 of the scaler's Service"
    return shown_text(str(error))[:200] or type(error).__name__
