"""The scaler as one process: loop, gRPC for KEDA, HTTP for everyone else, and an orderly end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry

from scaler.policy.layers import PolicyFile
from scaler.process.ending import GRACE_SECONDS, Ending
from scaler.process.options import Address
from scaler.serve.collector import shorten_pauses
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.grpc_server import GrpcServer, start_grpc
from scaler.serve.http import make_app, start_http
from scaler.serve.loop import FORGET_AFTER_SECONDS, Loop
from scaler.serve.owner_metrics import OwnerCollector
from scaler.serve.ownership import Ownership
from scaler.serve.policy_watch import PolicyWatch
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.store import Store
from scaler.serve.tls import TlsFiles, grpc_credentials, http_context
from scaler.serve.workloads import Workloads
from scaler.value import frozen

if TYPE_CHECKING:
    from scaler.serve.redis_link import RedisLink

log = structlog.get_logger(__name__)


@frozen
class Listening:
    """Where to listen and how. ``health`` is a further, always plaintext port for kubelet's gRPC probe."""

    grpc: Address
    http: Address
    health: Address | None = None
    grpc_tls: TlsFiles | None = None
    http_tls: TlsFiles | None = None


@frozen
class Tokens:
    """What callers of the HTTP API must show: ``push`` to report demand (None: nobody can), ``read`` to read (None:
    nothing).
    """

    push: str | None = None
    read: str | None = None


async def run_scaler(
    policy_path: Path | None,
    store: Store,
    *,
    shared: RedisLink | None = None,
    peers_port: int = 0,
    listening: Listening,
    tokens: Tokens,
    tick_seconds: float,
    forget_after_seconds: float = FORGET_AFTER_SECONDS,
    grace_seconds: float = GRACE_SECONDS,
) -> None:
    """Run until SIGTERM or SIGINT; a second one is not waited for. ``shared`` is what several scalers share, None
    where this is the only one; ``peers_port`` where they ask each other (:mod:`scaler.serve.peers`).

    Raises OSError or RuntimeError where an address cannot be bound or a TLS file not be used, and PolicyError for a
    policy file that cannot be meant; later, a bad one is only refused.
    """
    policies = PolicyFile.load(policy_path) if policy_path else PolicyFile.empty()
    ending = Ending(grace_seconds)
    ending.listen()
    workloads = Workloads(policies, tick_seconds=tick_seconds)
    for name in workloads.names():
        workload = workloads.get(name)
        if workload is not None:
            log.info("workload declared", workload=name, warnings=list(workload.resolved.warnings))
    watch = PolicyWatch(policy_path, workloads) if policy_path else None
    loop = Loop(
        workloads,
        store,
        before_tick=watch.look if watch else lambda: None,
        forget_after_seconds=forget_after_seconds,
    )
    loop.restore()
    if shared is not None:
        from scaler.serve.keeper import SharedOwnership  # who has one scaler has no need of redis-py

        workloads.ownership = SharedOwnership(workloads, shared, peers_port=peers_port)
    shorten_pauses()
    try:
        await _serve(workloads, loop, store, listening, tokens, ending)
    finally:
        store.close()
    log.info("stopped")


async def _serve(
    workloads: Workloads, loop: Loop, store: Store, listening: Listening, tokens: Tokens, ending: Ending
) -> None:
    """Tick and answer until asked to stop; then end the loop and both servers side by side, so that a source that
    hangs in its last tick keeps no stream open.
    """
    stopping, ownership = ending.stopping, workloads.ownership
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    registry.register(OwnerCollector(workloads, ownership, lambda: ownership.trouble or store.trouble))
    app = make_app(workloads, token=tokens.push, read_token=tokens.read, registry=registry, stopping=stopping)
    grpc_tls = grpc_credentials(listening.grpc_tls) if listening.grpc_tls else None
    http_tls = http_context(listening.http_tls) if listening.http_tls else None
    runner, http_port = await start_http(app, listening.http.host, listening.http.port, http_tls)
    try:
        grpc_server = await start_grpc(
            workloads,
            str(listening.grpc),
            RpcStatistics(registry),
            grpc_tls,
            health_address=str(listening.health) if listening.health else None,
            joined=ownership.joined.is_set(),
        )
    except BaseException:
        await runner.cleanup()
        raise
    health = {} if listening.health is None else {"health": f"{listening.health.host}:{grpc_server.health_port}"}
    log.info(
        "serving",
        grpc=f"{listening.grpc.host}:{grpc_server.port}",
        http=f"{listening.http.host}:{http_port}",
        **health,
    )
    ticking = asyncio.create_task(_tick(loop, ownership, ending), name="the loop")
    joining = asyncio.create_task(_join(ownership, grpc_server), name="joining the other scalers")
    asked = asyncio.create_task(stopping.wait(), name="asked to stop")
    await asyncio.wait((ticking, asked), return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    ended = await asyncio.gather(ticking, grpc_server.stop(), runner.cleanup(), return_exceptions=True)
    asked.cancel()
    joining.cancel()
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome


async def _join(ownership: Ownership, grpc_server: GrpcServer) -> None:
    await ownership.joined.wait()
    await grpc_server.join()


async def _tick(loop: Loop, ownership: Ownership, ending: Ending) -> None:
    await ownership.start()
    try:
        await loop.run(ending.stopping)
    finally:
        await ownership.stop()
    ending.stored()
