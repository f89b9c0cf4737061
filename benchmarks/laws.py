"""What the laws are judged by, played in the lab over several seeds, as Markdown: the death spiral, the convergence
test, the jump from nothing, and llm-d's own ramp. The figures of ``docs/lab.md`` come from here.

``python -m benchmarks.laws [--seeds 5] [spiral|convergence|jump|ramp ...]``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from scaler.lab.baselines.in_flight import Static
from scaler.lab.contest import Played, play, truth_of
from scaler.lab.enact import Direct
from scaler.lab.hardware import HARDWARE
from scaler.lab.ours import Ours
from scaler.lab.report import quantile
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.simulate import LabPolicy, World, simulate
from scaler.lab.sustain import Bench, held, highest_rate
from scaler.lab.traces import Sampled, poisson, read_lengths
from scaler.lab.truth import most_needed
from scaler.policy.model import Batch, Objectives, Policy, ReplicaRange, Strategy

LENGTHS = Path(__file__).parents[1] / "tests" / "lab" / "data"
H100_8B = HARDWARE["llama-3.1-8b-h100"]
LIMIT_SECONDS, SPIRAL_RATE, SPIRAL_SECONDS = 4.1, 5.2, 900.0
RIVALS = ("adaptive", "doubling", "hpa-in-flight", "knative-kpa", "llm-d-slo", "clairvoyant")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def lengths_of(kind: str) -> Sampled:
    """Of 600 real requests: ``conversation`` or ``code``."""
    return read_lengths(LENGTHS / f"azure2023_{kind}_lengths.csv")


def alone(strategy: Strategy, limit_seconds: float, replicas: int, least: int) -> Policy:
    """A policy that can move nothing but the batch, from 8 on, against a limit for whole requests."""
    return Policy(
        strategy=strategy,
        objectives=Objectives(e2e_seconds=limit_seconds, e2e_critical_seconds=limit_seconds),
        replicas=ReplicaRange(min=replicas, max=replicas),
        batch=Batch(min=least, max=256, start=8),
    )


@dataclass(frozen=True, slots=True)
class Spiral:
    """How a quarter of an hour ended: last batch, who waits, P95 (s), within the limit, TPOT of the first and last."""

    batch: int
    waiting: int
    e2e_p95_seconds: float
    within: float
    tpot_first_seconds: float
    tpot_last_seconds: float


def spiral(strategy: Strategy, seed: int) -> Spiral:
    """One 8B replica, conversations, slightly more than a batch of 8 can take, and a limit of 4.1 s."""
    requests = poisson(lambda _: SPIRAL_RATE, lengths_of("conversation"), seed=seed, seconds=SPIRAL_SECONDS)
    policy = Ours(strategy, alone(strategy, LIMIT_SECONDS, 1, 1))
    world = World(H100_8B, 60.0, 8)
    run = simulate(requests, policy, Direct(1, 1), world, seconds=SPIRAL_SECONDS, seed=seed)
    ended = [
        (
            served.finished_at - served.arrived_at,
            (served.finished_at - served.first_token_at) / (served.output_tokens - 1),
        )
        for _, served in run.fleet.served
        if served.finished_at is not None and served.first_token_at is not None and served.output_tokens > 1
    ]
    last = run.timeline[-1]
    return Spiral(
        last.batch,
        last.waiting,
        quantile([whole for whole, _ in ended], 0.95),
        sum(whole <= LIMIT_SECONDS for whole, _ in ended) / len(run.fleet.served),
        quantile([tpot for _, tpot in ended[:100]], 0.5),
        quantile([tpot for _, tpot in ended[-100:]], 0.5),
    )


def show_spiral(seeds: Sequence[int]) -> None:
    say("| strategy | batch after 15 min | waiting | P95 of whole requests | within 4.1 s | TPOT, first and last 100 |")
    say("|---|---|---|---|---|---|")
    strategies: tuple[Strategy, ...] = ("stepwise", "adaptive")
    for strategy in strategies:
        found = [spiral(strategy, seed) for seed in seeds]
        say(
            f"| `{strategy}` | {median(each.batch for each in found):g} | {median(each.waiting for each in found):g} "
            f"| {median(each.e2e_p95_seconds for each in found):.1f} s "
            f"| {min(each.within for each in found):.1%} to {max(each.within for each in found):.1%} "
            f"| {1000 * median(each.tpot_first_seconds for each in found):.1f} and "
            f"{1000 * median(each.tpot_last_seconds for each in found):.1f} ms |"
        )


#: Replicas that batches of 8 keep about two thirds busy at 10 requests per second.
FLEETS = {"conversation": 3, "code": 1}
FIXED_RATE, ALLOWED = 10.0, 1.2
STATIC = (8, 16, 24, 32, 64, 128, 256)


def show_convergence(seeds: Sequence[int]) -> None:
    say("| requests | P95 at 10/s, static 8 | limit | batch | highest rate | against static 8 |")
    say("|---|---|---|---|---|---|")
    for kind, replicas in FLEETS.items():
        fixed = Bench(H100_8B, replicas, lengths_of(kind), 8)
        at_ten = median(held(fixed, Static(replicas, 8), FIXED_RATE, seed).e2e_p95_seconds for seed in seeds)
        limit = ALLOWED * at_ten

        def highest(
            batch: int, make: Callable[[], LabPolicy], kind: str = kind, replicas: int = replicas, limit: float = limit
        ) -> float:
            bench = Bench(H100_8B, replicas, lengths_of(kind), batch)
            return highest_rate(bench, make, limit, seeds, low=8.0, high=32.0, halvings=7)

        base = 0.0
        for batch in STATIC:
            rate = highest(batch, lambda batch=batch, replicas=replicas: Static(replicas, batch))  # type: ignore[misc]
            base = base or rate
            say(f"| {kind} | {at_ten:.2f} s | {limit:.2f} s | static {batch} | {rate:.1f}/s | {rate / base - 1:+.0%} |")

        def ours(limit: float = limit, replicas: int = replicas) -> LabPolicy:
            return Ours("adaptive", alone("adaptive", limit, replicas, 2))

        rate = highest(8, ours)
        say(f"| {kind} | {at_ten:.2f} s | {limit:.2f} s | **adaptive** | {rate:.1f}/s | {rate / base - 1:+.0%} |")


def show_jump(seeds: Sequence[int]) -> None:
    say("| cold start | policy | promises kept | GPU-hours | most asked for | of λ/μ* + backlog/(T_drain·μ*) |")
    say("|---|---|---|---|---|---|")
    for cold_start in (0, 60, 240):
        name = f"jump-{cold_start}"
        for policy in RIVALS:
            found = _played(name, policy, seeds)
            truth = truth_of(name, None)
            most = [max(moment.asked for moment in each.run.timeline) for each in found]
            shares = [asked / most_needed(truth, each.run.timeline) for asked, each in zip(most, found, strict=True)]
            cells = (f"{cold_start} s", policy, _kept(found), f"{_hours(found):.2f}", max(most), f"{max(shares):.0%}")
            say(f"| {' | '.join(map(str, cells))} |")


def show_ramp(seeds: Sequence[int]) -> None:
    """Replicas are averaged as llm-d does: from the beginning until the fleet is back at its floor."""
    say(f"μ* in the model: {truth_of('ramp-llm-d', None).requests_per_second:.2f} requests/s\n")
    say("| policy | promises kept | mean replicas until back at the floor | GPU-hours |")
    say("|---|---|---|---|")
    for policy in ("adaptive", "llm-d-slo", "hpa-in-flight", "knative-kpa", "keda-waiting", "static", "clairvoyant"):
        found = _played("ramp-llm-d", policy, seeds)
        replicas = fmean(mean_replicas(each) for each in found)
        say(f"| {policy} | {_kept(found)} | {replicas:.2f} | {_hours(found):.2f} |")


def mean_replicas(played: Played) -> float:
    """Replicas asked for, on average, until the last moment at which they are more than the floor."""
    floor, timeline = played.case.scenario.floor, played.run.timeline
    last = max((index for index, moment in enumerate(timeline) if moment.asked > floor), default=len(timeline) - 1)
    return fmean(moment.asked for moment in timeline[: last + 1])


def _played(name: str, policy: str, seeds: Sequence[int]) -> list[Played]:
    scenario, truth = SCENARIOS[name], truth_of(name, None)
    return [play(scenario, policy, scenario.requests(None, seed), truth, 1.0, seed) for seed in seeds]


def _kept(found: Sequence[Played]) -> str:
    shares = [each.outcome.attainment for each in found]
    return f"{fmean(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})"


def _hours(found: Sequence[Played]) -> float:
    return fmean(each.outcome.gpu_hours for each in found)


SHOWN = {"spiral": show_spiral, "convergence": show_convergence, "jump": show_jump, "ramp": show_ramp}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*SHOWN, []], help="default: all")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    begun, parts = time.process_time(), arguments.which or list(SHOWN)
    for name in parts:
        say(f"\n## {name}\n")
        SHOWN[name](range(1, arguments.seeds + 1))
    seconds = time.process_time() - begun
    say(f"\nresult: parts={len(parts)} seeds={arguments.seeds} cpu_seconds={seconds:.0f}")


if __name__ == "__main__":
    main()
