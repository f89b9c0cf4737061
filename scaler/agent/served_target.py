"""The target, served to an engine that asks for it itself (vLLM with our plugin): the scaler's contract, on loopback.

The engine asks the agent instead of the scaler, and gets the lower of the scaler's batch and the guard's; where neither
says anything it gets "your own setting". What it reports goes on to the scaler. A target from here is good for a short
while, so that an engine whose agent has died goes back to its own setting.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from aiohttp import web

from scaler.agent.ruling import Ruling
from scaler.consume.contract import (
    LONGEST_WAIT_SECONDS,
    VALID_SECONDS_HEADER,
    VALID_UNTIL_HEADER,
    AppliedReport,
    ContractError,
    ServedTarget,
    parse_report,
)

#: For how long a target from here may be used.
VALID_SECONDS: Final = 20.0
#: What stands for a target that is not the scaler's (whose begin at 1) but the guard's alone, or nobody's. An engine
#: that reports it follows none of the scaler's.
NOBODYS_GENERATION: Final = 0


class ServedTargets:
    """The routes of one workload. ``ruling`` gives what rules now; ``reported`` is told what the engine applied.

    Call :meth:`changed` whenever ``ruling`` may give another, and :meth:`stop` before the server ends.
    """

    def __init__(
        self, workload: str, ruling: Callable[[], Ruling], reported: Callable[[AppliedReport], Awaitable[bool]]
    ) -> None:
        self._workload = workload
        self._ruling = ruling
        self._reported = reported
        self._stopping = False
        self._change = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        """As the scaler's, for this workload alone."""
        namespace, _, name = self._workload.partition("/")
        one = f"/v1/workloads/{namespace}/{name}"
        return [web.get(f"{one}/target", self.show_target), web.post(f"{one}/applied", self.take_applied)]

    def changed(self) -> None:
        """Let every request that waits look again."""
        change, self._change = self._change, asyncio.Event()
        change.set()

    def stop(self) -> None:
        """Answer every request that waits, and let none wait any longer."""
        self._stopping = True
        self.changed()

    async def show_target(self, request: web.Request) -> web.Response:
        """The target; 304 with the one it has, after waiting up to ``wait`` seconds for another."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _wait(request)
        known = request.headers.get("If-None-Match", "")
        while True:
            change, ruling = self._change, self._ruling()
            if ruling.tag not in known:
                return web.json_response(self._target(ruling).document(), headers=_headers(ruling))
            left = deadline - loop.time()
            if left <= 0 or self._stopping:
                return web.Response(status=304, headers=_headers(ruling))
            try:
                async with asyncio.timeout(left):
                    await change.wait()
            except TimeoutError:
                continue

    async def take_applied(self, request: web.Request) -> web.Response:
        """What the engine applied; 502 where the scaler did not take it."""
        try:
            report = parse_report(await request.read())
        except ContractError as error:
            return web.json_response({"error": str(error)}, status=400)
        if report.generation == NOBODYS_GENERATION:
            report = replace(report, generation=None)
        if not await self._reported(report):
            return web.json_response({"error": "the scaler did not take it; the agent's log says why"}, status=502)
        return web.json_response({"accepted": True}, status=202)

    def _target(self, ruling: Ruling) -> ServedTarget:
        return ServedTarget(
            workload=self._workload,
            batch_size=ruling.batch_size,
            token_budget=ruling.token_budget,
            admission=ruling.admission,
            generation=ruling.generation or NOBODYS_GENERATION,
            valid_until=_until(),
            valid_seconds=VALID_SECONDS,
        )


def _headers(ruling: Ruling) -> dict[str, str]:
    return {
        "ETag": ruling.tag,
        VALID_SECONDS_HEADER: f"{VALID_SECONDS:g}",
        VALID_UNTIL_HEADER: _until().isoformat(timespec="milliseconds"),
    }


def _until() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=VALID_SECONDS)


def _wait(request: web.Request) -> float:
    """``?wait=`` in seconds; what is no number of seconds waits for nothing."""
    try:
        wait = float(request.query.get("wait", "0"))
    except ValueError:
        return 0.0
    return min(max(wait, 0.0), LONGEST_WAIT_SECONDS) if math.isfinite(wait) else 0.0
