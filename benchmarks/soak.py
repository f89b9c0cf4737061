"""A quarter of an hour at 20 times KEDA's normal call rate, and nothing may grow. ``make soak``, ``MINUTES=15``.

One scaler process with a file store; around it everything that comes and goes: polls and HPA requests of two operators,
streams opened and broken, ScaledObjects that appear and are forgotten, gateways, scrapes, consumers that wait for a
target, edits of the policy file (some of them bad), engines that answer, refuse and hang.

Each third of the time ends with a rest: every caller has gone, nothing is declared, what is not called is forgotten.
What is still held then, threads, tasks and sockets, must not be more than at the rest before. (Under load the same
counts say how many happen to be open: streams that live for 5 s, looked at every 5 s, made 2 or 3 sockets of growth
out of none.) Memory is compared under load, the median of the last third with that of the second: what was once
freed need not go back to the system. The first third is for filling windows and logs, which have an end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import grpc
import structlog

from benchmarks.wake import free_port
from scaler.process.logs import configure_logs
from scaler.process.options import Address
from scaler.serve.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.server import Listening, Tokens, run_scaler
from scaler.serve.store import SqliteStore

T = TypeVar("T")

DECLARED, CALLED, CHURNED = 20, 30, 10
#: Those that come and go are so many sets by turns, each away for long enough to be forgotten. (Under ever new names
#: what they learned would pile up: it is kept for a week, of up to 10,000.)
CHURNED_SETS = 4
#: KEDA's normal: a trio every 30 s by its poll and one every 15 s for the HPA, of each ScaledObject.
TRIOS_PER_SECOND = 20 * (DECLARED + CALLED + CHURNED) * (1 / 30 + 1 / 15)
TOKEN = "tide"
#: What is not called is forgotten after so long, and an unused connection to an engine is kept for 15 s: a rest lasts
#: until then, and for some looks at what is left.
FORGET_SECONDS, REST_SECONDS, LOOKS_AT_REST = 20.0, 60.0, 15
#: How far memory may rise, as a share: what has an end (logs, caches) is not all full by then. Nothing else may.
ALLOWED_SHARE = 0.05
#: What the names of the threads begin with that asyncio keeps for blocking work: they come as they are needed, up to a
#: number that is fixed, and stay.
POOL_THREAD = "asyncio_"
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)


@dataclass(frozen=True, slots=True)
class Held:
    """What the process holds now. ``blocks`` are those of memory that Python has in use, ``threads`` are without
    asyncio's ``pool``, ``sockets`` by whose they are.
    """

    rss_kib: int
    blocks: int
    threads: int
    pool: int
    tasks: int
    sockets: Counter[str]

    def __str__(self) -> str:
        whose = ", ".join(f"{count} {name}" for name, count in sorted(self.sockets.items()))
        return (
            f"{self.rss_kib} KiB, {self.blocks} blocks, {self.threads} threads and {self.pool} of the pool, "
            f"{self.tasks} tasks, {self.sockets.total()} sockets ({whose})"
        )


@dataclass(frozen=True, slots=True)
class Third:
    """A third of the time: memory while it was called, and the least that was held when it was not."""

    rss_kib: float
    at_rest: Held


async def child(folder: Path, grpc_port: int, http_port: int) -> None:
    """The scaler, and a line with its tasks and threads every second."""
    configure_logs("error")

    async def report() -> None:
        while True:
            held = {
                "tasks": len(asyncio.all_tasks()),
                "threads": [thread.name for thread in threading.enumerate()],
                "blocks": sys.getallocatedblocks(),
            }
            print(json.dumps(held), flush=True)  # noqa: T201
            await asyncio.sleep(1.0)

    reporting = asyncio.create_task(report())
    await run_scaler(
        folder / "policy.yaml",
        SqliteStore(folder / "memory.db"),
        listening=Listening(Address("127.0.0.1", grpc_port), Address("127.0.0.1", http_port)),
        tokens=Tokens(TOKEN),
        tick_seconds=1.0,
        forget_after_seconds=FORGET_SECONDS,
    )
    reporting.cancel()


def declare_nothing(folder: Path) -> None:
    """The file of a rest."""
    (folder / "policy.yaml").write_text("workloads: {}\n")


def policy(folder: Path, urls: list[str], number: int) -> None:
    """The file's ``number``-th version; every fifth is one that must be refused."""
    lines = ["workloads:"]
    for each in range(DECLARED):
        most = -1 if each == 0 and number % 5 == 4 else 4 + number % 3
        lines += [
            f"  soak/declared-{each}:",
            f"    scrape: {{urls: [{json.dumps(urls[each % len(urls)])}], timeout_seconds: 2}}",
            f"    push: {{enabled: true}}\n    replicas: {{max: {most}}}",
        ]
    (folder / "policy.new").write_text("\n".join(lines) + "\n")
    os.replace(folder / "policy.new", folder / "policy.yaml")


class Load:
    """Everything that calls the scaler."""

    def __init__(self, folder: Path, urls: list[str], grpc_port: int, http_port: int) -> None:
        self.calls = 0
        self.refused = 0
        self._folder, self._urls, self._grpc_port, self._http_port = folder, urls, grpc_port, http_port
        self._generation = 0
        self._over = False

    async def until(self, over: Awaitable[T]) -> T:
        """Call until ``over``, and leave no connection behind. A caller that fails ends it all."""
        policy(self._folder, self._urls, self._generation)
        self._over = False
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self._http_port}") as self._http:
            tasks = [asyncio.ensure_future(each()) for each in self._everything()]
            try:
                return await over
            finally:
                self._over = True
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                failed = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
                assert not failed, failed

    def ref(self) -> ScaledObjectRef:
        """A declared one, one known from its calls, or one of those that come and go."""
        kind = random.choices(("declared", "called", "churned"), (DECLARED, CALLED, CHURNED))[0]
        if kind == "declared":
            return ScaledObjectRef(namespace="soak", name=f"declared-{random.randrange(DECLARED)}")
        if kind == "called":
            name = f"called-{random.randrange(CALLED)}"
        else:
            name = f"churned-{self._generation % CHURNED_SETS}-{random.randrange(CHURNED)}"
        return ScaledObjectRef(namespace="soak", name=name, scalerMetadata={"pushEnabled": "true", "replicasMax": "4"})

    async def operator(self) -> None:
        """Trios at half of the rate, over one connection that is made anew now and then."""
        while True:
            async with (
                grpc.aio.insecure_channel(f"127.0.0.1:{self._grpc_port}") as channel,
                asyncio.TaskGroup() as trios,
            ):
                stub = ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
                until = time.monotonic() + 20
                while time.monotonic() < until:
                    trios.create_task(self._trio(stub))
                    await asyncio.sleep(2 / TRIOS_PER_SECOND)

    async def _trio(self, stub: ExternalScalerStub) -> None:
        ref = self.ref()
        for call in (
            lambda: stub.GetMetricSpec(ref),
            lambda: stub.GetMetrics(GetMetricsRequest(scaledObjectRef=ref, metricName="desired-replicas")),
            lambda: stub.IsActive(ref),
        ):
            self.calls += 1
            try:
                await call()
            except grpc.aio.AioRpcError as error:
                if self._over and error.code() is grpc.StatusCode.CANCELLED:
                    return  # by ourselves: not always does it come as a CancelledError
                self.refused += 1
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise

    async def streams(self) -> None:
        """Thirty streams, left in every way there is: cancelled, and with their whole connection."""
        while True:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self._grpc_port}") as channel:
                stub = ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
                calls = [stub.StreamIsActive(self.ref()) for _ in range(30)]
                await asyncio.sleep(5)
                for call in calls[::2]:
                    call.cancel()

    async def scrapes(self) -> None:
        while True:
            await self._get("/metrics")
            await self._get("/v1/workloads")
            await asyncio.sleep(1)

    async def consumers(self) -> None:
        while True:
            name = f"declared-{random.randrange(DECLARED)}"
            await self._get(f"/v1/workloads/soak/{name}/target?wait=3", {"If-None-Match": '"none"'})
            await self._get(f"/v1/workloads/soak/{name}/decisions")
            await asyncio.sleep(0.2)

    async def gateways(self) -> None:
        while True:
            ref, token = self.ref(), {"Authorization": f"Bearer {TOKEN}"}
            report = {"pending": random.randrange(3), "source": f"gateway-{random.randrange(4)}"}
            with suppress(aiohttp.ClientError):
                path = f"/v1/workloads/soak/{ref.name}"
                async with self._http.post(f"{path}/demand", json=report, headers=token) as answer:
                    await answer.read()
                if random.random() < 0.1:
                    async with self._http.post(f"{path}/wake", headers=token) as answer:
                        await answer.read()
            await asyncio.sleep(0.2)

    async def operators_of_the_scaler(self) -> None:
        """Edits of the file, and a new set of ScaledObjects in the place of the last."""
        while True:
            await asyncio.sleep(10)
            self._generation += 1
            policy(self._folder, self._urls, self._generation)

    async def _get(self, path: str, headers: dict[str, str] | None = None) -> None:
        with suppress(aiohttp.ClientError):
            async with self._http.get(path, headers=headers) as answer:
                await answer.read()

    def _everything(self) -> list[Callable[[], Awaitable[None]]]:
        """What runs side by side."""
        return [
            *(self.operator, self.operator, self.streams, self.streams, self.scrapes, self.gateways),
            *(self.consumers for _ in range(8)),
            self.operators_of_the_scaler,
        ]


async def soak(minutes: float) -> tuple[list[Third], Load]:
    """The thirds of ``minutes``, and what called meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scaler.lab.standin", "--wave", "--speed", "10"), stdout=asyncio.subprocess.PIPE
        )
        assert engine.stdout is not None
        good = json.loads(await engine.stdout.readline())["metrics"]
        hanging = await asyncio.start_server(_hang, "127.0.0.1", 0)
        dead = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/metrics"
        urls = [good, good, "http://127.0.0.1:1/metrics", dead]
        declare_nothing(folder)
        grpc_port, http_port = free_port(), free_port()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.soak", "--child", str(folder), str(grpc_port), str(http_port)),
            stdout=asyncio.subprocess.PIPE,
        )
        load, scaler = Load(folder, urls, grpc_port, http_port), Scaler(process, {grpc_port: "gRPC", http_port: "HTTP"})
        try:
            await asyncio.sleep(3)
            thirds = []
            for _ in range(3):
                called = await load.until(scaler.watched(minutes * 20 - REST_SECONDS))
                declare_nothing(folder)
                left = (await scaler.watched(REST_SECONDS))[-LOOKS_AT_REST:]
                thirds.append(Third(statistics.median(held.rss_kib for held in called), least(left)))
                _say(f"at rest: {thirds[-1].at_rest}")
        finally:
            process.terminate()
            status = await process.wait()
            engine.terminate()
            await engine.wait()
            hanging.close()
        assert status == 0, f"the scaler ended with {status}"
        return thirds, load


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.CancelledError):
        while await reader.read(4096):
            pass
    writer.close()


class Scaler:
    """The process that is called, looked at from the outside; ``ports`` names its own."""

    def __init__(self, process: asyncio.subprocess.Process, ports: dict[int, str]) -> None:
        self._process, self._ports = process, ports

    async def watched(self, seconds: float) -> list[Held]:
        """What it holds, every second for so long: with each line that it writes."""
        assert self._process.stdout is not None
        looks: list[Held] = []
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            line = await asyncio.wait_for(self._process.stdout.readline(), 60)
            assert line, "the scaler has ended"
            looks.append(self._held(json.loads(line)))
            if len(looks) % 30 == 0:
                _say(f"{time.monotonic() - began:5.0f} s  {looks[-1]}")
        return looks

    def _held(self, told: dict[str, Any]) -> Held:
        process = Path(f"/proc/{self._process.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        pool = sum(name.startswith(POOL_THREAD) for name in told["threads"])
        assert pool <= POOL_THREADS, f"{pool} threads in a pool of {POOL_THREADS}"
        return Held(
            int(status["VmRSS"].split()[0]),
            told["blocks"],
            int(status["Threads"]) - pool,
            pool,
            told["tasks"],
            self._sockets(process),
        )

    def _sockets(self, process: Path) -> Counter[str]:
        """How many there are of each kind: on its own ports, opened to read engines, and inside the process."""
        own_port = {}
        for table in ("tcp", "tcp6"):
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                own_port[fields[9]] = int(fields[1].split(":")[1], 16)
        whose: Counter[str] = Counter()
        for each in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                kind, _, inode = os.readlink(each).partition(":")
                if kind == "socket":
                    port = own_port.get(inode.strip("[]"))
                    whose["inside" if port is None else self._ports.get(port, "to engines")] += 1
        return whose


def least(looks: list[Held]) -> Held:
    """The least of each that was held: of what is opened and closed while nobody calls, none."""
    sockets = looks[0].sockets
    for look in looks[1:]:
        sockets = sockets & look.sockets
    return Held(
        min(look.rss_kib for look in looks),
        min(look.blocks for look in looks),
        min(look.threads for look in looks),
        min(look.pool for look in looks),
        min(look.tasks for look in looks),
        sockets,
    )


def growth(before: Third, after: Third) -> dict[str, float]:
    """By how much each is more ``after`` than ``before``."""
    first, last = before.at_rest, after.at_rest
    return {
        "rss_kib": after.rss_kib - before.rss_kib,
        "blocks": last.blocks - first.blocks,
        "threads": last.threads - first.threads,
        "tasks": last.tasks - first.tasks,
        "sockets": last.sockets.total() - first.sockets.total(),
    }


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--child", nargs=3, metavar=("FOLDER", "GRPC", "HTTP"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        folder, grpc_port, http_port = arguments.child
        asyncio.run(child(Path(folder), int(grpc_port), int(http_port)))
        return
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if arguments.minutes * 20 < 2 * REST_SECONDS:
        parser.error(
            f"--minutes: {arguments.minutes:g} leaves no time beside three rests of {REST_SECONDS:g} s; 6 does"
        )
    (_, before, after), load = asyncio.run(soak(arguments.minutes))
    found = growth(before, after)
    allowed = {"rss_kib": ALLOWED_SHARE * before.rss_kib, "blocks": ALLOWED_SHARE * before.at_rest.blocks}
    _say(f"{load.refused / max(load.calls, 1):.1%} of the calls were refused: engines that hang or refuse, first ticks")
    _say(f"memory under load: {before.rss_kib:.0f} KiB, then {after.rss_kib:.0f}")
    _say("result: " + " ".join(f"{name}_growth={more:g}" for name, more in found.items()) + f" calls={load.calls}")
    if grown := [name for name, more in found.items() if more > allowed.get(name, 0.0)]:
        sys.exit(f"grown: {', '.join(grown)}")


if __name__ == "__main__":
    main()
