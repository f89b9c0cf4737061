"""The scaler as one process: loop, gRPC for KEDA, HTTP for everyone else, and an orderly end."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from scaler.policy.layers import PolicyFile
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.http import make_app, start_http
from scaler.serve.keda import start_grpc
from scaler.serve.loop import Loop
from scaler.serve.policy_watch import PolicyWatch
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.store import Store
from scaler.serve.workloads import Workloads

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host (name or IP address) and a port, 0 for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def run_scaler(
    policy_path: Path | None,
    store: Store,
    *,
    grpc_address: Address,
    http_address: Address,
    tick_seconds: float,
    token: str | None,
) -> None:
    """Run until SIGTERM or SIGINT; a second one is not waited for. Raises OSError or RuntimeError where an address
    cannot be bound, and PolicyError for a policy file that cannot be meant; later, a bad one is only refused.
    """
    policies = PolicyFile.load(policy_path) if policy_path else PolicyFile.empty()
    stopping = asyncio.Event()
    _stop_on_signals(stopping)
    workloads = Workloads(policies, tick_seconds=tick_seconds)
    for name in workloads.names():
        workload = workloads.get(name)
        if workload is not None:
            log.info("workload declared", workload=name, warnings=list(workload.resolved.warnings))
    watch = PolicyWatch(policy_path, workloads) if policy_path else None
    loop = Loop(workloads, store, before_tick=watch.look if watch else lambda: None)
    loop.restore()
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    app = make_app(workloads, token=token, registry=registry, stopping=stopping)
    runner, http_port = await start_http(app, http_address.host, http_address.port)
    try:
        grpc_server = await start_grpc(workloads, str(grpc_address), RpcStatistics(registry))
        try:
            log.info("serving", grpc=f"{grpc_address.host}:{grpc_server.port}", http=f"{http_address.host}:{http_port}")
            await loop.run(stopping)
        finally:
            await grpc_server.stop()
    finally:
        await runner.cleanup()
        store.close()
    log.info("stopped")


def _stop_on_signals(stopping: asyncio.Event) -> None:
    running = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        stopping.set()
        # Whoever asks twice does not want to wait.
        running.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop, number)
