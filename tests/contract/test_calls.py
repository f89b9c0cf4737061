"""G1-06, G1-07, G1-08 and G2-01 over the wire: one story for every caller, refusals that say why, nobody waits."""

from __future__ import annotations

import asyncio
import copy
import threading

import grpc
import pytest
from prometheus_client import CollectorRegistry

from scaler.serve.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.serve.grpc_server import GrpcServer
from tests.contract.conftest import FakeWorkloads, Keda, decided, ref, refusal


class TestAskedManyTimes:
    async def test_overlapping_calls_of_two_operators_get_one_answer_and_change_nothing(
        self, workloads: FakeWorkloads, server: GrpcServer, keda: Keda
    ) -> None:
        await workloads.tick("prod/llm", decided(replicas=3))
        snapshot, version = workloads.known["prod/llm"].snapshot, workloads.known["prod/llm"].version
        kept = copy.deepcopy(snapshot)
        other = Keda(server.port)
        values = await asyncio.gather(*(operator.value() for operator in (keda, other) for _ in range(10)))
        active = await asyncio.gather(*(operator.is_active() for operator in (keda, other) for _ in range(10)))
        await other.close()
        assert {(value.metricValue, value.metricValueFloat) for value in values} == {(3, 3.0)}
        assert set(active) == {True}
        assert workloads.known["prod/llm"].snapshot is snapshot
        assert workloads.known["prod/llm"].version == version
        assert snapshot == kept

    async def test_value_and_activity_tell_one_story_at_every_tick(self, workloads: FakeWorkloads, keda: Keda) -> None:
        for active in (True, False, True):
            await workloads.tick("prod/llm", decided(replicas=3, active=active))
            value, is_active = (await keda.value()).metricValueFloat, await keda.is_active()
            assert (value, is_active) == ((3.0, True) if active else (0.0, False))

    async def test_an_active_workload_wanting_none_is_active_with_zero(
        self, workloads: FakeWorkloads, keda: Keda
    ) -> None:
        await workloads.tick("prod/llm", decided(replicas=0, active=True))
        assert (await keda.value()).metricValueFloat == 0.0
        assert await keda.is_active() is True


class TestMetadata:
    async def test_a_bad_value_is_refused_by_key_and_value_in_every_call(
        self, workloads: FakeWorkloads, keda: Keda
    ) -> None:
        await workloads.tick("prod/llm", decided())
        bad = ref(floor="five")
        for call in (keda.stub.GetMetricSpec(bad), keda.value(of=bad), keda.is_active(of=bad)):
            code, text = await refusal(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "floor" in text
            assert "'five'" in text

    async def test_the_other_scaled_objects_go_on(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/other", decided(replicas=2))
        bad, good = await asyncio.gather(
            keda.value(of=ref(floor="five")), keda.value(of=ref("other")), return_exceptions=True
        )
        assert isinstance(bad, grpc.aio.AioRpcError)
        assert not isinstance(good, BaseException)
        assert good.metricValue == 2

    @pytest.mark.parametrize(("name", "namespace", "part"), [("", "prod", "name"), ("llm", "", "namespace")])
    async def test_a_reference_to_nothing_says_what_is_missing(
        self, keda: Keda, name: str, namespace: str, part: str
    ) -> None:
        nothing = ref(name, namespace)
        for call in (keda.stub.GetMetricSpec(nothing), keda.value(of=nothing), keda.is_active(of=nothing)):
            code, text = await refusal(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert f"ScaledObjectRef's {part} " in text

    async def test_a_request_without_reference_is_refused(self, keda: Keda) -> None:
        code, _ = await refusal(keda.stub.GetMetrics(GetMetricsRequest(metricName="desired-replicas")))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        code, _ = await refusal(keda.stub.IsActive(ScaledObjectRef()))
        assert code is grpc.StatusCode.INVALID_ARGUMENT

    async def test_two_triggers_at_odds_lose_their_answers_but_not_the_spec(
        self, workloads: FakeWorkloads, keda: Keda
    ) -> None:
        workloads.conflicting.add("prod/llm")
        assert (await keda.stub.GetMetricSpec(ref())).metricSpecs
        for call in (keda.value(), keda.is_active(), keda.stub.StreamIsActive(ref()).read()):
            code, text = await refusal(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "two triggers" in text

    async def test_a_very_long_problem_still_arrives(self, keda: Keda) -> None:
        code, text = await refusal(keda.is_active(of=ref(floor="x" * 100_000)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "floor" in text


class TestUnknown:
    async def test_before_the_first_tick_only_the_spec_is_known(
        self, workloads: FakeWorkloads, server: GrpcServer, keda: Keda, registry: CollectorRegistry
    ) -> None:
        assert (await keda.stub.GetMetricSpec(ref())).metricSpecs[0].metricName == "desired-replicas"
        assert "prod/llm" in workloads.known  # its first tick can begin
        for call in (keda.value(), keda.is_active()):
            code, text = await refusal(call)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "no tick yet" in text
        await server.stop()  # a refused call is answered a moment before it is counted
        for method, code_name in (("GetMetricSpec", "OK"), ("GetMetrics", "UNAVAILABLE"), ("IsActive", "UNAVAILABLE")):
            counted = registry.get_sample_value("loadtide_rpc_total", {"method": method, "code": code_name})
            assert counted == 1
            assert registry.get_sample_value("loadtide_rpc_duration_seconds_count", {"method": method}) == 1

    async def test_lost_signals_are_named(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/llm", decided(replicas=6, available=False, lost=("running", "waiting", "running")))
        for call in (keda.value(), keda.is_active()):
            code, text = await refusal(call)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert text.endswith("running, waiting")

    async def test_unavailable_without_a_named_signal_still_says_why(
        self, workloads: FakeWorkloads, keda: Keda
    ) -> None:
        await workloads.tick("prod/llm", decided(available=False))
        code, text = await refusal(keda.value())
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "cannot be judged" in text

    async def test_a_dead_loop_is_not_believed(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/llm", decided())
        workloads.loop_dead = True
        for call in (keda.value(), keda.is_active()):
            code, text = await refusal(call)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "no tick since 2026-01-05 12:00:00 UTC" in text

    async def test_the_spec_never_depends_on_what_is_known(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/llm", decided(available=False))
        workloads.loop_dead = True
        assert (await keda.stub.GetMetricSpec(ref())).metricSpecs[0].targetSize == 1


async def test_streams_and_a_waiting_call_hold_nobody_up(
    workloads: FakeWorkloads, keda: Keda, server: GrpcServer
) -> None:
    """G1-06: 200 streams, one workload whose first tick does not come, 49 others asked twice at once."""
    await workloads.tick("prod/llm", decided(active=False))
    for number in range(49):
        await workloads.tick(f"prod/w{number}", decided(replicas=number))
    workloads.first_tick_seconds = 600.0
    await keda.is_active()
    threads = threading.active_count()
    streams = [keda.stream() for _ in range(200)]
    stuck = asyncio.ensure_future(keda.stub.IsActive(ref("stuck")))
    for _ in range(2):
        values = await asyncio.gather(*(keda.value(of=ref(f"w{number}")) for number in range(49)))
        active = await asyncio.gather(*(keda.is_active(of=ref(f"w{number}")) for number in range(49)))
        assert [value.metricValue for value in values] == list(range(49))
        assert all(active)
    assert not stuck.done()
    assert threading.active_count() == threads
    await workloads.tick("prod/llm", decided())
    assert all([await stream.next() for stream in streams])
    stuck.cancel()
