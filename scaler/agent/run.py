"""The node agent as one process: its loops beside each other, its two ports, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

import aiohttp
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from scaler.agent.agent import Agent, AgentOptions
from scaler.agent.agent_metrics import AgentCollector
from scaler.process.ending import Ending
from scaler.process.options import Address
from scaler.signals.nvml import LocalGpus

log = structlog.get_logger(__name__)

#: How long the engine may take to go back to its own setting at the end.
RELEASE_SECONDS: Final = 5.0


async def run_agent(options: AgentOptions, *, load_nvml: Callable[[], Any] | None = None) -> None:
    """Run until SIGTERM or SIGINT; a second one is not waited for. ``load_nvml`` gives NVML's module, for tests.

    Raises OSError where an address cannot be bound.
    """
    ending = Ending(options.grace_seconds)
    ending.listen()
    gpus = LocalGpus(load=load_nvml)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        agent = Agent(options, session, gpus)
        async with contextlib.AsyncExitStack() as servers:
            bound = await _listen(servers, _page(agent, options, ending.stopping), options.http)
            told = {}
            if agent.served is not None:
                app = web.Application(client_max_size=64 * 1024)
                app.add_routes(agent.served.routes())
                port = await _listen(servers, app, options.target_http)
                told = {"target": f"http://{options.target_http.host}:{port}"}
            log.info("agent runs", workload=options.workload, http=f"{options.http.host}:{bound}", **told)
            try:
                await _until_stopped(agent.loops(), ending.stopping)
            finally:
                gpus.close()
                if agent.served is not None:
                    agent.served.stop()
                if agent.follower is not None:
                    await agent.follower.release(RELEASE_SECONDS)
                if agent.rung is not None:
                    await agent.rung.release(RELEASE_SECONDS)
    ending.stored()
    log.info("stopped")


async def _until_stopped(loops: list[Coroutine[Any, Any, None]], stopping: asyncio.Event) -> None:
    """Run the loops until asked to stop. One that ends by itself has failed, and takes the process with it."""
    running = [asyncio.ensure_future(loop) for loop in loops]
    asked = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((asked, *running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (asked, *running):
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome


async def _listen(servers: contextlib.AsyncExitStack, app: web.Application, where: Address) -> int:
    """Serve ``app`` until ``servers`` close; the port that was bound."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    servers.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, where.host, where.port).start()
    port: int = runner.addresses[0][1]
    return port


def _page(agent: Agent, options: AgentOptions, stopping: asyncio.Event) -> web.Application:
    """``/metrics`` and the probes. An engine or a scaler that is away is no reason to end us; metrics tell that."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent.state, hostname=_hostname(), gpu_metrics=options.gpu_metrics))

    async def metrics(request: web.Request) -> web.Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        except (ValueError, TypeError):  # a version that is none
            encode, content_type = choose_encoder("")
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        return web.Response(status=503, text="stopping\n") if stopping.is_set() else web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


def _hostname() -> str:
    """The node's name where the pod was told it, else our own."""
    return os.environ.get("NODE_NAME") or socket.gethostname()
