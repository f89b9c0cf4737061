"""The server around the service: health, reflection, pings, limits, shutdown."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import CollectorRegistry

from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.grpc_server import GrpcServer, start_grpc
from scaler.serve.rpc_statistics import RpcStatistics
from tests.contract.conftest import FakeWorkloads, Keda, decided, ref, refusal

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class TestHealth:
    @pytest.mark.parametrize("service", ["", "externalscaler.ExternalScaler", "liveness", "readiness"])
    async def test_serving(self, keda: Keda, service: str) -> None:
        health = health_pb2_grpc.HealthStub(keda.channel)
        assert (await health.Check(health_pb2.HealthCheckRequest(service=service))).status == SERVING

    async def test_shutdown_is_told_to_who_watches(self, server: GrpcServer, keda: Keda) -> None:
        health = health_pb2_grpc.HealthStub(keda.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service="readiness"))
        assert (await watch.read()).status == SERVING
        stopping = asyncio.create_task(server.stop(grace_seconds=0.5))
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        await stopping


async def test_reflection_lists_the_service(keda: Keda) -> None:
    reflection = reflection_pb2_grpc.ServerReflectionStub(keda.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="externalscaler.ExternalScaler"),
    ]
    listed, described = [answer async for answer in reflection.ServerReflectionInfo(iter(requests))]
    names = {service.name for service in listed.list_services_response.service}
    assert {"externalscaler.ExternalScaler", "grpc.health.v1.Health"} <= names
    assert described.file_descriptor_response.file_descriptor_proto


class TestPings:
    """Every ScaledObject with our address shares one connection: a GOAWAY there interrupts them all."""

    async def test_a_client_that_pings_often_without_a_call_is_not_sent_away(self, server: GrpcServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        settings, ping, goaway = 0x4, 0x6, 0x7
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings))
        seen: list[int] = []
        acknowledged = 0
        for number in range(15):
            writer.write(frame(ping, payload=struct.pack(">Q", number)))
            while acknowledged <= number:
                kind, flags = await asyncio.wait_for(read_frame(reader), 60)
                seen.append(kind)
                acknowledged += kind == ping and flags & 1
                assert kind != goaway, f"sent away after {number} pings"
            await asyncio.sleep(0.2)
        assert seen.count(ping) == 15
        writer.close()
        await writer.wait_closed()

    async def test_a_grpc_client_that_pings_keeps_its_connection(
        self, workloads: FakeWorkloads, server: GrpcServer
    ) -> None:
        await workloads.tick("prod/llm", decided())
        pinging = Keda(
            server.port,
            (
                ("grpc.keepalive_time_ms", 200),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_pings_without_data", 0),
            ),
        )
        assert await pinging.is_active()
        with pytest.raises(TimeoutError):  # its state does not change
            async with asyncio.timeout(3.0):
                await pinging.channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert await pinging.is_active()
        await pinging.close()


def frame(kind: int, flags: int = 0, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame on the connection itself (stream 0)."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + bytes(4) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int]:
    """The (type, flags) of the next frame."""
    head = await reader.readexactly(9)
    await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4]


async def test_a_request_over_one_mebibyte_is_refused_and_the_connection_lives(
    workloads: FakeWorkloads, keda: Keda
) -> None:
    await workloads.tick("prod/llm", decided())
    code, _ = await refusal(keda.is_active(of=ref(huge="x" * (1 << 20))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await keda.is_active()


async def test_an_unknown_method_is_unimplemented_and_no_metric_label(keda: Keda, registry: CollectorRegistry) -> None:
    unknown = keda.channel.unary_unary("/externalscaler.ExternalScaler/StreamMetricSpec")
    code, _ = await refusal(unknown(b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    methods = {
        sample.labels["method"]
        for metric in registry.collect()
        for sample in metric.samples
        if sample.labels.get("method")
    }
    assert methods == {"GetMetricSpec", "GetMetrics", "IsActive", "StreamIsActive"}


async def test_a_second_server_on_the_port_fails_to_start(workloads: FakeWorkloads, server: GrpcServer) -> None:
    with pytest.raises(RuntimeError, match=str(server.port)):
        await start_grpc(workloads, f"127.0.0.1:{server.port}", RpcStatistics(CollectorRegistry()))


async def test_a_burst_of_calls_is_answered_whole(workloads: FakeWorkloads, server: GrpcServer) -> None:
    """All ScaledObjects of a large cluster call while the loop is busy; gRPC's default cancels every other call."""
    await workloads.tick("prod/llm", decided())

    def burst() -> Counter[str]:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            calls = [ExternalScalerStub(channel).IsActive.future(ref()) for _ in range(3000)]
            return Counter("OK" if call.exception() is None else call.code().name for call in calls)

    answers = asyncio.create_task(asyncio.to_thread(burst))
    await asyncio.sleep(0.05)
    time.sleep(2.0)  # noqa: ASYNC251  the loop is to be blocked
    assert await answers == {"OK": 3000}
