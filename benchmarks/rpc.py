"""KEDA's calls: throughput against an empty handler, latency under a full house, memory. ``make bench NAME=rpc``.

Client and servers are processes of their own. Every figure is the median of several rounds; the two servers of the
throughput ratio take turns, so that what disturbs the machine disturbs both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from benchmarks.bare_client import BareClient, Request, as_fast_as_it_goes, at_a_rate, connect, request
from scaler.serve.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub

SERVICE = "/externalscaler.ExternalScaler"
METADATA = {
    "scalerAddress": "loadtide.loadtide.svc:6000",
    "enableTLS": "false",
    "engine": "vllm",
    "replicasMin": "1",
    "replicasMax": "8",
    "batchMax": "64",
    "pushEnabled": "true",
    "objectivesTtftSeconds": "1",
    "objectivesTpotSeconds": "0.05",
}
CONCURRENCY = 32
WORKLOADS_PER_NAMESPACE = 100
#: How often it is looked at whether every workload has had its ticks; and so many with a learned season.
SETTLE_SECONDS, SEASON_TICKS = 5.0, 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. The defaults are the load for which a throughput and a P99 are promised."""

    workloads: int = 2_000
    streams: int = 500
    calls_per_second: float = 1_000.0
    throughput_rounds: int = 9
    throughput_seconds: float = 2.0
    latency_rounds: int = 6
    latency_seconds: float = 5.0
    window_ticks: int = 13


QUICK = Sizes(throughput_rounds=3, throughput_seconds=1.0, latency_rounds=2, latency_seconds=2.0, window_ticks=2)


@dataclass(frozen=True, slots=True)
class Report:
    """What the server says of itself: resident KiB, how many ticks every workload has had, and the longest stretch for
    which its event loop was held since the report before, in milliseconds: of time, and of its own CPU (what is more,
    the machine gave to others).
    """

    kib: int
    ticks: int
    held_ms: float
    held_cpu_ms: float


class Server:
    """One server process and the commands it takes."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self._process = process

    async def tell(self, command: str) -> Report:
        """Send a command; how the server stands afterwards."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        return Report(**json.loads(await self._process.stdout.readline()))

    def cpu_seconds(self) -> float:
        """CPU time the process has used."""
        with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100.0


@asynccontextmanager
async def server(kind: str, *options: str) -> AsyncIterator[Server]:
    """A server process of ``benchmarks.rpc_server``, ended with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.rpc_server", kind, *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Server(process, json.loads(await process.stdout.readline())["port"])
    finally:
        process.stdin.close()
        await process.wait()


def name_of(number: int) -> tuple[str, str]:
    """(namespace, name) of a workload."""
    return f"team-{number // WORKLOADS_PER_NAMESPACE}", f"model-{number}"


def ref(number: int) -> ScaledObjectRef:
    """A reference as KEDA sends it: Go writes a map in any order, another one in each call."""
    namespace, name = name_of(number)
    keys = random.sample(sorted(METADATA), len(METADATA))
    return ScaledObjectRef(name=name, namespace=namespace, scalerMetadata={key: METADATA[key] for key in keys})


def pair(number: int) -> list[Request]:
    """GetMetrics and IsActive of one workload."""
    metrics = GetMetricsRequest(scaledObjectRef=ref(number), metricName="desired-replicas")
    return [
        request(f"{SERVICE}/GetMetrics", metrics.SerializeToString()),
        request(f"{SERVICE}/IsActive", ref(number).SerializeToString()),
    ]


def pairs(count: int) -> list[Request]:
    """The calls of ``count`` workloads, several of each, so that no order of the keys is always the same."""
    numbers = [number for number in range(count) for _ in range(max(1, 1_000 // count))]
    random.shuffle(numbers)
    return [each for number in numbers for each in pair(number)]


async def answered_rightly(port: int, count: int) -> None:
    """First calls, by a real client: every workload known and ticked, every answer as it must be."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
        for first in range(0, count, 50):
            batch = range(first, min(first + 50, count))
            await asyncio.gather(*(stub.IsActive(ref(number)) for number in batch))
            for answer in await asyncio.gather(
                *(stub.GetMetrics(GetMetricsRequest(scaledObjectRef=ref(number))) for number in batch)
            ):
                assert answer.metricValues[0].metricValueFloat >= 1.0


async def throughput(sizes: Sizes, kinds: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], tuple[float, float]]:
    """(calls per second, server CPU microseconds per call) of each kind of server, in turns; medians."""
    calls = pairs(100)
    rates: dict[tuple[str, ...], list[float]] = {kind: [] for kind in kinds}
    costs: dict[tuple[str, ...], list[float]] = {kind: [] for kind in kinds}
    for _ in range(sizes.throughput_rounds):
        for kind in kinds:
            async with server(*kind) as running:
                await answered_rightly(running.port, 100)
                client = await connect(running.port)
                await as_fast_as_it_goes(client, calls, CONCURRENCY, 0.5)
                before = running.cpu_seconds()
                rate = await as_fast_as_it_goes(client, calls, CONCURRENCY, sizes.throughput_seconds)
                used = running.cpu_seconds() - before
                assert client.failed == 0, f"{client.failed} calls of {kind} failed"
                client.close()
            rates[kind].append(rate)
            costs[kind].append(used / (rate * sizes.throughput_seconds) * 1e6)
    return {kind: (statistics.median(rates[kind]), statistics.median(costs[kind])) for kind in kinds}


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Medians over rounds, milliseconds; and the share of a core that the server and the client took meanwhile."""

    p50: float
    p99: float
    server_cores: float
    client_cores: float


@dataclass(frozen=True, slots=True)
class House:
    """A full house: calls by themselves, beside a source that hangs, and the same calls to a server that does nothing
    else, which is what the client and the machine add to the others. ``held`` is of the first.
    """

    calm: Percentiles
    hanging: Percentiles
    empty: Percentiles
    held: Report
    kib_per_workload: float
    kib_of_season: float
    kib_per_stream: float


async def filled(running: Server, sizes: Sizes) -> tuple[BareClient, float, Report]:
    """Every workload known, called through a window, then taught a season: the client, KiB that a season takes up,
    and how the server stands.
    """
    await answered_rightly(running.port, sizes.workloads)
    client = await connect(running.port)
    unlearned = await _ticked(running, client, sizes, sizes.window_ticks)
    await running.tell("season")
    full = await _ticked(running, client, sizes, unlearned.ticks + SEASON_TICKS)
    return client, (full.kib - unlearned.kib) / sizes.workloads, full


async def _ticked(running: Server, client: BareClient, sizes: Sizes, ticks: int) -> Report:
    """How the server stands when every workload has had so many ticks, however long that takes."""
    while (stands := await running.tell("memory")).ticks < ticks:
        await at_a_rate(client, pairs(sizes.workloads), sizes.calls_per_second, SETTLE_SECONDS)
    return stands


async def memory(sizes: Sizes) -> None:
    """What a workload takes up, alone."""
    async with server("loadtide") as running:
        empty = await running.tell("memory")
        client, season, full = await filled(running, sizes)
        client.close()
    kib = (full.kib - empty.kib) / sizes.workloads
    _say(f"{sizes.workloads} workloads; of each {season:.1f} KiB are its season")
    _say(f"result: kb_per_workload={kib:.1f}")


async def full_house(sizes: Sizes) -> House:
    """Every workload ticking, streams open, calls on schedule; then one source stops answering."""
    async with server("loadtide") as running:
        empty = await running.tell("memory")
        client, season, full = await filled(running, sizes)
        for number in range(sizes.streams):
            client.open_stream(request(f"{SERVICE}/StreamIsActive", ref(number % sizes.workloads).SerializeToString()))
            if number % 50 == 49:
                await asyncio.sleep(0.1)  # the server widens the connection's window as it reads
        healthy = pairs(sizes.workloads)
        await at_a_rate(client, healthy, sizes.calls_per_second, 5.0)
        streaming = await running.tell("memory")
        calm = await _percentiles(running, client, healthy, sizes)
        held = await running.tell(f"hang {'/'.join(name_of(sizes.workloads - 1))}")
        hanging = await _percentiles(running, client, [*pairs(sizes.workloads - 1)], sizes)
        assert client.open_streams == sizes.streams, f"{sizes.streams - client.open_streams} streams ended"
        assert client.messages >= sizes.streams, "streams were not told that their workload is active"
        client.close()
    async with server("empty") as running:
        client = await connect(running.port)
        idle = await _percentiles(running, client, healthy, sizes)
        client.close()
    kib = (full.kib - empty.kib) / sizes.workloads, season, (streaming.kib - full.kib) / sizes.streams
    return House(calm, hanging, idle, held, *kib)


async def _percentiles(running: Server, client: BareClient, calls: Sequence[Request], sizes: Sizes) -> Percentiles:
    middles, tails, servers, clients = [], [], [], []
    for _ in range(sizes.latency_rounds):
        client.failed = 0
        used, own, began = running.cpu_seconds(), time.process_time(), time.perf_counter()
        measured = await at_a_rate(client, calls, sizes.calls_per_second, sizes.latency_seconds)
        took = time.perf_counter() - began
        servers.append((running.cpu_seconds() - used) / took)
        clients.append((time.process_time() - own) / took)
        if client.failed:  # the machine gave the server too little CPU to tick: the figures are not the server's
            _say(f"{client.failed} of {len(measured)} calls were refused; measure again when nothing else runs")
        cuts = statistics.quantiles([seconds for _, seconds in measured], n=100)
        middles.append(cuts[49] * 1000)
        tails.append(cuts[98] * 1000)
    return Percentiles(*map(statistics.median, (middles, tails, servers, clients)))


async def compare_kinds(sizes: Sizes) -> None:
    """What an empty handler does on each kind of server: why ours is what it is."""
    kinds: list[tuple[str, ...]] = [("empty",), ("empty-threads",), ("empty-sync",)]
    try:
        import uvloop  # type: ignore[import-not-found]  # noqa: F401

        kinds.append(("empty", "--uvloop"))
    except ImportError:
        _say("uvloop is not installed here; compared without it")
    for kind, (rate, cost) in (await throughput(sizes, kinds)).items():
        _say(f"{' '.join(kind):<18} {rate:>8.0f} calls/s {cost:>6.0f} us of CPU a call")


async def run(sizes: Sizes) -> None:
    """Everything, ending with the result line."""
    found = await throughput(sizes, [("empty",), ("loadtide",)])
    (empty_rate, empty_cost), (rate, cost) = found[("empty",)], found[("loadtide",)]
    _say(f"empty handler      {empty_rate:>8.0f} calls/s {empty_cost:>6.0f} us of CPU a call")
    _say(f"loadtide           {rate:>8.0f} calls/s {cost:>6.0f} us of CPU a call")
    house = await full_house(sizes)
    _say(f"{sizes.workloads} workloads, {sizes.streams} streams, {sizes.calls_per_second:.0f} calls/s:")
    for what, found in (
        ("by itself", house.calm),
        ("beside one source that hangs", house.hanging),
        ("an empty server instead", house.empty),
    ):
        _say(
            f"  {what:<30} p50 {found.p50:5.1f} ms, p99 {found.p99:6.1f} ms; "
            f"server {found.server_cores:.2f} of a core, client {found.client_cores:.2f}"
        )
    _say(
        f"  the event loop was held for {house.held.held_ms:.0f} ms at most, or {house.held.held_cpu_ms:.0f} ms of its "
        f"own CPU; {house.kib_per_workload:.1f} KiB a workload ({house.kib_of_season:.1f} of it its season), "
        f"{house.kib_per_stream:.0f} a stream"
    )
    _say(
        f"result: throughput_ratio={rate / empty_rate:.2f} cpu_ratio={empty_cost / cost:.2f} "
        f"p99_ms_at_1000_rps={house.calm.p99:.1f} p99_ms_beside_hanging={house.hanging.p99:.1f} "
        f"p99_ms_empty={house.empty.p99:.1f} server_cores={house.calm.server_cores:.2f} "
        f"kb_per_workload={house.kib_per_workload:.1f}"
    )


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it runs, not to quote")
    parser.add_argument("--memory", action="store_true", help="only what a workload takes up")
    parser.add_argument("--kinds", action="store_true", help="compare kinds of servers with an empty handler instead")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    asyncio.run(compare_kinds(sizes) if arguments.kinds else memory(sizes) if arguments.memory else run(sizes))


if __name__ == "__main__":
    main()
