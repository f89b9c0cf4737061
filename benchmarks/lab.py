"""How fast the lab is: a day of a million requests against our policy, end to end, on one core.

Everything counts that a cell of the scorecard does: engines and their metrics, a scrape every 5 s, the window fold,
``decide``, KEDA and the HPA, and the score. Drawing the trace and measuring a replica's capacity are shown apart: a
contest does them once for all policies and knobs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from scaler.lab.contest import play
from scaler.lab.scenarios import CHAT, Scenario, drawn, lengths_of
from scaler.lab.traces import day
from scaler.lab.truth import measure_truth

T = TypeVar("T")
DAY_SECONDS = 86_400.0
#: From night to noon, requests per second; a million in all.
RATE = day(2.5, 20.7)
MILLION = Scenario(
    "million", "a day of a million requests", "tune", "llama-3.1-8b-h100", 120.0, DAY_SECONDS,
    drawn(RATE, CHAT, DAY_SECONDS),
)  # fmt: skip


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def timed(what: Callable[[], T]) -> tuple[T, float, float]:
    """(result, seconds of wall clock, seconds of this process' CPU)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = what()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="how many days, each with requests of its own")
    days = [one_day(seed) for seed in range(1, parser.parse_args().seeds + 1)]
    cpu, wall = (sum(each) / len(days) for each in zip(*(seconds for _, seconds in days), strict=True))
    rate = sum(requests for requests, _ in days) / len(days) / cpu
    # Per second of CPU: what one core gives, whoever else uses the machine.
    say(f"result: requests_per_second={rate:.0f} day_cpu_seconds={cpu:.1f} day_seconds={wall:.1f}")


def one_day(seed: int) -> tuple[int, tuple[float, float]]:
    """(requests, (seconds of CPU, of wall clock)) of a day with the requests of ``seed``."""
    requests, drawing, _ = timed(lambda: MILLION.requests(None, seed))
    truth, measuring, _ = timed(
        lambda: measure_truth(MILLION.hardware, lengths_of(requests), MILLION.promise, MILLION.batch)
    )
    say(f"{len(requests)} requests drawn in {drawing:.1f} s; capacity of a replica measured in {measuring:.1f} s")
    played, wall, cpu = timed(lambda: play(MILLION, "adaptive", requests, truth, 1.0, seed))
    found = played.outcome
    say(
        f"the day took {wall:.1f} s ({cpu:.1f} s of CPU), {len(played.run.timeline)} ticks; promises kept "
        f"{found.attainment:.2%}, {found.gpu_hours:.1f} GPU-hours, {found.replica_changes} changes"
    )
    return len(requests), (cpu, wall)


if __name__ == "__main__":
    main()
