"""What a season is worth at equal GPU-hours: at several load targets, how many requests are missed for as many
GPU-hours as without it, and how many it takes to miss as few; and the same for laws that know the rate beforehand.

Few are missed, and often several at once: so it is said between which shares the seeds put what is left (nine of ten
drawings of as many seeds, with repetition, the same for both), and how many missed by their first token alone. That is
what prompts do which meet in one replica: neither a season nor knowing every rate mends it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from benchmarks.cost_cells import Cell, Cells, mean_point
from benchmarks.foreknown import FOREKNOWN_NAME
from scaler.lab.policies import NO_SEASON_NAME
from scaler.lab.progress import progress
from scaler.lab.scenarios import Scenario
from scaler.lab.score import Point, gpu_hours_at, hull

#: Scenarios that have a season, and the load targets played.
DIURNAL = ("office", "smooth-day", "azure-tuesday", "azure-thursday", "tenant-49", "tenant-52")
KNOBS = (0.85, 1.0, 1.15, 1.3, 1.6)
SEASON_NAME = "adaptive"
#: How often seeds are drawn, and the share of the draws that is said.
DRAWS, SAID = 1000, 0.9
BEYOND = "beyond the targets"

#: By policy and knob, the cells of the seeds.
Found = Mapping[tuple[str, float], Sequence[Cell]]


def show_equal(
    scenarios: Sequence[Scenario], folder: Path | None, keep: Path | None, seeds: Sequence[int],
    say: Callable[[str], None],
) -> float:  # fmt: skip
    """The table; the share of the misses that is left at the default load target, on average over the scenarios."""
    played = {
        each.name: [NO_SEASON_NAME, SEASON_NAME] + [FOREKNOWN_NAME] * (each.file is not None) for each in scenarios
    }
    lines, left, runs = [], [], sum(map(len, played.values())) * len(KNOBS) * len(seeds)
    with progress("equal", total=runs) as tell:
        cells = Cells(folder, keep, tell)
        for scenario in scenarios:
            found = {
                (policy, knob): [cells.cell(scenario, policy, knob, seed) for seed in seeds]
                for policy in played[scenario.name]
                for knob in KNOBS
            }
            name = scenario.name.removeprefix("season-")
            lines += [f"| {name} | {knob:g} | {' | '.join(_row(found, [knob]))} |" for knob in KNOBS]
            lines.append(f"| {name} | all | {' | '.join(_row(found, KNOBS))} |")
            share = left_at(found, SEASON_NAME, [1.0], range(len(seeds)))
            left += [] if share is None else [share]
    head = (
        "| scenario | load target | GPU-hours without | missed | by the first token alone | left with, for as many "
        "| left knowing the rate | GPU-hours with, for as few misses | knowing the rate |"
    )
    say("\n".join([head, "|" + "---|" * 9, *lines]))
    return fmean(left) if left else 1.0


def _row(found: Found, knobs: Sequence[float]) -> list[str]:
    """The cells of one knob; of several what is left of the misses, alone."""
    number = len(found[NO_SEASON_NAME, knobs[0]])
    shares = [_share(found, policy, knobs, number) for policy in (SEASON_NAME, FOREKNOWN_NAME)]
    if len(knobs) > 1:
        return ["", "", "", *shares, "", ""]
    without = found[NO_SEASON_NAME, knobs[0]]
    plain, late = mean_point(knobs[0], without), fmean(each.late_first for each in without)
    row = [f"{plain.gpu_hours:.1f}", f"{1 - plain.attainment:.3%}", f"{late:.3%}", *shares]
    for policy in (SEASON_NAME, FOREKNOWN_NAME):
        points = points_of(found, policy, range(number))
        hours = gpu_hours_at(points, plain.attainment)
        row.append(f"{hours / plain.gpu_hours - 1:+.1%}" if hours is not None else BEYOND if points else "")
    return row


def _share(found: Found, policy: str, knobs: Sequence[float], number: int) -> str:
    share = left_at(found, policy, knobs, range(number))
    if share is None:
        return BEYOND if points_of(found, policy, range(number)) else ""
    between = drawn_between(found, policy, knobs, number)
    return f"{share:.2f}" + (f" ({between[0]:.2f} to {between[1]:.2f})" if between else "")


def points_of(found: Found, policy: str, seeds: Sequence[int]) -> list[Point]:
    """The policy's point at each knob, over the seeds with these numbers; none where it was not played."""
    return [mean_point(knob, [cells[each] for each in seeds]) for (who, knob), cells in found.items() if who == policy]


def left_at(found: Found, policy: str, knobs: Sequence[float], seeds: Sequence[int]) -> float | None:
    """What the policy misses for the GPU-hours that ours takes without a season at a knob, as a share of what that
    misses; of several knobs the geometric mean. A knob where its cheapest takes more GPU-hours is left out; None where
    all are, or it was not played.
    """
    plain = {point.knob: point for point in points_of(found, NO_SEASON_NAME, seeds)}
    points = points_of(found, policy, seeds)
    logs = [
        missed - plain[knob].log_miss
        for knob in knobs
        if points and (missed := log_miss_at(points, plain[knob].gpu_hours)) is not None
    ]
    return 10 ** fmean(logs) if logs else None


def drawn_between(found: Found, policy: str, knobs: Sequence[float], number: int) -> tuple[float, float] | None:
    """Between which shares :func:`left_at` lies for :data:`SAID` of the draws of ``number`` seeds; None where for more
    than the rest of them there is none.
    """
    chance = Random(1)
    draws = (chance.choices(range(number), k=number) for _ in range(DRAWS))
    shares = sorted(share for seeds in draws if (share := left_at(found, policy, knobs, seeds)) is not None)
    if len(shares) < SAID * DRAWS:
        return None
    tail = (1.0 - SAID) / 2
    return shares[int(tail * len(shares))], shares[int((1.0 - tail) * len(shares)) - 1]


def log_miss_at(points: Sequence[Point], gpu_hours: float) -> float | None:
    """log10 of the miss rate for so many GPU-hours, on the policy's hull: that of its dearest point for more of them,
    None for fewer than its cheapest takes.
    """
    frontier = hull(points)
    for cheaper, dearer in itertools.pairwise(frontier):
        if cheaper.gpu_hours <= gpu_hours <= dearer.gpu_hours:
            share = (gpu_hours - cheaper.gpu_hours) / (dearer.gpu_hours - cheaper.gpu_hours)
            return cheaper.log_miss + share * (dearer.log_miss - cheaper.log_miss)
    return frontier[-1].log_miss if gpu_hours >= frontier[-1].gpu_hours else None
