"""G1-04: what an external-push trigger is told, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest
from prometheus_client import CollectorRegistry

from scaler.control.model import Mode
from scaler.serve.grpc_server import GrpcServer
from tests.contract.conftest import PATIENCE, FakeWorkloads, Keda, decided, ref, refusal
from tests.patience import seconds_at_work


async def test_the_timeline_of_the_field_case(workloads: FakeWorkloads, keda: Keda) -> None:
    """Activity by second: F F T T T T T F F T; a second stream opens at 4."""

    async def at(active: bool) -> None:
        await workloads.tick("prod/llm", decided(active=active, ready=1 if active else 0))

    await at(False)
    first = keda.stream()
    assert await first.silent()
    await at(False)
    assert await first.silent()
    await at(True)
    assert await first.next() is True
    await at(True)
    assert await keda.is_active() is True
    await at(True)
    second = keda.stream()
    assert await second.next() is True
    await at(True)
    await at(True)
    await at(False)
    await at(False)
    assert await first.silent()
    assert await second.silent()
    await at(True)
    assert await first.next() is True
    assert await second.next() is True
    await at(True)
    assert await first.silent()


async def test_a_stream_opened_while_active_is_told_at_once(workloads: FakeWorkloads, keda: Keda) -> None:
    await workloads.tick("prod/llm", decided(ready=3))
    stream = keda.stream()
    assert await stream.next() is True
    assert await stream.silent()


async def test_a_stream_opened_before_the_first_tick_is_told_by_it(workloads: FakeWorkloads, keda: Keda) -> None:
    stream = keda.stream()
    assert await stream.silent()
    await workloads.tick("prod/llm", decided())
    assert await stream.next() is True


class TestRepeating:
    @pytest.fixture
    def repeat_seconds(self) -> float:
        return 0.1

    @pytest.mark.parametrize("ready", [0, None])
    async def test_true_is_repeated_until_a_replica_is_ready(
        self, workloads: FakeWorkloads, keda: Keda, ready: int | None
    ) -> None:
        await workloads.tick("prod/llm", decided(ready=ready))
        stream = keda.stream()
        assert [await stream.next() for _ in range(3)] == [True, True, True]
        await workloads.tick("prod/llm", decided(ready=1))
        await stream.silent()
        stream.drain()  # one may have been on its way
        assert await stream.silent(0.4)

    async def test_ticks_do_not_hasten_it(self, workloads: FakeWorkloads, keda: Keda) -> None:
        loop = asyncio.get_running_loop()
        await workloads.tick("prod/llm", decided(ready=0))
        stream = keda.stream()
        await stream.next()
        opened = loop.time()
        while loop.time() < opened + 0.35:
            await workloads.tick("prod/llm", decided(ready=0))
            await asyncio.sleep(0.005)
        await stream.silent()
        assert 1 <= stream.drain() <= (loop.time() - opened) / 0.1 + 1

    async def test_inactive_is_not_repeated(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/llm", decided(active=False, ready=0))
        assert await keda.stream().silent(0.3)

    async def test_a_dead_loop_repeats_nothing(self, workloads: FakeWorkloads, keda: Keda) -> None:
        workloads.loop_dead = True
        await workloads.tick("prod/llm", decided(ready=0))
        assert await keda.stream().silent(0.3)


class TestDoubt:
    async def test_lost_signals_are_told_as_nothing(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/llm", decided(available=False, ready=0))
        assert await keda.stream().silent()

    async def test_advice_wakes_nobody(self, workloads: FakeWorkloads, keda: Keda) -> None:
        """What is there stays: a pushed true could only undo that somebody has just taken it to zero."""
        await workloads.tick("prod/llm", replace(decided(ready=0), mode=Mode.ADVISORY))
        stream = keda.stream()
        assert await stream.silent()
        await workloads.tick("prod/llm", decided(ready=0))
        assert await stream.next() is True

    async def test_activity_that_outlives_a_doubt_is_no_new_edge(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/llm", decided())
        stream = keda.stream()
        assert await stream.next() is True
        for available in (False, False, True):
            await workloads.tick("prod/llm", decided(available=available))
        assert await stream.silent()


class TestEnding:
    async def test_shutdown_ends_every_stream_with_ok(
        self, workloads: FakeWorkloads, server: GrpcServer, keda: Keda, registry: CollectorRegistry
    ) -> None:
        await workloads.tick("prod/llm", decided())
        streams = [keda.stream(), keda.stream(ref("idle"))]
        await streams[0].next()
        async with seconds_at_work() as passed:
            await server.stop()
            for stream in streams:
                assert await stream.call.code() is grpc.StatusCode.OK
            assert passed() < 1.0
        assert registry.get_sample_value("loadtide_rpc_total", {"method": "StreamIsActive", "code": "OK"}) == 2

    async def test_bad_metadata_is_refused_by_key_and_value(self, keda: Keda) -> None:
        stream = keda.stub.StreamIsActive(ref(floor="five"))
        code, text = await refusal(stream.read())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "floor" in text
        assert "five" in text

    async def test_a_client_that_leaves_leaves_nothing_running(
        self, workloads: FakeWorkloads, keda: Keda, registry: CollectorRegistry
    ) -> None:
        await workloads.tick("prod/llm", decided())
        before = len(asyncio.all_tasks())
        streams = [keda.stream() for _ in range(20)]
        for stream in streams:
            await stream.next()
        for stream in streams:
            await stream.close()
        ended = {"method": "StreamIsActive", "code": "CANCELLED"}
        async with asyncio.timeout(PATIENCE):
            # Polled: what is waited for is that nothing is left that could tell.
            while registry.get_sample_value("loadtide_rpc_total", ended) != 20 or len(asyncio.all_tasks()) > before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
