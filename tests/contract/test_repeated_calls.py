"""A call that says what the last one said is not validated again; whatever has changed since is seen all the same."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from scaler.control.model import Now
from scaler.policy.layers import PolicyFile
from scaler.serve.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.grpc_server import start_grpc
from scaler.serve.ownership import SoleOwner
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.workloads import Workload, Workloads
from tests.contract.conftest import decided
from tests.contract.keda_client import scaled_object
from tests.serve.tide import snapshot

GOLD = "policies:\n  gold: {replicas: {max: 9}}\n"
CALLED = {"policy": "gold", "pushEnabled": "true"}
REF = scaled_object("llm", metadata=CALLED)


@dataclass
class Scaler:
    """The real registry behind the real service; ticks are the test's, and so is the time."""

    stub: Any = None
    now: float = 100.0
    workloads: Workloads = field(init=False)

    def __post_init__(self) -> None:
        policies = PolicyFile.parse("policy.yaml", GOLD)
        self.workloads = Workloads(policies, tick_seconds=5.0, mono=lambda: self.now)

    def tick(self, ref: ScaledObjectRef, **decision: Any) -> Workload:
        """What the loop does after a first call with ``ref``."""
        name = f"{ref.namespace}/{ref.name}"
        workload = self.workloads.get(name) or self.workloads.register(name, dict(ref.scalerMetadata))
        made = snapshot(name, decided_at=Now(datetime(2026, 1, 5, tzinfo=UTC), self.now))
        self.workloads.publish(workload, replace(made, decision=decided(**decision)))
        return workload

    async def replicas(self, ref: ScaledObjectRef = REF) -> int:
        assert (await self.stub.IsActive(ref)).result
        answer = await self.stub.GetMetrics(GetMetricsRequest(scaledObjectRef=ref))
        return int(answer.metricValues[0].metricValue)

    async def refused(self, ref: ScaledObjectRef = REF) -> set[grpc.StatusCode]:
        codes = set()
        for call in (self.stub.IsActive(ref), self.stub.GetMetrics(GetMetricsRequest(scaledObjectRef=ref))):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            codes.add(caught.value.code())
        return codes


@pytest.fixture
async def scaler() -> AsyncIterator[Scaler]:
    made = Scaler()
    server = await start_grpc(made.workloads, "127.0.0.1:0", RpcStatistics(CollectorRegistry()))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        made.stub = ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
        yield made
    await server.stop(0)


async def test_every_decision_is_told_at_once(scaler: Scaler) -> None:
    for replicas in (3, 4, 3, 9):
        scaler.tick(REF, replicas=replicas)
        assert [await scaler.replicas() for _ in range(3)] == [replicas] * 3
    scaler.tick(REF, replicas=3, active=False)
    assert not (await scaler.stub.IsActive(REF)).result
    answer = await scaler.stub.GetMetrics(GetMetricsRequest(scaledObjectRef=REF))
    assert (answer.metricValues[0].metricValue, answer.metricValues[0].metricValueFloat) == (0, 0.0)


async def test_the_name_asked_for_is_the_name_told(scaler: Scaler) -> None:
    scaler.tick(REF, replicas=3)
    for name in ("desired-replicas", "s1-Desired-Replicas", "desired-replicas"):
        answer = await scaler.stub.GetMetrics(GetMetricsRequest(scaledObjectRef=REF, metricName=name))
        assert answer.metricValues[0].metricName == name


async def test_a_decision_that_is_no_more_to_be_stood_by_is_not_told_again(scaler: Scaler) -> None:
    scaler.tick(REF, replicas=3)
    assert await scaler.replicas() == 3
    scaler.tick(REF, available=False, lost=("running",))
    assert await scaler.refused() == {grpc.StatusCode.UNAVAILABLE}
    scaler.tick(REF, replicas=4)
    assert await scaler.replicas() == 4
    scaler.now += 60.0  # and no tick
    assert await scaler.refused() == {grpc.StatusCode.UNAVAILABLE}


async def test_changed_metadata_count_from_the_call_that_brings_them(scaler: Scaler) -> None:
    workload = scaler.tick(REF, replicas=3)
    assert await scaler.replicas() == 3
    changed = scaled_object("llm", metadata={**CALLED, "replicasMax": "2"})
    await scaler.replicas(changed)
    assert workload.resolved.policy.replicas.max == 2
    scaler.now += 60.0
    scaler.tick(changed, replicas=2)
    await scaler.replicas(REF)
    assert workload.resolved.policy.replicas.max == 9
    bad = scaled_object("llm", metadata={**CALLED, "replicasMax": "two"})
    assert await scaler.refused(bad) == {grpc.StatusCode.INVALID_ARGUMENT}


async def test_two_triggers_that_disagree_are_found_out_though_each_repeats_itself(scaler: Scaler) -> None:
    other = scaled_object("llm", metadata={**CALLED, "replicasMax": "2"})
    for _ in range(3):
        for ref in (REF, other):
            scaler.now += 6.0
            scaler.tick(REF, replicas=2)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await scaler.stub.IsActive(ref)
    assert await scaler.refused(REF) | await scaler.refused(other) == {grpc.StatusCode.INVALID_ARGUMENT}


async def test_a_policy_file_that_refuses_the_metadata_is_obeyed(scaler: Scaler) -> None:
    scaler.tick(REF, replicas=3)
    assert await scaler.replicas() == 3
    scaler.workloads.replace_policies(PolicyFile.parse("policy.yaml", GOLD + "workloads:\n  prod/llm: {}\n"))
    assert await scaler.replicas() == 3
    scaler.workloads.replace_policies(PolicyFile.parse("policy.yaml", "workloads:\n  prod/llm: {}\n"))
    assert await scaler.refused() == {grpc.StatusCode.INVALID_ARGUMENT}
    scaler.workloads.replace_policies(PolicyFile.parse("policy.yaml", GOLD + "workloads:\n  prod/llm: {}\n"))
    assert await scaler.replicas() == 3


async def test_a_repeated_call_is_asking_too(scaler: Scaler) -> None:
    scaler.tick(REF, replicas=3)
    for _ in range(20):
        scaler.now += 5.0
        scaler.tick(REF)
        await scaler.stub.IsActive(REF)
        assert not scaler.workloads.forget_unasked(30.0)


async def test_an_owner_that_must_ask_first_is_asked_each_time(scaler: Scaler) -> None:
    class Asking(SoleOwner):
        asked = 0

        def at_hand(self, workload: Workload) -> None:
            return None

        async def answer(self, workload: Workload) -> Any:
            self.asked += 1
            return workload.snapshot

    scaler.workloads.ownership = owner = Asking()
    scaler.tick(REF, replicas=3)
    for _ in range(3):
        await scaler.replicas()
    assert owner.asked == 6
