"""One caller's limits: workloads in a namespace and in all, streams, waiting reads, and metadata that costs."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from unittest import mock

import aiohttp
import grpc
import pytest
from prometheus_client import CollectorRegistry

from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile
from scaler.serve.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.grpc_server import start_grpc
from scaler.serve.http import make_app, start_http
from scaler.serve.limits import LimitReached, Limits, Seats
from scaler.serve.resolver import EngineResolver
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.workloads import Workloads
from scaler.signals.discovery import ResolveFailure
from scaler.signals.dns import Resolver
from tests.serve.tide import FakeWorkloads, snapshot

ENGINE = {"scrapeUrls": "http://llama.chat.svc:8000/metrics"}


def workloads(text: str = "", limits: Limits | None = None) -> Workloads:
    return Workloads(PolicyFile.parse("policy.yaml", text), tick_seconds=5.0, limits=limits or Limits())


class TestWorkloadsOfANamespace:
    TWO = "tenancy: {workloads_per_namespace: 2}\n"

    def test_are_capped_without_harm_to_others(self) -> None:
        known = workloads(self.TWO)
        known.register("chat/a", ENGINE)
        known.register("chat/b", {})
        with pytest.raises(LimitReached, match="namespace chat has 2 workloads already"):
            known.register("chat/c", {})
        known.register("chat/a", ENGINE)
        known.register("chatter/c", {})
        assert known.names() == ["chat/a", "chat/b", "chatter/c"]

    def test_those_of_the_policy_file_do_not_count_and_always_have_room(self) -> None:
        known = workloads(self.TWO + "workloads: {chat/x: {}, chat/y: {}, chat/z: {}}\n")
        known.register("chat/a", {})
        known.register("chat/b", {})
        known.register("chat/x", {"replicasMax": "3"})
        with pytest.raises(LimitReached):
            known.register("chat/c", {})

    def test_all_namespaces_together_are_capped_too(self) -> None:
        known = workloads(limits=Limits(workloads=3))
        for number in range(3):
            known.register(f"n{number}/a", {})
        with pytest.raises(LimitReached, match="3 workloads are known already"):
            known.register("n3/a", {})

    def test_one_that_is_forgotten_makes_room(self) -> None:
        seconds = 0.0
        known = Workloads(PolicyFile.parse("p", self.TWO), tick_seconds=5.0, mono=lambda: seconds)
        known.register("chat/a", {})
        known.register("chat/b", {})
        seconds = 10.0
        known.register("chat/b", {})
        known.forget_unasked(5.0)
        known.register("chat/c", {})


class TestMetadataAgainstANewPolicyFile:
    """An author's metadata must not keep the operator from changing the policy file."""

    def test_what_no_longer_goes_is_put_aside_and_the_file_is_taken(self) -> None:
        known = workloads("workloads: {chat/declared: {replicas: {max: 9}}}\n")
        known.register("chat/declared", {"replicasMin": "5"})
        known.register("chat/called", ENGINE)
        known.register("chat/other", {})
        file = "tenancy: {metadata_urls: deny}\nworkloads: {chat/declared: {replicas: {max: 3}}}\n"
        known.replace_policies(PolicyFile.parse("p", file))
        assert known.names() == ["chat/declared", "chat/other"]
        declared = known.get("chat/declared")
        assert declared is not None
        assert declared.resolved.policy.replicas.max == 3
        with pytest.raises(PolicyError, match=r"metadata_urls: deny"):
            known.register("chat/called", ENGINE)
        with pytest.raises(PolicyError, match=r"below min"):
            known.register("chat/declared", {"replicasMin": "5"})

    def test_a_file_that_is_wrong_in_itself_changes_nothing(self) -> None:
        known = workloads()
        known.register("chat/a", ENGINE)
        with pytest.raises(PolicyError, match="no-such-engine"):
            known.replace_policies(PolicyFile.parse("p", "workloads: {chat/b: {engine: no-such-engine}}\n"))
        assert known.names() == ["chat/a"]


class TestRefusedMetadata:
    def test_costs_its_reading_once(self) -> None:
        known = workloads()
        bad = {"jumpRows": "[" + "1," * 7000 + "1]"}

        def refuse() -> float:
            began = time.perf_counter()
            for call in (known.validate, known.register):
                with pytest.raises(PolicyError, match="jumpRows"):
                    call("chat/a", bad)
            return time.perf_counter() - began

        first = refuse()
        assert sum(refuse() for _ in range(10)) < 5 * first

    def test_is_read_again_when_it_or_the_policy_file_changes(self) -> None:
        known = workloads()
        with pytest.raises(PolicyError):
            known.register("chat/a", {"policy": "big"})
        known.replace_policies(PolicyFile.parse("p", "policies: {big: {replicas: {max: 8}}}\n"))
        assert known.register("chat/a", {"policy": "big"}).resolved.policy.replicas.max == 8

    def test_yaml_in_metadata_is_limited_and_its_mistakes_are_few(self) -> None:
        with pytest.raises(PolicyError, match="more than 16384 characters") as caught:
            workloads().register("chat/a", {"jumpRows": "[" + "1," * 9000 + "]", "warmWindows": ""})
        with pytest.raises(PolicyError) as caught:
            workloads().register("chat/a", {"jumpRows": "[" + "1," * 7000 + "1]"})
        assert len(str(caught.value)) < 10_000


class TestOverGrpc:
    @pytest.fixture
    async def stub(self) -> AsyncIterator[ExternalScalerStub]:
        known = workloads("tenancy: {workloads_per_namespace: 1}\n")
        known.register("chat/a", {})
        limits = Limits(streams_per_workload=2)
        running = await start_grpc(known, "127.0.0.1:0", RpcStatistics(CollectorRegistry()), limits=limits)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel:
            yield ExternalScalerStub(channel)
        await running.stop(0.1)

    async def test_one_workload_too_many_is_said_in_words_and_has_its_hpa(self, stub: Any) -> None:
        ref = ScaledObjectRef(namespace="chat", name="b")
        assert (await stub.GetMetricSpec(ref)).metricSpecs  # an error here would freeze other triggers as well
        for call in (stub.IsActive(ref), stub.GetMetrics(GetMetricsRequest(scaledObjectRef=ref))):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "namespace chat has 1 workloads already" in str(caught.value.details())

    async def test_an_address_elsewhere_is_refused_by_every_call(self, stub: Any) -> None:
        ref = ScaledObjectRef(namespace="chat", name="a", scalerMetadata={"scrapeUrls": "http://169.254.169.254/"})
        for call in (stub.GetMetricSpec, stub.IsActive):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(ref)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "169.254.169.254" in str(caught.value.details())

    async def test_streams_of_one_scaled_object(self, stub: Any) -> None:
        ref = ScaledObjectRef(namespace="chat", name="a")
        streams = [stub.StreamIsActive(ref) for _ in range(2)]
        await asyncio.sleep(0.2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub.StreamIsActive(ref):
                pass
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for stream in streams:
            stream.cancel()
        await asyncio.sleep(0.2)
        again = stub.StreamIsActive(ref)
        await asyncio.sleep(0.2)
        assert not again.done()
        again.cancel()


async def test_waiting_reads_are_limited_and_plain_ones_are_not() -> None:
    known = FakeWorkloads()
    known.add("team-a/chat", snapshot())
    stopping = asyncio.Event()
    app = make_app(
        known,
        token=None,
        registry=CollectorRegistry(),
        stopping=stopping,
        limits=Limits(waiting_reads_per_workload=2, waiting_reads=2),
    )
    runner, port = await start_http(app, "127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        session = await stack.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{port}"))
        target = "/v1/workloads/team-a/chat/target"
        async with session.get(target) as answer:
            tag = answer.headers["ETag"]

        async def read(wait: int) -> tuple[int, str]:
            async with session.get(f"{target}?wait={wait}", headers={"If-None-Match": tag}) as answer:
                return answer.status, await answer.text()

        waiting = [asyncio.create_task(read(30)) for _ in range(2)]
        await asyncio.sleep(0.2)
        status, text = await read(30)
        assert status == 503
        assert "2 waiting requests are open for team-a/chat already" in text
        assert (await read(0))[0] == 304
        stopping.set()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [304, 304]


class TestSeats:
    def test_are_given_back_whatever_happens(self) -> None:
        seats = Seats("calls", per_name=1, in_all=2)
        for _ in range(5):
            with pytest.raises(ZeroDivisionError), seats.take("a"):
                raise ZeroDivisionError
        with seats.take("a"), seats.take("b"):
            with pytest.raises(LimitReached, match="1 calls are open for a already"), seats.take("a"):
                pass
            with pytest.raises(LimitReached, match="2 calls are open in all"), seats.take("c"):
                pass
        with seats.take("c"):
            pass


class TestResolver:
    async def resolve(self, *hosts: str) -> list[str]:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 80)) for host in hosts]
        with mock.patch.object(asyncio.get_running_loop(), "getaddrinfo", mock.AsyncMock(return_value=found)):
            return [each["host"] for each in await EngineResolver().resolve("x.chat.svc", 80)]

    async def test_a_name_that_leads_to_the_clouds_credentials_leads_nowhere(self) -> None:
        with pytest.raises(OSError, match="link-local"):
            await self.resolve("169.254.169.254")

    async def test_other_addresses_stay(self) -> None:
        assert await self.resolve("10.0.0.7", "169.254.169.254") == ["10.0.0.7"]


async def test_so_does_a_name_of_which_every_address_is_read() -> None:
    answer = await Resolver(lambda _: {"169.254.169.254", "fe80::1%eth0"}).resolve_dns("x.chat.svc", 80, timeout=5)
    assert isinstance(answer, ResolveFailure)
    assert "link-local" in answer.reason
