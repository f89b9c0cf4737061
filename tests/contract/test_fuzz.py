"""Whatever arrives on the socket, the answer is a clean status, nobody else notices, and the log stays short.

A real server over the real registry of workloads; messages and bytes are made up by hypothesis. Examples run inside one
event loop with one server: a server for each would make a thousand of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from scaler.policy.layers import PolicyFile
from scaler.policy.metadata import reference
from scaler.serve.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.grpc_server import start_grpc
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.workloads import Workloads
from tests.serve.tide import snapshot

#: What a call may end with; UNKNOWN and INTERNAL would be faults of ours.
CLEAN = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
METHODS = ("GetMetricSpec", "IsActive", "GetMetrics", "StreamIsActive")
#: How long a test looks for trouble, seconds of CPU: on a busy machine it must try as much as on an idle one.
BUDGET_SECONDS = 2.5
#: Lines that may be logged for one call: it became known, its metadata changed, or a refusal.
LINES_PER_CALL = 2

KEYS = st.one_of(st.sampled_from([row.metadata_key for row in reference()]), st.text(max_size=30))
VALUES = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["", " ", "0", "-1", "1e999999", "NaN", "true", "null", "[", "{a: [}", "- x", "&a [*a]", "<<: 3"]),
    st.integers().map(str),
    st.floats().map(str),
    st.lists(st.integers(), max_size=5).map(str),
    st.text("[]{}:,&*-!|>'\"\n #%@\\", max_size=40),
)
NAMES = st.one_of(st.just("llm"), st.text(max_size=20), st.from_regex(r"[a-z0-9.-]{1,300}", fullmatch=True))
REFERENCES = st.builds(
    ScaledObjectRef,
    name=NAMES,
    namespace=NAMES,
    scalerMetadata=st.dictionaries(st.one_of(KEYS, KEYS.map(lambda key: f"{key}FromEnv"[:60])), VALUES, max_size=8),
)
METRIC_NAMES = st.one_of(st.just("desired-replicas"), st.text(max_size=300))
FIXED = settings(
    max_examples=100_000,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


class Scaler:
    """A server with one healthy workload, and a client of it."""

    def __init__(self, port: int, channel: grpc.aio.Channel, workloads: Workloads) -> None:
        self.port = port
        self.channel = channel
        self.workloads = workloads
        self.healthy = ScaledObjectRef(namespace="prod", name="healthy", scalerMetadata={"replicasMax": "4"})

    async def status(self, method: str, body: bytes) -> grpc.StatusCode:
        """What a call with these bytes as its message ends with. A stream that stays open is well."""
        path = f"/externalscaler.ExternalScaler/{method}"
        try:
            if method == "StreamIsActive":
                stream = self.channel.unary_stream(path)(body)
                try:
                    await asyncio.wait_for(stream.code(), 0.02)
                except TimeoutError:
                    stream.cancel()
                    return grpc.StatusCode.OK
                return grpc.StatusCode(await stream.code())
            await self.channel.unary_unary(path)(body, timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    async def answers(self) -> None:
        """The healthy workload is answered as ever."""
        stub: Any = ExternalScalerStub(self.channel)
        answer = await stub.GetMetrics(GetMetricsRequest(scaledObjectRef=self.healthy), timeout=60)
        assert [value.metricValue for value in answer.metricValues] == [2]


def served(examples: Callable[[Scaler, Callable[[Awaitable[Any]], Any]], None]) -> list[Any]:
    """Run hypothesis' synchronous ``examples`` in a thread against a server on this loop; the log lines it wrote."""

    async def run() -> list[Any]:
        workloads = Workloads(PolicyFile.empty(), tick_seconds=5.0)
        workloads.first_snapshot = _at_once  # type: ignore[method-assign]  # no tick ever comes here: do not wait
        server = await start_grpc(workloads, "127.0.0.1:0", RpcStatistics(CollectorRegistry()))
        loop = asyncio.get_running_loop()
        try:
            with capture_logs() as lines:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                    scaler = Scaler(server.port, channel, workloads)
                    healthy = workloads.register("prod/healthy", dict(scaler.healthy.scalerMetadata))
                    workloads.is_current = lambda _: True  # type: ignore[method-assign]
                    workloads.publish(healthy, snapshot("prod/healthy"))

                    def wait(call: Awaitable[Any]) -> Any:
                        return asyncio.run_coroutine_threadsafe(call, loop).result(20)  # type: ignore[arg-type]

                    await asyncio.to_thread(examples, scaler, wait)
                    await scaler.answers()
            return list(lines)
        finally:
            await server.stop(0.1)

    return asyncio.run(run())


async def _at_once(workload: Any) -> Any:
    return workload.snapshot


class _BudgetSpent(Exception):  # noqa: N818
    """Enough examples were tried in the time there is."""


def in_budget(example: Callable[..., None]) -> int:
    """Run a hypothesis test for :data:`BUDGET_SECONDS`; the number of its examples."""
    tried = 0
    ends = time.process_time() + BUDGET_SECONDS

    def bounded(**drawn: Any) -> None:
        nonlocal tried
        if time.process_time() > ends:
            raise _BudgetSpent
        example(**drawn)
        tried += 1

    strategies = dict(example.strategies)  # type: ignore[attr-defined]
    with contextlib.suppress(_BudgetSpent):
        FIXED(given(**strategies)(bounded))()
    return tried


def drawing(**strategies: Any) -> Callable[[Any], Any]:
    """Say what an example is made of."""

    def declare(example: Any) -> Any:
        example.strategies = strategies
        return example

    return declare


def test_made_up_references_and_metadata_are_answered_cleanly() -> None:
    calls = 0

    def examples(scaler: Scaler, wait: Callable[[Awaitable[Any]], Any]) -> None:
        nonlocal calls

        @drawing(reference=REFERENCES, metric=METRIC_NAMES, method=st.sampled_from(METHODS))
        def example(reference: ScaledObjectRef, metric: str, method: str) -> None:
            message: Any = reference
            if method == "GetMetrics":
                message = GetMetricsRequest(scaledObjectRef=reference, metricName=metric)
            assert wait(scaler.status(method, message.SerializeToString())) in CLEAN
            wait(scaler.answers())

        calls = in_budget(example)

    lines = served(examples)
    assert calls > 50
    assert len(lines) <= LINES_PER_CALL * calls + 2
    assert not [line for line in lines if line["log_level"] in ("error", "critical")]


def test_bytes_that_are_no_message_are_refused_and_the_connection_lives(caplog: pytest.LogCaptureFixture) -> None:
    seen: set[grpc.StatusCode] = set()
    whole = ScaledObjectRef(namespace="prod", name="llm", scalerMetadata={"replicasMax": "4"}).SerializeToString()
    bodies = st.one_of(
        st.binary(max_size=200),
        st.integers(0, len(whole)).map(lambda end: whole[:end]),
        st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)).map(
            lambda at: whole[: at[0]] + bytes([at[1]]) + whole[at[0] + 1 :]
        ),
    )
    calls = 0

    def examples(scaler: Scaler, wait: Callable[[Awaitable[Any]], Any]) -> None:
        nonlocal calls

        @drawing(body=bodies, method=st.sampled_from(METHODS))
        def example(body: bytes, method: str) -> None:
            seen.add(wait(scaler.status(method, body)))
            wait(scaler.answers())

        calls = in_budget(example)

    lines = served(examples)
    assert calls > 50
    assert seen <= CLEAN, seen
    assert not caplog.records
    assert len(lines) <= LINES_PER_CALL * calls + 2


def test_bytes_that_are_not_even_http_are_dropped() -> None:
    def examples(scaler: Scaler, wait: Callable[[Awaitable[Any]], Any]) -> None:
        async def send(garbage: bytes) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", scaler.port)
            try:
                writer.write(garbage)
                await asyncio.wait_for(reader.read(1 << 16), 2)
            except (OSError, TimeoutError):
                pass
            finally:
                writer.close()

        for garbage in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"\0" * 5000,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500,
        ):
            wait(send(garbage))
            wait(scaler.answers())

    assert len(served(examples)) <= 2


def test_a_flood_of_names_fills_its_namespace_and_no_other() -> None:
    def examples(scaler: Scaler, wait: Callable[[Awaitable[Any]], Any]) -> None:
        async def flood() -> list[grpc.StatusCode]:
            refs = [ScaledObjectRef(namespace="evil", name=f"n{number}") for number in range(300)]
            return await asyncio.gather(*(scaler.status("IsActive", ref.SerializeToString()) for ref in refs))

        statuses = wait(flood())
        assert statuses.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 100
        assert len(scaler.workloads.names()) == 201
        wait(scaler.answers())

    assert len(served(examples)) <= 202
