"""How much more one real engine serves within the same latency when its batch is not fixed: ``make bench
NAME=convergence`` (40 minutes; it needs the vLLM that the tests install).

1. A fixed arrival rate at a static batch of 8, three quarters of what that serves at its most: P95 and throughput.
2. The limit is 1.2 × that P95. Every policy gets the same rate, then higher and higher ones, each with the same
   arrivals, until P95 is over the limit at two rates in a row: static 8, 16, 32 and 64, ``stepwise`` (from 8, it
   doubles and halves by rate and P95) and ``adaptive`` (our default).
3. Reported is the highest rate that each serves within the limit, interpolated between the last rate within and the
   first over it: beside the first rate, and beside static 8 *at its own highest rate within the limit*.

One replica, the real scaler, the real plugin, everything as shipped but for the range of the batch, the objective and,
for ``stepwise``, its marks, which are rates. Arrivals are even, or come as a Poisson process has them (``--bursts``).
``--rates``, ``--seconds``, ``--policy`` and ``--kind`` make it shorter or another; ``--first`` lets the engine go
before other work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine_rig import (
    BOOT,
    CHAT,
    DOCUMENT,
    TOKEN,
    WORKLOAD,
    Kind,
    Load,
    Measured,
    client,
    following_engine,
    table,
)
from tests.real import vllm_cpu
from tests.running_scaler import RunningScaler, running_scaler

SHARE_OF_MOST, ALLOWED = 0.75, 1.2
RATES = (1.0, 1.15, 1.3, 1.5, 1.7, 1.9, 2.1)
#: Of each rate the first stretch is not counted: the queue of the rate before, and a policy that is still moving (a
#: batch changes once in 60 s).
SETTLE_SECONDS, MOVING_SECONDS = 15.0, 65.0
#: The engine's default objective for TPOT is for an engine at full speed; here only the whole request counts.
NO_TPOT = "tpot_seconds: 10, tpot_critical_seconds: 20"
#: Above this the machine was too busy even for slow motion; the point is measured once more.
DISTURBED_SHARE = 0.1
KV_CACHE_BYTES = 1 << 30
SLOW_MOTION = 8.0


@dataclass(frozen=True)
class Policy:
    """A policy under test, as the lines of a policy file."""

    name: str
    lines: str
    settle_seconds: float = SETTLE_SECONDS


@dataclass
class Point:
    """One policy at one rate."""

    rate: float
    measured: Measured
    batch: float | None

    def within(self, limit: float) -> bool:
        """Whether P95 keeps the limit and what arrives is served."""
        return self.measured.p95 <= limit and self.measured.failed == 0


def static(size: int) -> str:
    """A batch that stays."""
    return f"batch: {{min: {size}, max: {size}, start: {size}}}\n    objectives: {{{NO_TPOT}}}"


def policies(limit: float, rate: float) -> list[Policy]:
    promise = f"objectives: {{e2e_seconds: {limit:.3f}, e2e_critical_seconds: {2 * limit:.3f}, {NO_TPOT}}}"
    marks = f"load: {{high_requests_per_second: {1.1 * rate:.3f}, low_requests_per_second: {0.3 * rate:.3f}}}"
    fixed = [Policy(f"static {size}", static(size)) for size in (8, 16, 32, BOOT)]
    return [
        fixed[0],
        Policy("adaptive", f"batch: {{max: {BOOT}}}\n    {promise}", 25.0),
        *fixed[:0:-1],
        Policy(
            "stepwise", f"strategy: stepwise\n    batch: {{max: {BOOT}}}\n    {promise}\n    {marks}", MOVING_SECONDS
        ),
    ]


@dataclass(frozen=True)
class Bench:
    """One engine under load, and the scaler that is changed under it."""

    folder: Path
    port: int
    load: Load
    kind: Kind
    seconds: float
    bursts: bool

    def scaling(self, policy: Policy) -> AbstractContextManager[RunningScaler]:
        """A scaler with nothing to remember, under ``policy``."""
        path = self.folder / "policy.yaml"
        path.write_text(
            f"workloads:\n  {WORKLOAD}:\n    scrape: {{urls: [{self.load.engine.server.metrics_url!r}]}}\n"
            f"    replicas: {{max: 1}}\n    {policy.lines}\n"
        )
        arguments = ("--policy", str(path), "--store", "memory", "--http", f"127.0.0.1:{self.port}")
        return running_scaler(self.folder, *arguments, environment={"LOADTIDE_TOKEN": TOKEN})

    async def at(self, rate: float, seed: int, scaler: RunningScaler, settle_seconds: float, seconds: float) -> Point:
        """One point: the rate for a while, and then measured; again where the machine was too busy, twice at most."""
        for attempt in (1, 2, 3):
            self.load.chance.seed(seed)
            await self.load.arrive(self.kind, rate, settle_seconds, bursts=self.bursts)
            measured = await self.load.arrive(self.kind, rate, seconds, bursts=self.bursts)
            if measured.late_share <= DISTURBED_SHARE or attempt == 3:
                break
            say(f"    disturbed ({measured.late_share:.0%}): measured again")
        told = await asyncio.to_thread(scaler.get, f"/v1/workloads/{WORKLOAD}")
        applied = [each["batch_size"] for each in told["applied"]]
        return Point(rate, measured, applied[0] if applied else None)


async def run(given: argparse.Namespace) -> None:
    port, kind = vllm_cpu.free_port(), CHAT if given.kind == CHAT.name else DOCUMENT
    with (
        tempfile.TemporaryDirectory() as name,
        following_engine(
            Path(name), port, kv_cache_bytes=KV_CACHE_BYTES, slow_motion=given.slow_motion, first=given.first
        ) as engine,
    ):
        async with client() as session:
            load = Load(engine, session, random.Random(1))
            bench = Bench(Path(name), port, load, kind, given.seconds, given.bursts)
            limit, rate = await standard(bench)
            chosen = [each for each in policies(limit, rate) if not given.policy or each.name in given.policy]
            rates = tuple(map(float, given.rates.split(",")))
            found = {each.name: await climb(bench, each, limit, rate, rates) for each in chosen}
    report(found, limit, rate, given.out)


async def standard(bench: Bench) -> tuple[float, float]:
    """(the limit of P95 in seconds, the first rate): of a static batch of 8."""
    with bench.scaling(Policy("static 8", static(8))) as scaler:
        await asyncio.sleep(3)
        most = await bench.load.keep(bench.kind, 16, 40.0)
        rate = SHARE_OF_MOST * most.rate
        base = await bench.at(rate, 1, scaler, SETTLE_SECONDS, 3 * bench.seconds)
    limit = ALLOWED * base.measured.p95
    say(
        f"static 8 serves {most.rate:.2f} req/s at its most; at {rate:.2f} req/s its P95 is {base.measured.p95:.2f} s, "
        f"throughput {base.measured.rate:.2f} req/s. The limit is {limit:.2f} s."
    )
    return limit, rate


async def climb(bench: Bench, policy: Policy, limit: float, rate: float, rates: Sequence[float]) -> list[Point]:
    """``policy`` at rising multiples of ``rate``, until it is over the limit at two in a row."""
    points: list[Point] = []
    with bench.scaling(policy) as scaler:
        await asyncio.sleep(3)
        for number, factor in enumerate(rates):
            point = await bench.at(rate * factor, 100 + number, scaler, policy.settle_seconds, bench.seconds)
            points.append(point)
            measured = point.measured
            say(
                f"  {policy.name}: {measured.arrived:.2f} req/s → P95 {measured.p95:.2f} s, "
                f"served {measured.rate:.2f} req/s, batch {point.batch}, failed {measured.failed}, "
                f"late {measured.late_share:.0%}"
            )
            if len(points) > 1 and not any(each.within(limit) for each in points[-2:]):
                break
    return points


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def highest(points: Sequence[Point], limit: float) -> float:
    """The highest rate within the limit, by what really arrived: between the last point within and the next higher one,
    which is over it; 0.0 where none is within.
    """
    by_rate = sorted(points, key=lambda point: point.measured.arrived)
    within = [index for index, point in enumerate(by_rate) if point.within(limit)]
    if not within:
        return 0.0
    here = by_rate[within[-1]].measured
    beyond = [each.measured for each in by_rate[within[-1] + 1 :]]
    if not beyond or beyond[0].p95 <= limit:  # nothing higher was tried, or it failed otherwise
        return here.arrived
    share = (limit - here.p95) / (beyond[0].p95 - here.p95)
    return here.arrived + (beyond[0].arrived - here.arrived) * share


def report(found: dict[str, list[Point]], limit: float, rate: float, out: Path | None) -> None:
    most = {name: highest(points, limit) for name, points in found.items()}
    gains = {
        name: (highest_rate / rate - 1, highest_rate / most["static 8"] - 1) for name, highest_rate in most.items()
    }
    rows = [
        [name, f"{most[name]:.2f}", f"{first:+.0%}", f"{own:+.0%}", f"{found[name][-1].batch}"]
        for name, (first, own) in gains.items()
    ]
    head = ("policy", "highest rate within the limit, req/s", "beside the first rate", "beside static 8", "last batch")
    say(table(head, rows))
    if out is not None:
        points = {
            name: [
                {
                    "rate": point.rate,
                    "p95_seconds": point.measured.p95,
                    "served_per_second": point.measured.rate,
                    "batch": point.batch,
                    "failed": point.measured.failed,
                    "late_share": point.measured.late_share,
                }
                for point in each
            ]
            for name, each in found.items()
        }
        out.write_text(json.dumps({"limit_seconds": limit, "first_rate": rate, "points": points, "highest": most}))
    say("result: " + " ".join(f"{name.replace(' ', '_')}_gain={own:.3f}" for name, (_, own) in gains.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kind", choices=(CHAT.name, DOCUMENT.name), default=CHAT.name)
    parser.add_argument("--seconds", type=float, default=25.0, help="measured at each rate")
    parser.add_argument("--rates", default=",".join(map(str, RATES)), help="multiples of the first rate")
    parser.add_argument("--out", type=Path, help="where the points go, as JSON")
    parser.add_argument("--first", action="store_true", help="before all other work of the machine (root)")
    parser.add_argument("--slow-motion", type=float, default=SLOW_MOTION, help="times a quiet core's step")
    parser.add_argument("--bursts", action="store_true", help="arrivals as a Poisson process has them")
    parser.add_argument("--policy", action="append", default=[], help="only this one; static 8 is always among them")
    given = parser.parse_args()
    given.policy += ["static 8"] if given.policy else []
    asyncio.run(run(given))


if __name__ == "__main__":
    main()
