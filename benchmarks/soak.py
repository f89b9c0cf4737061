"""A quarter of an hour at 20 times KEDA's normal call rate, and nothing may grow. ``make soak``, ``MINUTES=15``.

One scaler process with a file store; around it everything that comes and goes: polls and HPA requests of two operators,
streams opened and broken, ScaledObjects that appear and are forgotten, gateways, scrapes, consumers that wait for a
target, edits of the policy file (some of them bad), engines that answer, refuse and hang. Counted every 5 s from the
outside, and the tasks from the inside: memory, threads, tasks, sockets. Compared: the last third of the time with the
second one; the first is for filling windows and logs, which have an end.
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
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

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

DECLARED, CALLED, CHURNED = 20, 30, 10
#: KEDA's normal: a trio every 30 s by its poll and one every 15 s for the HPA, of each ScaledObject.
TRIOS_PER_SECOND = 20 * (DECLARED + CALLED + CHURNED) * (1 / 30 + 1 / 15)
TOKEN = "tide"
SAMPLE_SECONDS = 5.0
#: What the last third may be above the second, as a share and in units: measuring wobbles.
ALLOWED = {"rss_kib": (0.05, 2048.0), "threads": (0.0, 2.0), "tasks": (0.10, 30.0), "sockets": (0.05, 10.0)}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process held at one moment."""

    rss_kib: float
    threads: float
    tasks: float
    sockets: float


async def child(folder: Path, grpc_port: int, http_port: int) -> None:
    """The scaler, and a line with its number of tasks every second."""
    configure_logs("error")

    async def report() -> None:
        while True:
            print(json.dumps({"tasks": len(asyncio.all_tasks())}), flush=True)  # noqa: T201
            await asyncio.sleep(1.0)

    reporting = asyncio.create_task(report())
    await run_scaler(
        folder / "policy.yaml",
        SqliteStore(folder / "memory.db"),
        listening=Listening(Address("127.0.0.1", grpc_port), Address("127.0.0.1", http_port)),
        tokens=Tokens(TOKEN),
        tick_seconds=1.0,
        forget_after_seconds=20.0,
    )
    reporting.cancel()


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
    """Everything that calls the scaler, until the tasks are cancelled."""

    def __init__(self, folder: Path, urls: list[str], grpc_port: int, http: aiohttp.ClientSession) -> None:
        self.calls = 0
        self.refused = 0
        self._folder, self._urls, self._http, self._grpc_port = folder, urls, http, grpc_port
        self._generation = 0

    def ref(self) -> ScaledObjectRef:
        """A declared one, one known from its calls, or one of those that come and go."""
        kind = random.choices(("declared", "called", "churned"), (DECLARED, CALLED, CHURNED))[0]
        if kind == "declared":
            return ScaledObjectRef(namespace="soak", name=f"declared-{random.randrange(DECLARED)}")
        if kind == "called":
            name = f"called-{random.randrange(CALLED)}"
        else:
            name = f"churned-{self._generation}-{random.randrange(CHURNED)}"
        return ScaledObjectRef(namespace="soak", name=name, scalerMetadata={"pushEnabled": "true", "replicasMax": "4"})

    async def operator(self) -> None:
        """Trios at half of the rate, over one connection that is made anew now and then."""
        while True:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self._grpc_port}") as channel:
                stub = ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
                until = time.monotonic() + 20
                under_way: set[asyncio.Task[None]] = set()
                while time.monotonic() < until:
                    task = asyncio.create_task(self._trio(stub))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    await asyncio.sleep(2 / TRIOS_PER_SECOND)
                await asyncio.gather(*under_way)

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
                self.refused += 1
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise

    async def streams(self) -> None:
        """Thirty streams, left in every way there is: cancelled, and with their whole connection."""
        while True:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._grpc_port}")
            stub = ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
            calls = [stub.StreamIsActive(self.ref()) for _ in range(30)]
            await asyncio.sleep(5)
            for call in calls[::2]:
                call.cancel()
            await channel.close()

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

    def everything(self) -> list[Callable[[], Awaitable[None]]]:
        """What runs side by side."""
        return [
            *(self.operator, self.operator, self.streams, self.streams, self.scrapes, self.gateways),
            *(self.consumers for _ in range(8)),
            self.operators_of_the_scaler,
        ]


async def soak(minutes: float) -> dict[str, float]:
    """The growth of each quantity, last third over second, and the calls made."""
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
        policy(folder, urls, 0)
        grpc_port, http_port = free_port(), free_port()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.soak", "--child", str(folder), str(grpc_port), str(http_port)),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{http_port}") as http:
                load = Load(folder, urls, grpc_port, http)
                await asyncio.sleep(3)
                tasks = [asyncio.ensure_future(each()) for each in load.everything()]
                samples = await _samples(process, minutes * 60)
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                failed = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
                assert not failed, failed
        finally:
            process.terminate()
            status = await process.wait()
            engine.terminate()
            await engine.wait()
            hanging.close()
        assert status == 0, f"the scaler ended with {status}"
        return growth(samples) | {"calls": load.calls, "refused_share": load.refused / max(load.calls, 1)}


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.CancelledError):
        while await reader.read(4096):
            pass
    writer.close()


async def _samples(process: asyncio.subprocess.Process, seconds: float) -> list[Sample]:
    """One every 5 s until the time is over; the scaler's own lines come every second."""
    assert process.stdout is not None
    samples: list[Sample] = []
    began = time.monotonic()
    due = began
    while time.monotonic() < began + seconds:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line, "the scaler has ended"
        if time.monotonic() < due:
            continue
        due += SAMPLE_SECONDS
        samples.append(_sample(process.pid, json.loads(line)["tasks"]))
        if len(samples) % 6 == 0:
            _say(f"{time.monotonic() - began:5.0f} s  {samples[-1]}")
    return samples


def _sample(pid: int, tasks: int) -> Sample:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    descriptors = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            descriptors += os.readlink(each).startswith("socket:")
    return Sample(float(status["VmRSS"].split()[0]), float(status["Threads"]), float(tasks), float(descriptors))


def growth(samples: list[Sample]) -> dict[str, float]:
    """By how much the median of the last third is above that of the second, by quantity."""
    third = len(samples) // 3
    second, last = samples[third : 2 * third], samples[2 * third :]
    found = {}
    for index, quantity in enumerate(ALLOWED):
        before = statistics.median(astuple(sample)[index] for sample in second)
        after = statistics.median(astuple(sample)[index] for sample in last)
        found[quantity] = after - before
        share, units = ALLOWED[quantity]
        if after - before > max(share * before, units):
            found[f"{quantity}_too_much"] = 1.0
    return found


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
    found = asyncio.run(soak(arguments.minutes))
    _say("result: " + " ".join(f"{name}_growth={found[name]:g}" for name in ALLOWED) + f" calls={found['calls']:g}")
    _say(f"{found['refused_share']:.1%} of the calls were refused: engines that hang or refuse, and first ticks")
    if grown := [name for name in found if name.endswith("_too_much")]:
        sys.exit(f"grown: {', '.join(grown)}")


if __name__ == "__main__":
    main()
