"""A small gateway that holds a request while there is no replica, as KEDA's HTTP add-on does.

Written from its interceptor (kedacore/http-add-on 59b2f6a: ``interceptor/middleware/endpoint_resolver.go`` and
``counting.go``, ``pkg/net/dial_context.go``): a request counts from its arrival to its end, waits until a backend is
ready, for as long as its client does, and is then forwarded as it came. What is different: readiness is asked of the
engine itself every 50 ms, where the add-on is told by the cluster, and demand is told to loadtide at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import structlog
from aiohttp import web

log = structlog.get_logger(__name__)

#: How often the engine is asked whether it is ready, while there is a request for it.
READY_SECONDS = 0.05
#: How often demand is told while there is any; it counts for ``push.demand_ttl_seconds``.
REPORT_SECONDS = 1.0


class HoldingProxy:
    """Holds requests for the engine at ``engine`` and tells ``demand`` (the URL of ``POST .../demand``) of them."""

    def __init__(self, session: aiohttp.ClientSession, engine: str, demand: str, token: str) -> None:
        self._session = session
        self._engine = engine
        self._demand = demand
        self._headers = {"Authorization": f"Bearer {token}"}
        self.pending = 0
        """Requests inside, held or being answered."""
        self._told = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a free port of the loopback; gives the URL."""
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reporting = asyncio.ensure_future(self._report())
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            reporting.cancel()
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self.pending += 1
        try:
            body = await request.read()
            if not await self._ready():
                await self._tell()
                while not await self._ready():  # noqa: ASYNC110  - the engine has no other way to say so
                    await asyncio.sleep(READY_SECONDS)
            async with self._session.request(request.method, self._engine + request.path_qs, data=body) as answer:
                response = web.StreamResponse(status=answer.status)
                response.content_type = answer.content_type
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        finally:
            self.pending -= 1

    async def _ready(self) -> bool:
        try:
            async with self._session.get(f"{self._engine}/health", timeout=aiohttp.ClientTimeout(1.0)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _tell(self) -> None:
        """Tell of it now. A scaler that is away, or does not take it, is told again with the next report."""
        pending, limit = self.pending, aiohttp.ClientTimeout(1.0)
        document = {"pending": pending, "source": "door"}
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._session.post(self._demand, json=document, headers=self._headers, timeout=limit) as answer:
                if answer.status == 202:
                    self._told = pending
                else:
                    log.warning("demand is not taken", status=answer.status, text=(await answer.text())[:200])

    async def _report(self) -> None:
        """Tell of demand again while there is any, and once when there is none any longer."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self.pending or self._told:
                await self._tell()
