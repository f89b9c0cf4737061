"""Does reading from a Prometheus cost the same number of queries for 1 workload and for 2,000, and how long is a round?

A real Prometheus scrapes one exporter page with the series of 2,000 vLLM replicas, one of each workload: every family
loadtide reads, in the values of a real replica (``tests/signals/bodies``). The observer of the server then reads 1
workload and 2,000 of them. How many queries that took is Prometheus's own count.

All replicas stand on one page, so all have a new sample at once: the worst round. Real ones are scraped at different
times, and what was not scraped since the last round costs next to nothing.

``make bench NAME=prometheus``; the folder's README has the figures seen.
"""

from __future__ import annotations

import asyncio
import re
import resource
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread

import aiohttp

from scaler.policy.layers import PolicyFile
from scaler.serve.observe import Observer
from scaler.serve.workloads import Workloads
from scaler.signals.exposition import normalised
from scaler.signals.observation import EngineSample
from scaler.signals.preset import load_preset
from scaler.signals.prometheus import rounds
from scaler.signals.prometheus.rounds import SERVES_SHARE
from tests.real import prometheus_server

WORKLOADS = 2_000
BODY = Path(__file__).parents[1] / "tests" / "signals" / "bodies" / "vllm-0.32-load.txt"
SCRAPE_SECONDS = 30.0
TICK_SECONDS = 5.0
ROUNDS = 3


def page(workloads: int) -> bytes:
    """The lines of a real replica that vLLM's preset wants, for each workload with its namespace, pod and model."""
    wanted = load_preset("vllm").wanted
    lines = []
    for line in BODY.read_text().splitlines():
        if line.startswith("#"):
            continue
        name = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", line)
        if name is not None and normalised(name[0]) in wanted:
            labels = line[name.end() + 1 : line.index("}")] if line[name.end()] == "{" else ""
            lines.append((name[0], labels, line.rpartition(" ")[2]))

    def replica(number: int) -> Iterator[str]:
        where = f'namespace="team-{number}",pod="vllm-{number}-6d5f7c9b4-x2kqz",instance="10.0.0.1:{number}"'
        for name, labels, value in lines:
            own = labels.replace('model_name="tiny"', f'model_name="org/model-{number}"')
            yield f"{name}{{{where}{',' if own else ''}{own}}} {value}\n"

    return "".join(line for number in range(workloads) for line in replica(number)).encode()


@contextmanager
def exporter(body: bytes) -> Iterator[str]:
    """Serves the page from a thread; gives its host and port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # a scrape that took too long
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def policies(url: str, workloads: int) -> PolicyFile:
    """So many workloads, each bound to its own series by namespace and model."""
    lines = [f"sources: {{main: {{url: {url}, timeout_seconds: 30}}}}", "workloads:"]
    lines += [
        f"  team-{number}/vllm: {{prometheus: {{source: main, scrape_interval_seconds: {SCRAPE_SECONDS:g}, "
        f"match: {{namespace: team-{number}, model_name: org/model-{number}}}}}}}"
        for number in range(workloads)
    ]
    return PolicyFile.parse("policy.yaml", "\n".join(lines))


def queries_so_far(url: str) -> float:
    """How many instant queries Prometheus has answered."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^prometheus_http_requests_total\{code="\d+",handler="/api/v1/query"\} (\S+)', text, re.M)
    return sum(map(float, found))


@dataclass(frozen=True)
class Tick:
    """One tick of everybody: wall seconds, our own CPU seconds, and whether Prometheus had scraped since the last."""

    seconds: float
    cpu_seconds: float
    new: bool


async def tick(observer: Observer, workloads: Workloads, session: aiohttp.ClientSession, new: bool) -> Tick:
    """One tick. Every workload must have been read."""
    began, cpu_began = time.perf_counter(), time.process_time()
    known = [workload for name in workloads.names() if (workload := workloads.get(name)) is not None]
    observations = await asyncio.gather(*(observer(workload, session, time.monotonic) for workload in known))
    taken = Tick(time.perf_counter() - began, time.process_time() - cpu_began, new)
    for workload, observation in zip(known, observations, strict=True):
        reads = list(observation.endpoints.values())
        if len(reads) != 1 or not isinstance(reads[0], EngineSample) or len(reads[0].histograms) < 8:
            raise SystemExit(f"{workload.name} was not read: {observation}")
    return taken


async def measure(server: prometheus_server.Server, count: int) -> tuple[float, list[Tick]]:
    """Queries per tick for so many workloads, and ticks with and without new samples."""
    workloads = Workloads(policies(server.url, count), tick_seconds=TICK_SECONDS)

    async def scraped() -> float:
        stamp = 'timestamp(vllm:num_requests_running{namespace="team-0"})'
        return float((await asyncio.to_thread(server.query, stamp))[0]["value"][1])

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        observer = Observer(workloads)
        rounds.REST_RATIO = 0.0  # ask anew whenever a tick is due, however long the last round took
        before = queries_so_far(server.url)
        ticks = [await tick(observer, workloads, session, new=True)]
        queries = queries_so_far(server.url) - before
        last = await scraped()
        for _ in range(ROUNDS if count > 1 else 0):
            await asyncio.sleep(SERVES_SHARE * TICK_SECONDS)
            at = await scraped()
            ticks.append(await tick(observer, workloads, session, new=at != last))
            while (last := await scraped()) == at:  # noqa: ASYNC110  it is Prometheus that is waited for
                await asyncio.sleep(0.2)
            ticks.append(await tick(observer, workloads, session, new=True))
    return queries, ticks


async def main() -> None:
    """Print what was measured, the last line for machines."""
    body = page(WORKLOADS)
    say(f"{WORKLOADS} workloads, {body.count(10)} series, a page of {len(body) / 1e6:.0f} MB")
    with tempfile.TemporaryDirectory() as folder, exporter(body) as address:
        job = {"job_name": "engines", "honor_labels": True, "static_configs": [{"targets": [address]}]}
        with start(Path(folder), job) as server:
            whole = f"count(vllm:num_requests_running) == {WORKLOADS}"
            await asyncio.to_thread(server.wait_for, whole, 1, 120.0)
            one, _ = await measure(server, 1)
            many, ticks = await measure(server, WORKLOADS)
    say(f"queries a tick: {one:.0f} for 1 workload, {many:.0f} for {WORKLOADS}")
    medians = {}
    for new in (True, False):
        those = [taken for taken in ticks if taken.new is new]
        shown = ", ".join(f"{taken.seconds:.2f} ({taken.cpu_seconds:.2f})" for taken in those)
        say(f"seconds (our CPU) a tick, {'all samples new' if new else 'no sample new'}: {shown}")
        medians[new] = [median(each) for each in zip(*[(t.seconds, t.cpu_seconds) for t in those], strict=True)]
    say(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    say(
        f"result: queries_1={one:.0f} queries_2000={many:.0f} round_seconds={medians[True][0]:.2f} "
        f"round_cpu_seconds={medians[True][1]:.2f} unchanged_round_seconds={medians[False][0]:.2f}"
    )


def say(text: str) -> None:
    """One line for whoever ran it."""
    print(text, flush=True)  # noqa: T201


def start(folder: Path, job: dict[str, object]) -> AbstractContextManager[prometheus_server.Server]:
    """A Prometheus that scrapes ``job`` and nothing else."""
    return prometheus_server.serve(folder, scrape_seconds=SCRAPE_SECONDS, configuration={"scrape_configs": [job]})


if __name__ == "__main__":
    asyncio.run(main())
