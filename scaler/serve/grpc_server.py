"""The gRPC server: KEDA's service with health and reflection on one port; on another, plain, health for kubelet."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from scaler.serve.handlers import add_keda_handlers
from scaler.serve.keda import REPEAT_SECONDS, CalledWorkloads, KedaService, W
from scaler.serve.limits import Limits
from scaler.serve.rpc_statistics import SERVICE, RpcStatistics
from scaler.value import frozen

#: Health services that answer; the last two are for probes that ask for one by name. None of them follows the data
#: sources: a scaler whose engines do not answer must stay reachable to say just that. None needs a thread of its own
#: either: a blocked event loop answers no probe, and kubelet restarts it.
HEALTH_SERVICES = ("", SERVICE, "liveness", "readiness")
#: This one waits, once, until we have joined the other scalers (:attr:`scaler.serve.ownership.Ownership.joined`): one
#: that cannot reach Redis must not replace, in a rollout, those that go on without it.
_READINESS = "readiness"
_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
#: How long calls under way may take to finish when stopping, seconds: a first call may wait one for its first tick.
FINISH_SECONDS = 2.0

SERVER_OPTIONS = (
    # Two processes sharing a port would share KEDA's calls without knowing it; the second must fail to start.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", Limits().message_bytes),
    # Clients that ping every 10 s with no call open are welcome: the default answers them with GOAWAY
    # too_many_pings, and every ScaledObject with our address shares that one connection.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # KEDA's client never pings, so we do: a half-open connection and its streams are gone after 30 + 10 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Calls that wait their turn. The default cancels some of them from 1,000 on, by lot: so many come at one moment
    # when we are back after a restart, and to KEDA each is an error. Enough for two operators and the HPA at the limit
    # of workloads.
    ("grpc.server.max_pending_requests", 30_000),
    ("grpc.server.max_pending_requests_hard_limit", 60_000),
)


@frozen
class GrpcServer:
    """The running server; ``port`` is the one bound, also where the address asked for port 0. ``health_port`` is the
    plain one, None where none was asked for.
    """

    server: grpc.aio.Server
    port: int
    closing: asyncio.Event
    health: Any
    health_server: grpc.aio.Server | None = None
    health_port: int | None = None

    async def join(self) -> None:
        """Say from now on that we are ready."""
        await self.health.set(_READINESS, _SERVING)

    async def stop(self, grace_seconds: float = FINISH_SECONDS) -> None:
        """Say NOT_SERVING, end the streams with OK, let calls under way finish, and close.

        A client that does not read its stream never lets it end; it is cut off after ``grace_seconds``.
        """
        await self.health.enter_graceful_shutdown()
        self.closing.set()
        await self.server.stop(grace_seconds)
        if self.health_server is not None:  # last: who probes is to hear NOT_SERVING, not silence, until the end
            await self.health_server.stop(0)


async def start_grpc(
    workloads: CalledWorkloads[W],
    address: str,
    statistics: RpcStatistics,
    credentials: grpc.ServerCredentials | None = None,
    repeat_seconds: float = REPEAT_SECONDS,
    health_address: str | None = None,
    limits: Limits = Limits(),  # noqa: B008  a frozen value
    joined: bool = True,
) -> GrpcServer:
    """Serve KEDA, health and reflection on ``address`` (``host:port``; port 0: any free one), plaintext without
    ``credentials``; and health alone, always plaintext, on ``health_address``: kubelet's probe speaks no TLS.
    Not ``joined``: it is not ready until :meth:`GrpcServer.join`.

    Raises RuntimeError where an address cannot be bound.
    """
    closing = asyncio.Event()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service = statistics.counted(KedaService(workloads, statistics, closing, repeat_seconds, limits))
    add_keda_handlers(service, server)
    # The published stubs do not know the module's aio half.
    health_servicer = health.aio.HealthServicer()  # type: ignore[attr-defined, unused-ignore]
    for name in HEALTH_SERVICES:
        ready = joined or name != _READINESS
        await health_servicer.set(name, _SERVING if ready else _NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    port = server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
    health_server, health_port = None, None
    if health_address is not None:
        health_server = grpc.aio.server(options=SERVER_OPTIONS)
        health_pb2_grpc.add_HealthServicer_to_server(health_servicer, health_server)
        health_port = health_server.add_insecure_port(health_address)
        await health_server.start()
    await server.start()
    return GrpcServer(server, port, closing, health_servicer, health_server, health_port)
