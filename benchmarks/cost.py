"""What a learned season and price windows are worth, played in the lab over several seeds, as Markdown: each scenario
without and with it, beside the HPA and the bound; at equal GPU-hours (:mod:`benchmarks.cost_equal`); and prices. The
figures of ``docs/cost.md`` come from here.

``python -m benchmarks.cost [--data FOLDER] [--seeds 5] [--keep FILE] [--scenario NAME ...] [season|equal|price ...]``;
without the folder of traces the recorded days are left out. With ``--keep`` a run that was broken off goes on where it
was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.cost_cells import Cells
from benchmarks.cost_equal import DIURNAL, show_equal
from scaler.lab.contest import Played, measured_truth, play
from scaler.lab.ours import Ours
from scaler.lab.policies import NO_PRICE_NAME, NO_SEASON_NAME
from scaler.lab.progress import progress
from scaler.lab.promise import kept
from scaler.lab.scenarios import SCENARIOS, Scenario
from scaler.lab.seasons import learned_from

RIVALS = (NO_SEASON_NAME, "adaptive", "hpa-in-flight", "clairvoyant")
#: The dear hours of the scenarios with prices, seconds.
DEAR = (3600.0, 10_800.0)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def seasonal(folder: Path | None, names: Sequence[str]) -> list[Scenario]:
    """The scenarios with a past that can be played: all, or those ``names`` names, without ``season-``."""
    found = [each for each in SCENARIOS.values() if each.past is not None and (each.file is None or folder is not None)]
    return [each for each in found if not names or each.name.removeprefix("season-") in names]


def show_season(scenarios: Sequence[Scenario], folder: Path | None, keep: Path | None, seeds: Sequence[int]) -> float:
    """The table; how many times fewer requests missed where that is most."""
    lines, fewer = [], []
    with progress("season", total=len(scenarios) * len(RIVALS) * len(seeds)) as tell:
        cells = Cells(folder, keep, tell)
        for scenario in scenarios:
            points = [cells.point(scenario, policy, 1.0, seeds) for policy in RIVALS]
            found = " | ".join(f"{point.attainment:.2%} | {point.gpu_hours:.1f}" for point in points)
            lines.append(f"| {scenario.name[7:]}: {scenario.summary} | {found} |")
            fewer.append((1 - points[0].attainment) / max(1 - points[1].attainment, 1e-4))
    heads = "".join(f" {who}: kept | GPU-hours |" for who in ("without", "with", "HPA", "bound"))
    say("\n".join([f"| scenario |{heads}", "|" + "---|" * 9, *lines]))
    return max(fewer, default=1.0)


def played(scenario: Scenario, policy: str, folder: Path | None, seeds: Sequence[int]) -> list[Played]:
    """One policy's runs."""
    truth = measured_truth(scenario, folder)
    return [
        play(scenario, policy, scenario.requests(folder, seed), truth, 1.0, seed,
             season=learned_from(scenario.past, folder, seed))
        for seed in seeds
    ]  # fmt: skip


def show_price(folder: Path | None, seeds: Sequence[int]) -> float:
    """The table; the share of the money that is left."""
    say("| scenario | | kept | kept at the peak | replicas at the peak | GPU-hours | money |")
    say("|---|---|---|---|---|---|---|")
    left = 1.0
    for name, scenario in SCENARIOS.items():
        if not scenario.price.windows:
            continue
        spent = []
        for policy in (NO_PRICE_NAME, "adaptive"):
            runs = played(scenario, policy, folder, seeds)
            spent.append(fmean(each.policy.memory.bill.money for each in runs if isinstance(each.policy, Ours)))
            at_peak = [fmean(_kept_within(each, DEAR)) for each in runs]
            ready = [
                fmean(moment.ready for moment in each.run.timeline if DEAR[0] <= moment.at < DEAR[1]) for each in runs
            ]
            say(
                f"| {name}: {scenario.summary} | {'plain' if policy == NO_PRICE_NAME else 'with windows'} | "
                f"{fmean(each.outcome.attainment for each in runs):.2%} | {fmean(at_peak):.2%} | {fmean(ready):.2f} | "
                f"{fmean(each.outcome.gpu_hours for each in runs):.1f} | {spent[-1]:.0f} |"
            )
        left = min(left, spent[1] / spent[0])
    return left


def _kept_within(run: Played, between: tuple[float, float]) -> list[bool]:
    promise = run.case.scenario.promise
    return [
        kept(promise, request, served)
        for request, served in run.run.fleet.served
        if between[0] <= request.at < between[1]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=["season", "equal", "price", []], help="default: all")
    parser.add_argument("--data", type=Path, default=None, metavar="FOLDER", help="the public traces")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", type=Path, default=None, metavar="FILE", help="where cells of seasons are kept")
    parser.add_argument("--scenario", action="append", default=[], metavar="NAME", help="of the seasons, only these")
    arguments = parser.parse_args()
    scenarios = seasonal(arguments.data, arguments.scenario)
    begun, seeds, found = time.process_time(), range(1, arguments.seeds + 1), []
    for name in arguments.which or ["season", "equal", "price"]:
        say(f"\n## {name}\n")
        if name == "season":
            fewer = show_season(scenarios, arguments.data, arguments.keep, seeds)
            found.append(f"season_fewer_misses={fewer:.1f}")
        elif name == "equal":
            diurnal = [each for each in scenarios if each.name.removeprefix("season-") in DIURNAL]
            left = show_equal(diurnal, arguments.data, arguments.keep, seeds, say)
            found.append(f"equal_hours_misses_left={left:.2f}")
        else:
            found.append(f"price_money_left={show_price(arguments.data, seeds):.3f}")
    say(f"\nresult: {' '.join(found)} cpu_seconds={time.process_time() - begun:.0f}")


if __name__ == "__main__":
    main()
