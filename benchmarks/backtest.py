"""What does a backtest of a week cost: one workload of ten replicas, scraped every 15 s, in a real Prometheus?

The lab plays ten vLLM replicas under a day's tide, a Prometheus' storage is made of what it would have scraped off them
(``promtool``; that takes longer than all the rest, and only the first time: ``--folder`` keeps it), and ``loadtide
backtest`` is run on it as a process of its own.

``make bench NAME=backtest`` does one day; ``python -m benchmarks.backtest --days 7`` the week. The folder's README has
the figures seen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from scaler.control.model import Now
from scaler.lab.enact import Direct
from scaler.lab.fleet import Fleet
from scaler.lab.hardware import HARDWARE
from scaler.lab.simulate import BEGIN_UTC, Wish, World, simulate
from scaler.lab.traces import day, poisson
from scaler.lab.wave import Lengths
from scaler.signals.model import Signals
from tests.real import prometheus_server
from tests.real.recorded_past import BLOCK_SECONDS, Past

REPLICAS = 10
DAY_SECONDS = 86_400.0
MOST_KIB = 500_000


@dataclass(frozen=True)
class Fixed:
    """Always the same number."""

    name: str = "fixed"
    metric_target: float = 1.0

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        return Wish(float(REPLICAS))


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def record(folder: Path, days: float) -> None:
    """The storage, if it is not there yet. A block at a time is written and read in, to keep the files small."""
    seconds = days * DAY_SECONDS
    done = folder / "recorded.json"
    if done.exists() and json.loads(done.read_text()) == {"days": days}:
        return
    say(f"recording {days:g} days of {REPLICAS} replicas ...")
    past = Past(folder)
    requests = poisson(day(0.5, 6.0), Lengths(), seed=1, seconds=seconds)
    world = World(HARDWARE["llama-3.1-8b-h100"], 120.0, 256, initial_replicas=REPLICAS, tick_seconds=15.0)

    def watch(at: float, fleet: Fleet) -> None:
        if at % BLOCK_SECONDS == 0:  # what comes now belongs to the next one
            past.blocks()
        past.watch(at, fleet)

    simulate(
        requests,
        Fixed(),
        Direct(REPLICAS, REPLICAS),
        world,
        seconds=seconds,
        seed=1,
        reads=frozenset(),
        watch=watch,
    )
    past.blocks()
    done.write_text(json.dumps({"days": days}))


@dataclass(frozen=True)
class Cost:
    """Of one process: wall clock, its own CPU, its most memory."""

    seconds: float
    cpu_seconds: float
    kib: int


def run(arguments: list[str]) -> Cost:
    """Run ``loadtide backtest``."""
    began = time.perf_counter()
    process = os.posix_spawn(sys.executable, [sys.executable, "-m", "scaler", "backtest", *arguments], os.environ)
    _, status, usage = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"loadtide backtest ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def main() -> None:
    """Record, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, help="keep the storage here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        # In a process of its own: what a process has had at most is inherited by those that it starts.
        recording = get_context("spawn").Process(target=record, args=(folder, options.days))
        recording.start()
        recording.join()
        if recording.exitcode:
            raise SystemExit("recording failed")
        figures, keep = Path(scratch) / "figures.json", Path(scratch) / "keep"
        end = BEGIN_UTC.timestamp() + options.days * DAY_SECONDS
        with prometheus_server.serve(folder, options=["--storage.tsdb.retention.time=10y"]) as server:
            asked = [
                "--prometheus", server.url, "--workload", "chat/llama", "--range", f"{options.days:g}d",
                "--until", f"{end:.0f}", "--set", "replicas.max=12", "--set", "batch.max=256", "--keep", str(keep),
                "--json", str(figures),
            ]  # fmt: skip
            first, again = run(asked), run([*asked, "--set", "capacity.sequences=20"])
        samples = json.loads(figures.read_text())["samples"]
        kept = sum(path.stat().st_size for path in keep.iterdir())
    say(f"{samples:,} samples; kept answers {kept / 1e6:.0f} MB; a second policy on them {again.seconds:.0f} s")
    say(
        f"result: cpu_seconds={first.cpu_seconds:.1f} seconds={first.seconds:.1f} mib={first.kib / 1024:.0f} "
        f"again_cpu_seconds={again.cpu_seconds:.1f} samples_per_cpu_second={samples / first.cpu_seconds:.0f}"
    )
    if first.kib > MOST_KIB:
        raise SystemExit(f"wanted: less than {MOST_KIB // 1024} MiB")


if __name__ == "__main__":
    main()
