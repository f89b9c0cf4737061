"""The servers that ``benchmarks.rpc`` calls: loadtide's own over sources that cost nothing, and one that does nothing.

``python -m benchmarks.rpc_server KIND``; the port comes as one line of JSON, and each line on standard input is a
command, answered by a line of how the process stands (:class:`benchmarks.rpc.Report`): ``hang NAME`` makes that
workload's source never answer again, ``season`` gives every workload four weeks of a season of its own, ``memory`` does
nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import logging
import os
import random
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import structlog
from prometheus_client import CollectorRegistry

from scaler.control.season import SLOTS_KEPT
from scaler.policy.layers import PolicyFile
from scaler.policy.model import SLOT_SECONDS, SLOTS_A_DAY, Seasonal
from scaler.serve import externalscaler_pb2_grpc
from scaler.serve.collector import shorten_pauses
from scaler.serve.externalscaler_pb2 import GetMetricsResponse, IsActiveResponse, MetricValue
from scaler.serve.grpc_server import SERVER_OPTIONS, start_grpc
from scaler.serve.loop import Loop
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.season_backfill import season_of
from scaler.serve.store import SqliteStore
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Buckets, Demand, EngineSample, Observation
from scaler.signals.preset import load_preset
from scaler.signals.reading import read_engine

KINDS = ("loadtide", "empty", "empty-threads", "empty-sync")
PAGE = Path(__file__).parents[1] / "tests" / "signals" / "bodies" / "vllm-0.32-load.txt"
#: By what share of the page everything that is counted grows from one read to the next: a replica under steady load.
GROWTH = 0.02


class Empty(externalscaler_pb2_grpc.ExternalScalerServicer):
    """Answers without looking: what the server itself costs."""

    async def GetMetrics(self, _request: Any, _context: Any) -> GetMetricsResponse:  # noqa: N802
        return _three()

    async def IsActive(self, _request: Any, _context: Any) -> IsActiveResponse:  # noqa: N802
        return IsActiveResponse(result=True)


class EmptyThreads(externalscaler_pb2_grpc.ExternalScalerServicer):
    """The same in threads."""

    def GetMetrics(self, _request: Any, _context: Any) -> GetMetricsResponse:  # noqa: N802
        return _three()

    def IsActive(self, _request: Any, _context: Any) -> IsActiveResponse:  # noqa: N802
        return IsActiveResponse(result=True)


def _three() -> GetMetricsResponse:
    value = MetricValue(metricName="desired-replicas", metricValue=3, metricValueFloat=3.0)
    return GetMetricsResponse(metricValues=[value])


class FreeSources:
    """Stands in for reading an engine: a real vLLM's page, read once, and at each tick its values anew and grown."""

    def __init__(self) -> None:
        self.hanging: set[str] = set()
        page = PAGE.read_text(encoding="utf-8")
        sample = read_engine(page, load_preset("vllm"), 0.0, model_name=None, now_unix=time.time(), seconds=0.002)
        assert isinstance(sample, EngineSample), sample
        self._sample = sample

    async def __call__(
        self, workload: Workload, _session: aiohttp.ClientSession, mono: Callable[[], float]
    ) -> Observation:
        if workload.name in self.hanging:
            await asyncio.Event().wait()
        at, factor = mono(), 1.0 + GROWTH * workload.version
        counters = {
            family: {series: value * factor for series, value in found.items()}
            for family, found in self._sample.counters.items()
        }
        histograms = {
            family: {series: _grown(buckets, factor) for series, buckets in found.items()}
            for family, found in self._sample.histograms.items()
        }
        sample = replace(self._sample, at=at, counters=counters, histograms=histograms)
        return Observation(at, {"http://engine:8000/metrics": sample}, Demand(at, 0.0, False))


def _grown(buckets: Buckets, factor: float) -> Buckets:
    """Fresh values, as a read makes them; whole ones, as a histogram counts."""
    cumulative = array("d", [float(int(count * factor)) for count in buckets.cumulative])
    return Buckets(buckets.bounds, cumulative, buckets.sum * factor, cumulative[-1])


async def serve_empty(threads: bool) -> None:
    """A bare handler on our server's settings; with ``threads`` the handlers run in a pool of them."""
    pool = ThreadPoolExecutor(4) if threads else None
    server = grpc.aio.server(migration_thread_pool=pool, options=SERVER_OPTIONS)
    servicer = EmptyThreads() if threads else Empty()
    externalscaler_pb2_grpc.add_ExternalScalerServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await _obey(port, {})
    await server.stop(0)


def serve_empty_sync() -> None:
    """The same on gRPC's threaded server."""
    server = grpc.server(ThreadPoolExecutor(4), options=SERVER_OPTIONS)
    externalscaler_pb2_grpc.add_ExternalScalerServicer_to_server(EmptyThreads(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    asyncio.run(_obey(port, {}))
    server.stop(0)


async def serve_loadtide(tick_seconds: float) -> None:
    """Registry, loop, file store and service as ``loadtide serve`` has them; only the sources are free."""
    workloads = Workloads(PolicyFile.empty(), tick_seconds=tick_seconds)
    sources, stopping = FreeSources(), asyncio.Event()
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(workloads, SqliteStore(Path(folder) / "memory.db"), observe=sources)
        ticking = asyncio.create_task(loop.run(stopping))
        server = await start_grpc(workloads, "127.0.0.1:0", RpcStatistics(CollectorRegistry()))
        commands: dict[str, Callable[[str], None]] = {
            "hang": sources.hanging.add,
            "season": lambda _: _teach(workloads),
        }
        await _obey(server.port, commands, lambda: min((each.version for each in _all(workloads)), default=0))
        stopping.set()
        await ticking
        await server.stop(0)


def _teach(workloads: Workloads) -> None:
    """Give every workload what four weeks teach of a season: nights half as busy as days, no two slots quite the same.
    Each has its own.
    """
    now = workloads.utc().timestamp() // SLOT_SECONDS
    slots = (now - SLOTS_KEPT + 1 + index for index in range(SLOTS_KEPT))
    rates = {slot * SLOT_SECONDS: random.uniform(1.0, 2.0) / (1 + (slot % SLOTS_A_DAY < 32)) for slot in slots}
    season = season_of(rates, Seasonal())
    assert season.period == "daily", season
    for workload in _all(workloads):
        own = replace(season, levels="".join(list(season.levels)))
        workload.memory = replace(workload.memory, season=own)


def _all(workloads: Workloads) -> Iterator[Workload]:
    return filter(None, map(workloads.get, workloads.names()))


class Heartbeat:
    """Finds the longest stretch for which the event loop was held: how late a short sleep ended, and what of that was
    CPU time of the loop's own thread.
    """

    BEAT_SECONDS = 0.005

    def __init__(self) -> None:
        self._longest = (0.0, 0.0)

    async def beat(self) -> None:
        """For ever."""
        while True:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(self.BEAT_SECONDS)
            late = time.perf_counter() - began - self.BEAT_SECONDS
            self._longest = max(self._longest, (late, time.thread_time() - used))

    def take(self) -> dict[str, float]:
        """The longest stretch since this was asked last, milliseconds."""
        (late, used), self._longest = self._longest, (0.0, 0.0)
        return {"held_ms": late * 1000, "held_cpu_ms": used * 1000}


async def _obey(port: int, commands: dict[str, Callable[[str], None]], ticks: Callable[[], int] = lambda: 0) -> None:
    """Announce the port, then do as standard input says until it ends. ``ticks`` is how many the last one has had."""
    heartbeat = Heartbeat()
    beating = asyncio.create_task(heartbeat.beat())
    print(json.dumps({"port": port}), flush=True)  # noqa: T201
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, _, argument = line.strip().partition(" ")
        if command in commands:
            commands[command](argument)
        held = heartbeat.take()
        gc.collect()
        await asyncio.sleep(2 * Heartbeat.BEAT_SECONDS)
        heartbeat.take()  # that was ours
        print(json.dumps({"kib": resident_kib(), "ticks": ticks(), **held}), flush=True)  # noqa: T201
    beating.cancel()


def resident_kib() -> int:
    """This process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--tick-seconds", type=float, default=5.0)
    parser.add_argument("--uvloop", action="store_true")
    arguments = parser.parse_args()
    shorten_pauses()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    if arguments.uvloop:
        run = importlib.import_module("uvloop").run
    if arguments.kind == "empty-sync":
        serve_empty_sync()
    elif arguments.kind == "loadtide":
        run(serve_loadtide(arguments.tick_seconds))
    else:
        run(serve_empty(threads=arguments.kind == "empty-threads"))


if __name__ == "__main__":
    main()
