"""The fast loop over real pages: between two ticks, at once, at a bounded cost, and without a trace elsewhere."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from scaler.control.model import Admission
from scaler.policy.layers import PolicyFile
from scaler.serve import guarding
from scaler.serve.guarding import LOOK_SECONDS, Guarding
from scaler.serve.loop import Loop
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import MemoryStore
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.model import Known, Signals

#: A tick so long that whatever changes meanwhile was not the tick's doing.
TICK = 60.0
PERIOD = 0.2


class Engine:
    """A page of vLLM's names, as a test sets it; it answers 500 while ``broken``."""

    def __init__(self) -> None:
        self.kv, self.running, self.preempted, self.broken, self.reads = 0.5, 40, 0, False, 0
        self.url = ""

    async def page(self, _request: web.Request) -> web.Response:
        self.reads += 1
        if self.broken:
            return web.Response(status=500)
        return web.Response(
            text=f'vllm:num_requests_running{{engine="0"}} {self.running}\n'
            f'vllm:num_requests_waiting{{engine="0"}} 0\n'
            f'vllm:kv_cache_usage_perc{{engine="0"}} {self.kv}\n'
            f'vllm:num_preemptions_total{{engine="0"}} {self.preempted}\n'
            f'vllm:request_success_total{{engine="0"}} 7\n'
        )


@asynccontextmanager
async def engines(number: int, context: ssl.SSLContext | None = None) -> AsyncIterator[list[Engine]]:
    served, runners = [Engine() for _ in range(number)], []
    for engine in served:
        app = web.Application()
        app.add_routes([web.get("/metrics", engine.page)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        engine.url = f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}/metrics"
        runners.append(runner)
    try:
        yield served
    finally:
        for runner in runners:
            await runner.cleanup()


@asynccontextmanager
async def scaler(
    served: list[Engine], more: str = "", *, scrape: str = ""
) -> AsyncIterator[tuple[Workloads, Workload]]:
    """A loop over the engines whose first tick is done, and whose second comes in a minute."""
    urls = ", ".join(f'"{engine.url}"' for engine in served)
    text = (
        f"workloads:\n  chat/m:\n    scrape: {{urls: [{urls}]{scrape}}}\n    batch: {{max: 64}}\n"
        f"    replicas: {{max: 9}}\n    memory: {{guard_seconds: {PERIOD}}}\n{more}"
    )
    workloads = Workloads(PolicyFile.parse("policy.yaml", text), tick_seconds=TICK)
    stopping = asyncio.Event()
    task = asyncio.create_task(Loop(workloads, MemoryStore()).run(stopping))
    workload = workloads.get("chat/m")
    assert workload is not None
    await until(lambda: workload.snapshot)
    try:
        yield workloads, workload
    finally:
        stopping.set()
        await task


def told(workload: Workload) -> Snapshot:
    assert workload.snapshot is not None
    return workload.snapshot


async def read_again(served: list[Engine], times: int = 2) -> None:
    """Until each engine has been read so often again."""
    wanted = [engine.reads + times for engine in served]
    await until(lambda: all(engine.reads >= reads for engine, reads in zip(served, wanted, strict=True)))
    await asyncio.sleep(0.05)


async def until(what: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + TICK / 2
    while not what():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that"
        await asyncio.sleep(0.02)


async def test_a_memory_emergency_between_two_ticks_is_published_at_once() -> None:
    async with engines(2) as served, scaler(served) as (workloads, workload):
        first = told(workload)
        assert (first.decision.targets.batch, first.generation) == (64, 1)
        await read_again(served)
        assert told(workload) is first  # nothing to say
        history, observed = workload.history, workload.observed
        served[1].kv, served[1].running = 0.98, 30
        await workloads.wait_change(workload, workload.version, TICK / 2)
        shrunk = told(workload)
        assert (shrunk.decision.targets.batch, shrunk.decision.targets.admission) == (34, Admission.HOLD)
        assert shrunk.decision.targets.replicas == first.decision.targets.replicas
        assert (shrunk.generation, shrunk.valid_until > first.valid_until) == (2, True)
        assert isinstance(shrunk.signals.kv_use_ratio, Known)
        assert shrunk.signals.kv_use_ratio.value == 0.98
        assert ("batch", 64, 34) in workload.adjustments[-1].changes
        assert workload.decisions_total["batch", "down", "memory_pressure"] == 1
        # It goes on reading, and waits for the effect; the slow loop's window has seen none of it.
        await read_again(served)
        assert told(workload) is shrunk
        assert workload.history is history
        assert workload.observed is observed
        assert workload.guarded_mono is not None


async def test_https_pages_are_verified_between_two_ticks_as_they_are_at_a_tick(tmp_path: Path) -> None:
    """Otherwise the engines that are read by https would have no guard, and nobody would hear of it."""
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("vllm.chat.svc").configure_cert(context)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = f", tls_ca_file: '{tmp_path / 'ca.pem'}', tls_server_name: vllm.chat.svc"
    async with engines(1, context) as served, scaler(served, scrape=tls) as (_, workload):
        assert told(workload).decision.targets.batch == 64
        served[0].kv = 0.98
        await until(lambda: told(workload).decision.targets.batch == 34)


async def test_reads_that_fail_take_nothing_away_and_add_nothing() -> None:
    async with engines(2) as served, scaler(served) as (_, workload):
        first = told(workload)
        served[0].broken = True
        await read_again(served)
        assert told(workload) is first
        served[1].kv = 0.98
        await until(lambda: told(workload).decision.targets.batch == 34)
        assert [health.ok for health in told(workload).health] == [True, True]  # that is for the tick to tell


async def test_a_preemption_acts_and_one_of_before_the_first_look_does_not() -> None:
    async with engines(1) as served:
        served[0].preempted = 500
        async with scaler(served) as (_, workload):
            await read_again(served)
            assert told(workload).decision.targets.batch == 64
            served[0].preempted += 1
            await until(lambda: told(workload).decision.targets.batch == 36)


@pytest.mark.parametrize(
    "policy",
    [
        "    mode: advisory\n",
        "    mode: paused\n",
        "    prometheus: {queries: {}}\n",
    ],
)
async def test_who_rules_is_respected(policy: str) -> None:
    async with engines(1) as served, scaler(served, policy) as (_, workload):
        served[0].kv = 0.98
        if workload.resolved.policy.mode == "active":
            await until(lambda: told(workload).decision.targets.batch == 34)
            return
        await asyncio.sleep(LOOK_SECONDS + 3 * PERIOD)
        assert served[0].reads == 1
        assert told(workload).decision.targets.batch != 34


def guard_of(workloads: Workloads) -> Guarding:
    async def nothing(workload: Workload, signals: Signals) -> None:
        pass

    return Guarding(workloads, nothing)


@pytest.mark.parametrize(
    ("change", "guards"),
    [
        (lambda policy: policy, True),
        (
            lambda policy: policy.model_copy(
                update={"memory": policy.memory.model_copy(update={"guard_seconds": None})}
            ),
            False,
        ),
        (
            lambda policy: policy.model_copy(update={"memory": policy.memory.model_copy(update={"guard_seconds": 60})}),
            False,
        ),
        (
            lambda policy: policy.model_copy(update={"memory": policy.memory.model_copy(update={"guard_replicas": 1})}),
            False,
        ),
    ],
)
async def test_what_is_guarded_is_fast_and_small(change: Callable[..., object], guards: bool) -> None:
    async with engines(2) as served, scaler(served) as (workloads, workload):
        policy = change(workload.resolved.policy)
        assert workload.observed is not None
        workload.resolved = type(workload.resolved)(policy, ())  # type: ignore[arg-type]
        workload.observed = (policy, workload.observed[1])  # type: ignore[assignment]
        assert bool(guard_of(workloads).endpoints(workload)) == guards


async def test_the_cost_is_bounded_and_whoever_waits_longest_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty workloads of one page each, and five pages a second."""
    monkeypatch.setattr(guarding, "PAGES_PER_SECOND", 5.0)
    async with engines(1) as served:
        many = "".join(
            f"  chat/m{number}:\n    scrape: {{urls: ['{served[0].url}']}}\n    memory: {{guard_seconds: {PERIOD}}}\n"
            for number in range(30)
        )
        async with scaler(served, many) as (workloads, _):
            await until(lambda: workloads.ready)
            before, began = served[0].reads, time.monotonic()
            await asyncio.sleep(2.0)
            assert served[0].reads - before <= 7 + 5 * (time.monotonic() - began)
            guarded = [workload for name in workloads.names() if (workload := workloads.get(name)) is not None]
            # Not the same few again and again.
            await until(lambda: sum(each.guarded_mono is not None for each in guarded) >= 5)
            assert served[0].reads - before >= 5


async def test_no_read_outlives_the_loop() -> None:
    async with engines(1) as served:
        async with scaler(served):
            await read_again(served, 1)
        before = served[0].reads
        await asyncio.sleep(3 * PERIOD)
        assert served[0].reads == before
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("guard ")]
