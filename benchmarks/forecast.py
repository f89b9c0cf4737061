"""The season's own estimator beside forecasting libraries, on the same histories.

First how far each is off a cold start ahead, minute by minute through the hours that a scenario plays: mean absolute
error and pinball losses at the median and the 90th percentile, as shares of the mean rate, and how often less came than
the 90th percentile said. What comes is the mean of forty drawings of the scenario. A library is fitted anew at the
beginning of every quarter of an hour, on the four weeks before; ours is told the arrivals of each minute. Beside them
who says that it stays as in the last quarter of an hour.

Then what that is worth: the same policy, in the lab, with the library's levels in the place of ours (and told
beforehand how far it will be off).

``python -m benchmarks.forecast [--data FOLDER] [--seeds 2] [scenario ...]``, with ``loadtide[forecast]`` installed.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from itertools import accumulate, dropwhile
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.forecasters import NINTH, Forecast, Forecaster, installed
from scaler.control.model import Now
from scaler.control.season import (
    COURSE_SLOTS,
    ROOT_SQUARE,
    SLOTS_KEPT,
    SLOTS_NEEDED,
    Season,
    Skill,
    expected_season,
    foresee,
    learn_season,
)
from scaler.lab.contest import measured_truth, play, play_built
from scaler.lab.ours import Ours
from scaler.lab.policies import NO_SEASON_NAME, POLICIES, Case
from scaler.lab.scenarios import SCENARIOS, Scenario
from scaler.lab.seasons import learned_from
from scaler.lab.simulate import BEGIN_UTC, Wish
from scaler.policy.model import SLOT_SECONDS, Seasonal
from scaler.signals.model import Signals

NAMES = (
    "office", "after-holiday", "after-spike", "holiday", "smooth-day", "azure-tuesday", "azure-thursday", "tenant-49",
    "tenant-52",
)  # fmt: skip
PLAYED = ("office", "smooth-day", "azure-tuesday", "azure-thursday", "tenant-49")
COLD_STARTS, MINUTE = (120, 300), 60
#: What comes is the mean of so many drawings.
DRAWINGS = 40
BOUGHT, FORESEEN, LAST = "ours, bought", "ours, foreseen", "as in the last slot"
LAW = Seasonal()


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


@dataclass(slots=True)
class Errors:
    """Sums over the minutes of all scenarios' forecasts, each as a share of its scenario's mean rate."""

    absolute: list[float] = field(default_factory=list)
    middle: list[float] = field(default_factory=list)
    ninth: list[float] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)

    def add(self, came: float, middle: float, ninth: float, scale: float) -> None:
        """One minute."""
        self.absolute.append(abs(came - middle) / scale)
        self.middle.append(pinball(came, middle, 0.5) / scale)
        self.ninth.append(pinball(came, ninth, 0.9) / scale)
        self.covered.append(came <= ninth)


def pinball(came: float, said: float, quantile: float) -> float:
    """The loss of which the quantile is the minimum."""
    return max(quantile * (came - said), (quantile - 1.0) * (came - said))


def minutes_of(scenario: Scenario, folder: Path | None, seeds: Sequence[int]) -> list[float]:
    """Arrivals per second by minute, averaged over the seeds."""
    rates = [0.0] * (int(scenario.seconds) // MINUTE)
    for seed in seeds:
        for request in scenario.requests(folder, seed):
            rates[int(request.at) // MINUTE] += 1.0 / MINUTE / len(seeds)
    return rates


def history_of(season: Season) -> list[float]:
    """The levels that are known up to the slot that is being filled, gaps filled with what came before them."""
    begun = season.slot or 0
    levels = [season.level(begun - back) for back in range(SLOTS_KEPT, 0, -1)]
    known = dropwhile(lambda level: level is None, levels)
    filled = accumulate(known, lambda before, level: before if level is None else level)
    return [level or 0.0 for level in filled]


class Libraries:
    """Forecasts by library, scenario, seed and slot, each made once."""

    def __init__(self, forecasters: Mapping[str, Forecaster]) -> None:
        self.forecasters, self.seconds = forecasters, defaultdict[str, list[float]](list)
        self._made: dict[tuple[str, tuple[float, ...]], Forecast] = {}

    def forecast(self, name: str, season: Season) -> Forecast:
        """What the library says of the slot that begins and those after it."""
        history = history_of(season)
        key = (name, tuple(history))
        if key not in self._made:
            begun = time.process_time()
            self._made[key] = self.forecasters[name](history, COURSE_SLOTS + 1)
            self.seconds[name].append(time.process_time() - begun)
        return self._made[key]


def along(levels: Sequence[float], slots: float) -> float:
    """A line from the middle of each slot to that of the next; the first of ``levels`` is the slot before."""
    found = Season(course=tuple(levels)).along(slots)
    return levels[-1] if found is None else found


def judge(
    scenario: Scenario, folder: Path | None, seed: int, libraries: Libraries, errors: Mapping[tuple[str, int], Errors]
) -> None:
    """Every minute's forecasts of one run."""
    arrivals, came = minutes_of(scenario, folder, [seed]), minutes_of(scenario, folder, range(100, 100 + DRAWINGS))
    season, scale, bold = (
        learned_from(scenario.past, folder, seed),
        fmean(came),
        LAW.model_copy(update={"quantile": 0.9}),
    )
    said: dict[str, Forecast] = {}
    for minute, rate in enumerate(arrivals):
        now = BEGIN_UTC + timedelta(seconds=minute * MINUTE)
        before = season.slot
        season = learn_season(season, LAW, LAW.slot(now), 0.0, 0.0)
        if season.slot != before:
            said = {name: libraries.forecast(name, season) for name in libraries.forecasters}
        last = season.level((season.slot or 0) - 1) or 0.0
        for cold_start in COLD_STARTS:
            ahead = minute + cold_start // MINUTE
            if ahead >= len(came):
                continue
            at, slots = (
                now + timedelta(seconds=cold_start),
                (minute * MINUTE % SLOT_SECONDS + cold_start) / SLOT_SECONDS,
            )
            usual, more = expected_season(season, LAW, at), expected_season(season, bold, at)
            seen = foresee(season, LAW, now, cold_start)
            found = {LAST: (last, last), BOUGHT: (usual.rate if usual else 0.0, more.rate if more else 0.0)}
            found[FORESEEN] = (last, last) if seen is None else (seen.ahead, seen.ahead * (1 + NINTH * seen.error))
            for name, each in said.items():
                found[name] = (along([last, *each.middle], slots), along([last, *each.ninth], slots))
            for name, (middle, ninth) in found.items():
                errors[name, cold_start].add(came[ahead], middle, ninth, scale)
        season = learn_season(season, LAW, LAW.slot(now), rate, float(MINUTE))


class Told(Ours):
    """Ours, with a library's levels in the place of the season's; ``error`` is how far they are off, as a share."""

    def __init__(self, ours: Ours, libraries: Libraries, library: str, error: float) -> None:
        super().__init__(ours.name, ours.policy, ours.memory)
        self._libraries, self._library, self._error = libraries, library, error
        self._slot: int | None = None
        self._course: tuple[float, ...] = ()

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        """One tick, with what the library says of this slot and the next ones."""
        season = self.memory.season
        if season.slot == LAW.slot(now.utc):
            if season.slot != self._slot:
                last = season.level((season.slot or 0) - 1) or 0.0
                self._slot = season.slot
                self._course = (last, *self._libraries.forecast(self._library, season).middle)
            # What came today is in the forecast already: it is taken as it is.
            told = replace(
                season, period="daily", course=self._course, usual=season.came,
                today=Skill(SLOTS_NEEDED, self._error / ROOT_SQUARE, 1.0, 1.0),
            )  # fmt: skip
            self.memory = replace(self.memory, season=told)
        return super().tick(signals, now, asked)


def play_told(
    scenario: Scenario, folder: Path | None, seed: int, libraries: Libraries, library: str, error: float
) -> tuple[float, float]:
    """Attainment and GPU-hours with the library's levels."""
    requests, truth = scenario.requests(folder, seed), truth_of(scenario.name, folder)
    case = Case(scenario, truth, 1.0, requests, learned_from(scenario.past, folder, seed))
    policy, enactor = POLICIES["adaptive"].build(case)
    assert isinstance(policy, Ours)
    found = play_built(case, Told(policy, libraries, library, error), enactor, seed).outcome
    return found.attainment, found.gpu_hours


@cache
def truth_of(name: str, folder: Path | None) -> Any:
    return measured_truth(SCENARIOS[name], folder)


def show_errors(
    scenarios: Sequence[Scenario], folder: Path | None, seeds: Sequence[int], libraries: Libraries
) -> Mapping[tuple[str, int], Errors]:
    """The table of errors."""
    total = defaultdict[tuple[str, int], Errors](Errors)
    say(
        "| scenario | forecast | "
        + " | ".join(f"{each} s: error | pinball 0.5 | 0.9 | below it" for each in COLD_STARTS)
        + " |"
    )
    say("|---|---|" + "---|" * 4 * len(COLD_STARTS))
    for scenario in scenarios:
        errors = defaultdict[tuple[str, int], Errors](Errors)
        for seed in seeds:
            judge(scenario, folder, seed, libraries, errors)
        show_rows(scenario.name.removeprefix("season-"), errors)
        for key, found in errors.items():
            for name in ("absolute", "middle", "ninth", "covered"):
                getattr(total[key], name).extend(getattr(found, name))
    show_rows("**all**", total)
    return total


def show_rows(title: str, errors: Mapping[tuple[str, int], Errors]) -> None:
    """One row for each who forecasts."""
    for name in dict.fromkeys(name for name, _ in errors):
        cells = []
        for found in (errors[name, cold_start] for cold_start in COLD_STARTS):
            losses = (found.absolute, found.middle, found.ninth)
            cells += [*(f"{fmean(each):.2%}" for each in losses), f"{fmean(found.covered):.0%}"]
        say(f"| {title} | {name} | {' | '.join(cells)} |")


def show_lab(
    scenarios: Sequence[Scenario], folder: Path | None, seeds: Sequence[int], libraries: Libraries,
    errors: Mapping[tuple[str, int], Errors],
) -> None:  # fmt: skip
    """The table of what each is worth in the lab."""
    say(f"\n| scenario | without a season | ours | {' | '.join(libraries.forecasters)} |")
    say("|---|---|---|" + "---|" * len(libraries.forecasters))
    for scenario in scenarios:
        truth, found = truth_of(scenario.name, folder), []
        for policy in (NO_SEASON_NAME, "adaptive"):
            runs = [
                play(scenario, policy, scenario.requests(folder, seed), truth, 1.0, seed,
                     season=learned_from(scenario.past, folder, seed)).outcome
                for seed in seeds
            ]  # fmt: skip
            found.append([(run.attainment, run.gpu_hours) for run in runs])
        for library in libraries.forecasters:
            error = ROOT_SQUARE * fmean(errors[library, COLD_STARTS[0]].absolute)
            found.append([play_told(scenario, folder, seed, libraries, library, error) for seed in seeds])
        cells = [f"{fmean(run[0] for run in runs):.2%}, {fmean(run[1] for run in runs):.1f}" for runs in found]
        say(f"| {scenario.name.removeprefix('season-')} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="scenarios, without 'season-'; default: all")
    parser.add_argument("--data", type=Path, default=None, metavar="FOLDER", help="the public traces")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    forecasters = installed()
    if not forecasters:
        say("no library is here to compare with: pip install 'loadtide[forecast]'")
        say("result: libraries=0")
        return
    seeds, libraries = range(1, arguments.seeds + 1), Libraries(forecasters)
    scenarios = [SCENARIOS[f"season-{name}"] for name in arguments.names or NAMES]
    scenarios = [each for each in scenarios if each.file is None or arguments.data is not None]
    errors = show_errors(scenarios, arguments.data, seeds, libraries)
    played = [each for each in scenarios if each.name.removeprefix("season-") in PLAYED]
    show_lab(played, arguments.data, seeds, libraries, errors)
    found = []
    for cold_start in COLD_STARTS:
        best = min(fmean(errors[name, cold_start].middle) for name in forecasters)
        found.append(f"pinball_over_best_library_{cold_start}s={fmean(errors[FORESEEN, cold_start].middle) / best:.2f}")
    spent = " ".join(
        f"{name.split()[0].lower()}_fit_seconds={fmean(each):.2f}" for name, each in libraries.seconds.items()
    )
    say(f"\nresult: libraries={len(forecasters)} {' '.join(found)} {spent}")


if __name__ == "__main__":
    main()
