"""KEDA's whole pattern against the real registry and loop: polls, the HPA's requests, streams, restarts, edits."""

from __future__ import annotations

import asyncio
import statistics
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import aiohttp
import grpc
import pytest
from prometheus_client import CollectorRegistry

from scaler.policy.layers import PolicyFile
from scaler.serve.grpc_server import GrpcServer, start_grpc
from scaler.serve.loop import Loop
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.store import MemoryStore
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Demand, EngineSample, Observation
from tests.contract.keda_client import Operator, Told, scaled_object
from tests.patience import seconds_at_work
from tests.ports import free_port

TICK = 0.2
PUSHED = {"pushEnabled": "true", "replicasMax": "9", "idleTimeoutSeconds": "60"}


@dataclass
class Engines:
    """The only source there is: what runs where, written by the test. ``reads`` counts by workload."""

    running: dict[str, float] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    reads: Counter[str] = field(default_factory=Counter)

    async def __call__(
        self, workload: Workload, session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> Observation:
        self.reads[workload.name] += 1
        if workload.name in self.hanging:
            await asyncio.Event().wait()
        at = mono()
        gauges = {"running": self.running.get(workload.name, 0.0), "waiting": 0.0}
        sample = EngineSample(at, 1.7e9, gauges, {"finished": {"": 100.0}})
        return Observation(at, {"engine": sample}, Demand(at, 0.0, False))


@dataclass
class Scaler:
    """Everything ``loadtide serve`` has behind its gRPC port."""

    engines: Engines
    workloads: Workloads
    server: GrpcServer
    stopping: asyncio.Event
    ticking: asyncio.Task[None]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def stop(self) -> None:
        self.stopping.set()
        await asyncio.gather(self.ticking, self.server.stop())


async def start(engines: Engines, port: int = 0) -> Scaler:
    workloads, stopping = Workloads(PolicyFile.empty(), tick_seconds=TICK), asyncio.Event()
    loop = Loop(workloads, MemoryStore(), observe=engines)
    ticking = asyncio.create_task(loop.run(stopping))
    server = await start_grpc(workloads, f"127.0.0.1:{port}", RpcStatistics(CollectorRegistry()))
    return Scaler(engines, workloads, server, stopping, ticking)


@pytest.fixture
async def scaler() -> AsyncIterator[Scaler]:
    running = await start(Engines(), free_port())  # it may begin anew there
    yield running
    await running.stop()


@pytest.fixture
async def operator(scaler: Scaler) -> AsyncIterator[Operator]:
    calling = Operator(scaler.address, second=0.01)
    yield calling
    await calling.close()


async def test_two_operators_and_the_hpa_get_one_answer_and_cost_the_source_nothing(scaler: Scaler) -> None:
    """G1-07: 900 calls of both operators in overlapping trios, over several ticks; the source is read once a tick, as
    without.
    """
    ref = scaled_object("llm", metadata=PUSHED)
    scaler.engines.running["prod/llm"] = 3.0
    operators = [Operator(scaler.address), Operator(scaler.address)]
    first = await operators[0].check(ref)
    assert first == Told(1000, 1000, True)
    version, reads = scaler.workloads.get("prod/llm"), scaler.engines.reads["prod/llm"]
    assert version is not None
    before, loop = version.version, asyncio.get_running_loop()
    began = loop.time()

    async def ask(operator: Operator, hpa: bool) -> set[Told]:
        """25 trios; a quick machine, which has done with them within a tick, goes on."""
        told, asked = set(), 0
        while asked < 25 or version.version < before + 3:
            told.add(await (operator.hpa_asks(ref) if hpa else operator.check(ref)))
            asked += 1
        return told

    told = await asyncio.gather(*(ask(operator, hpa) for operator in operators for hpa in (False, True) * 3))
    assert set().union(*told) == {first}
    ticks = version.version - before
    assert scaler.engines.reads["prod/llm"] - reads <= ticks + 1
    assert ticks <= (loop.time() - began) / TICK + 2
    for operator in operators:
        await operator.close()


async def test_one_source_that_hangs_holds_nobody_up(scaler: Scaler, operator: Operator) -> None:
    """G1-06: 50 ScaledObjects on one connection, one of them without an answer, its calls refused and not waiting."""
    names = [f"w{number}" for number in range(49)]
    for name in names:
        scaler.engines.running[f"prod/{name}"] = 1.0
    scaler.engines.hanging.add("prod/stuck")
    streams = [operator.push(scaled_object(name, metadata=PUSHED)) for name in names for _ in range(4)]
    threads = threading.active_count()
    took: list[float] = []

    async def healthy(name: str) -> None:
        for _ in range(5):
            began = passed()
            assert (await operator.check(scaled_object(name, metadata=PUSHED))).active
            took.append(passed() - began)

    async def stuck() -> set[tuple[grpc.StatusCode, bool]]:
        refused = set()
        for _ in range(2):
            began = passed()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await operator.check(scaled_object("stuck", metadata=PUSHED))
            refused.add((caught.value.code(), passed() - began < 10.0))
        return refused

    async with seconds_at_work() as passed:
        *_, refused = await asyncio.gather(*(healthy(name) for name in names), stuck())
    assert refused == {(grpc.StatusCode.UNAVAILABLE, True)}
    assert statistics.median(took) < 1.0  # what a call to the stuck one waits; benchmarks/rpc measures the rest
    assert threading.active_count() <= threads + 1
    for stream in streams:
        await stream.stop()


async def test_a_refusal_is_asked_again_at_once_and_its_spec_still_answers(scaler: Scaler, operator: Operator) -> None:
    """KEDA builds the scaler anew and asks a second time: two refusals a poll, none of which waits."""
    scaler.engines.hanging.add("prod/stuck")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await operator.check(scaled_object("stuck", metadata=PUSHED))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (await operator.stub.GetMetricSpec(scaled_object("stuck", metadata=PUSHED))).metricSpecs


class TestStreams:
    async def test_a_restart_costs_a_stream_two_seconds(self, scaler: Scaler, operator: Operator) -> None:
        """Ended with OK, it comes back after 2 s, and is told at once what it may have missed."""
        scaler.engines.running["prod/llm"] = 1.0
        stream = operator.push(scaled_object("llm", metadata=PUSHED))
        await stream.until(lambda it: it.told == [True])
        await scaler.stop()
        await stream.until(lambda it: len(it.ends) > 0)
        assert stream.ends[0] is grpc.StatusCode.OK
        assert stream.waits[:1] in ([], [2.0])
        again = await start(scaler.engines, scaler.server.port)
        await stream.until(lambda it: it.told == [True, True])
        assert stream.waits[0] == 2.0
        await stream.stop()
        await again.stop()

    async def test_one_that_cannot_be_reached_is_tried_after_2_4_8_up_to_60_seconds(self) -> None:
        nobody = Operator("127.0.0.1:1", second=0.001)
        stream = nobody.push(scaled_object("llm"))
        await stream.until(lambda it: len(it.waits) >= 7)
        assert stream.waits[:7] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        await stream.stop()
        await nobody.close()

    async def test_it_is_asking_and_a_workload_asked_for_is_not_forgotten(
        self, scaler: Scaler, operator: Operator
    ) -> None:
        stream = operator.push(scaled_object("streamed", metadata=PUSHED))
        await operator.check(scaled_object("polled", metadata=PUSHED))
        await asyncio.sleep(4 * TICK)
        for workload in map(scaler.workloads.get, ("prod/streamed", "prod/polled")):
            assert workload is not None
        gone: list[str] = []
        async with asyncio.timeout(60):
            while not gone:  # time in which nobody was let ask does not count
                gone = [workload.name for workload in scaler.workloads.forget_unasked(2 * TICK)]
                await asyncio.sleep(TICK)
        assert gone == ["prod/polled"]
        await stream.stop()


class TestEditing:
    async def test_an_edit_during_overlapping_requests_is_no_conflict(self, scaler: Scaler, operator: Operator) -> None:
        """The poll goes over to the new metadata while the HPA's request still carries the old."""
        old, new = (scaled_object("llm", metadata=PUSHED | {"replicasMin": least}) for least in ("2", "3"))
        assert (await operator.check(old)).thousandths == 2000
        await asyncio.gather(operator.check(new), operator.hpa_asks(old))
        await asyncio.sleep(2 * TICK)
        assert (await operator.check(new)).thousandths == 3000
        assert (await operator.hpa_asks(new)).thousandths == 3000

    async def test_two_triggers_are_a_conflict_for_as_long_as_they_disagree(
        self, scaler: Scaler, operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scaler.serve.workloads.CONFLICT_SECONDS", 8.0)
        first, second = (scaled_object("llm", metadata=PUSHED | {"replicasMin": least}) for least in ("2", "3"))
        await operator.check(first)
        for trigger in (second, first):
            await operator.check(trigger)
            await asyncio.sleep(1.5 * TICK)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await operator.check(second)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "two triggers" in (caught.value.details() or "")
        await asyncio.sleep(8.1)  # the second trigger is deleted
        await operator.check(first)
        await asyncio.sleep(2 * TICK)
        assert (await operator.check(first)).thousandths == 2000
