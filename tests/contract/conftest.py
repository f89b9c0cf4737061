"""A real server on a real socket, over workloads whose decisions the test writes by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import grpc
import pytest
from prometheus_client import CollectorRegistry

from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.model import (
    Code,
    Decision,
    LoadState,
    Memory,
    Now,
    Reason,
    Target,
    Targets,
)
from scaler.policy.errors import PolicyError
from scaler.policy.model import Policy
from scaler.serve.externalscaler_pb2 import GetMetricsRequest, MetricValue, ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.grpc_server import GrpcServer, start_grpc
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.snapshot import Snapshot
from scaler.signals.model import Signals

#: The longest a test waits for something that must come.
PATIENCE = 60.0


def decided(
    replicas: int = 3,
    active: bool = True,
    ready: int | None = 3,
    available: bool = True,
    lost: tuple[str, ...] = (),
) -> Decision:
    """A decision as ``decide`` could have made it; ``lost`` are the signals that make it unavailable."""
    return Decision(
        targets=Targets(replicas=replicas, active=active, batch=None),
        available=available,
        state=LoadState.NORMAL if available else LoadState.UNKNOWN,
        cause=None,
        reasons=tuple(Reason(Code.SIGNAL_LOST_TOO_LONG, Target.REPLICAS, signal) for signal in lost),
        suppressed=(),
        floor=0,
        ceiling=None,
        need=replicas,
        ready=ready,
        utilisation=None,
        capacity=CapacityEstimate(sequences=8.0, requests_per_second=None, source="declared"),
        verdicts={},
        next_memory=Memory(),
    )


@dataclass(slots=True)
class FakeWorkload:
    name: str
    metadata: Mapping[str, str]
    version: int = 0
    snapshot: Snapshot | None = None
    called: ScaledObjectRef | None = None
    ticked: asyncio.Condition = field(default_factory=asyncio.Condition)


@dataclass(slots=True)
class FakeWorkloads:
    """The registry of workloads as the service sees it. The metadata key ``floor`` must be a whole number."""

    known: dict[str, FakeWorkload] = field(default_factory=dict)
    #: Names whose triggers disagree.
    conflicting: set[str] = field(default_factory=set)
    #: Names whose first tick never comes; their calls wait on ``first_tick_seconds``.
    first_tick_seconds: float = 0.0
    loop_dead: bool = False
    #: Names of the workloads that streams asked for, each time they did.
    asked_for: list[str] = field(default_factory=list)

    def validate(self, name: str, metadata: Mapping[str, str]) -> None:
        floor = metadata.get("floor", "0")
        if not floor.isdigit():
            raise PolicyError([f'{name}: floor: {floor!r} is not a whole number; write for example floor: "1"'])

    def register(self, name: str, metadata: Mapping[str, str]) -> FakeWorkload:
        self.validate(name, metadata)
        if name in self.conflicting:
            raise PolicyError([f"{name}: two triggers with differing metadata; one ScaledObject takes one trigger"])
        return self.known.setdefault(name, FakeWorkload(name, metadata))

    def get(self, name: str) -> FakeWorkload | None:
        return self.known.get(name)

    def at_hand(self, workload: FakeWorkload) -> Snapshot | None:
        snapshot = workload.snapshot
        return snapshot if snapshot and snapshot.decision.available and self.is_current(snapshot) else None

    def asked(self, workload: FakeWorkload) -> None:
        self.asked_for.append(workload.name)

    async def first_snapshot(self, workload: FakeWorkload) -> Snapshot | None:
        if workload.snapshot is None:
            await asyncio.sleep(self.first_tick_seconds)
        return workload.snapshot

    async def wait_change(self, workload: FakeWorkload, version: int, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout), workload.ticked:
                await workload.ticked.wait_for(lambda: workload.version > version)
        except TimeoutError:
            pass

    def is_current(self, snapshot: Snapshot) -> bool:
        return not self.loop_dead

    async def tick(self, name: str, decision: Decision) -> None:
        """What the loop does: replace the workload's snapshot whole, and wake who waits for it."""
        workload = self.known.setdefault(name, FakeWorkload(name, {}))
        async with workload.ticked:
            workload.version += 1
            workload.snapshot = Snapshot(
                workload=name,
                policy=Policy(),
                signals=Signals(),
                decision=decision,
                decided_at=Now(datetime(2026, 1, 5, 12, 0, tzinfo=UTC), float(workload.version)),
                generation=1,
                valid_until=datetime(2026, 1, 5, 12, 1, tzinfo=UTC),
                health=(),
                warnings=(),
                tick_seconds=0.001,
            )
            workload.ticked.notify_all()


def ref(name: str = "llm", namespace: str = "prod", **metadata: str) -> ScaledObjectRef:
    """The reference KEDA sends, with its own connection keys in the metadata as it does."""
    return ScaledObjectRef(
        name=name,
        namespace=namespace,
        scalerMetadata={"scalerAddress": "loadtide.keda:9090", **metadata},
    )


class Stream:
    """One open StreamIsActive call, read as it comes."""

    def __init__(self, call: grpc.aio.UnaryStreamCall) -> None:
        self.call = call
        self._told: asyncio.Queue[bool] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for response in self.call:
            self._told.put_nowait(response.result)

    async def next(self) -> bool:
        """The next message, however long it takes (up to a limit that means: it does not come)."""
        return await asyncio.wait_for(self._told.get(), PATIENCE)

    async def silent(self, seconds: float = 0.1) -> bool:
        """Whether nothing is told for so long."""
        await asyncio.sleep(seconds)
        return self._told.empty()

    def drain(self) -> int:
        """How many messages lay unread; none does afterwards."""
        unread = self._told.qsize()
        for _ in range(unread):
            self._told.get_nowait()
        return unread

    async def close(self) -> None:
        self.call.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


class Keda:
    """KEDA's side: a client of its own connection."""

    def __init__(self, port: int, options: tuple[tuple[str, int], ...] = ()) -> None:
        # Own connections, not one from the process-wide pool: two operators are two connections.
        own = ("grpc.use_local_subchannel_pool", 1)
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=(own, *options))
        self.stub = ExternalScalerStub(self.channel)
        self._streams: list[Stream] = []

    async def value(self, metric_name: str = "desired-replicas", of: ScaledObjectRef | None = None) -> MetricValue:
        request = GetMetricsRequest(scaledObjectRef=of or ref(), metricName=metric_name)
        (value,) = (await self.stub.GetMetrics(request)).metricValues
        return value

    async def is_active(self, of: ScaledObjectRef | None = None) -> bool:
        return (await self.stub.IsActive(of or ref())).result

    def stream(self, of: ScaledObjectRef | None = None) -> Stream:
        stream = Stream(self.stub.StreamIsActive(of or ref()))
        self._streams.append(stream)
        return stream

    async def close(self) -> None:
        for stream in self._streams:
            await stream.close()
        await self.channel.close()


async def refusal(call: object) -> tuple[grpc.StatusCode, str]:
    """The code and text that ``call`` must end with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code(), caught.value.details() or ""


@pytest.fixture
def workloads() -> FakeWorkloads:
    return FakeWorkloads()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def repeat_seconds() -> float:
    """How slowly a stream repeats itself; long here, so that no test sees it by chance."""
    return 600.0


@pytest.fixture
async def server(
    workloads: FakeWorkloads, registry: CollectorRegistry, repeat_seconds: float
) -> AsyncIterator[GrpcServer]:
    running = await start_grpc(workloads, "127.0.0.1:0", RpcStatistics(registry), repeat_seconds=repeat_seconds)
    yield running
    await running.stop(grace_seconds=0.1)


@pytest.fixture
async def keda(server: GrpcServer) -> AsyncIterator[Keda]:
    client = Keda(server.port)
    yield client
    await client.close()
