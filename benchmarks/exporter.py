"""What a scrape of many workloads costs: ``make bench NAME=exporter``.

2,000 workloads, each told in full, served over a real socket as Prometheus asks for them (gzip). First alone, and
against the library's own encoder on the same families in the same process; then eight scrapes at once while every
snapshot is replaced again and again: what one scrape tells of one workload must come from one snapshot.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import statistics
import sys
import time
from functools import partial

from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.samples import Sample

from scaler.serve.exporter import WorkloadCollector
from scaler.serve.exposition import GaugeText, encoded
from scaler.serve.http import GZIP_LEVEL, make_app, start_http
from tests.serve.tide import FakeWorkloads, snapshot

WORKLOADS, WANTED_SECONDS, ROUNDS = 2000, 1.0, 7
SCRAPERS = 8
#: The library's way is slow: both are compared over so many.
BASELINE_WORKLOADS = 200


def registry_of(workloads: FakeWorkloads) -> CollectorRegistry:
    """A registry that tells these workloads."""
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    return registry


def known(count: int) -> FakeWorkloads:
    """So many workloads, all busy."""
    workloads = FakeWorkloads()
    for number in range(count):
        name = f"team-{number % 50}/model-{number:04}"
        workloads.add(name, snapshot(name, generation=1))
    return workloads


class Families:
    """The same families as objects of the library, made beforehand: what its encoder alone takes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.made = []
        for family in registry.collect():
            if isinstance(family, GaugeText):
                made = GaugeMetricFamily(family.name, family.documentation)
                made.samples = [Sample(each.name, each.labels, each.value) for each in family.samples]
                self.made.append(made)
            else:
                self.made.append(family)

    def collect(self) -> list[object]:
        """What an encoder asks for."""
        return list(self.made)


def cpu_seconds(work: partial[bytes], rounds: int) -> float:
    """The least CPU time of this process for ``work``."""
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


async def scraped(session: ClientSession) -> tuple[float, bytes]:
    """Seconds that one scrape took, and its text."""
    started = time.perf_counter()
    async with session.get("/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
        body = await answer.read()
    return time.perf_counter() - started, body


def torn(text: str) -> int:
    """Workloads of one scrape whose series come from more than one snapshot: each tells its number as two gauges."""
    told: dict[str, dict[str, str]] = {"loadtide_generation": {}, "loadtide_ready_replicas": {}}
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        if name in told:
            labels, _, value = rest.rpartition(" ")
            told[name][labels] = value
    one, other = told.values()
    return sum(value != other.get(labels) for labels, value in one.items()) + abs(len(one) - WORKLOADS)


def tick_all(workloads: FakeWorkloads, number: int) -> None:
    """Replace every snapshot by one that tells this number."""
    for name in workloads.names():
        workload = workloads.get(name)
        assert workload is not None
        workload.snapshot = snapshot(name, generation=number, ready=number)


async def served(workloads: FakeWorkloads) -> tuple[float, float, int]:
    """(median seconds of a lone scrape, of one among eight under ticks, workloads told from two snapshots)."""
    app = make_app(workloads, token=None, registry=registry_of(workloads), stopping=asyncio.Event())
    runner, port = await start_http(app, "127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{port}", auto_decompress=False) as session:
        alone = [(await scraped(session))[0] for _ in range(ROUNDS)]
        scrapes = [asyncio.create_task(scraped(session)) for _ in range(SCRAPERS)]
        number = 1
        while not all(scrape.done() for scrape in scrapes):
            number += 1
            tick_all(workloads, number)
            await asyncio.sleep(0.2)
        together = await asyncio.gather(*scrapes)
    await runner.cleanup()
    mixed = sum(torn(gzip.decompress(body).decode()) for _, body in together)
    return statistics.median(alone), statistics.median(seconds for seconds, _ in together), mixed


def main() -> int:
    """Measure and print; 1 where a figure is not as wanted."""
    small = registry_of(known(BASELINE_WORKLOADS))
    library = cpu_seconds(partial(generate_latest, Families(small)), 3)  # type: ignore[arg-type]
    ours_small = cpu_seconds(partial(encoded, generate_latest, small), 5)
    workloads = known(WORKLOADS)
    gc.freeze()  # as a served scaler does (scaler/serve/collector.py)
    registry = registry_of(workloads)
    text = encoded(generate_latest, registry)
    ours = cpu_seconds(partial(encoded, generate_latest, registry), ROUNDS)
    alone, together, mixed = asyncio.run(served(workloads))
    lines, megabytes = text.count(b"\n"), len(text) / 1e6
    zipped = len(gzip.compress(text, GZIP_LEVEL)) / 1e6
    say(f"{WORKLOADS} workloads: {lines:,} lines, {megabytes:.0f} MB, {zipped:.1f} MB zipped")
    say(f"to collect and encode them: {ours:.2f} s CPU, {1e6 * ours / lines:.2f} µs a line")
    say(f"{BASELINE_WORKLOADS} workloads: {ours_small:.3f} s CPU; the library's encoder alone {library:.3f} s")
    say(f"one scrape over HTTP: {alone:.2f} s alone, {together:.2f} s as one of {SCRAPERS} at once under ticks")
    say(f"result: encode_ratio={library / ours_small:.1f} scrape_2000_seconds={alone:.2f} torn={mixed}")
    return int(alone >= WANTED_SECONDS or mixed > 0)


def say(text: str) -> None:
    """A line for the reader."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
