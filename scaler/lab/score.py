"""The score: how often a policy kept what was promised, and what it spent on that.

A cell's numbers are joint attainment, GPU-hours and replica changes. Held at one knob for the whole suite, a policy has
one *point*: mean attainment over scenarios, total GPU-hours (seeds averaged). Its *frontier* is the Pareto hull of its
points, with attainment on a logarithmic miss rate (from 99 to 99.9 % is as far as from 90 to 99 %), and is read at the
attainment of our default; never beyond its ends.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from scaler.lab.promise import Promise, kept
from scaler.lab.simulate import Run
from scaler.value import frozen

KNOBS = (0.5, 0.7, 1.0, 1.3, 1.6)
#: Our default, in knobs.
DEFAULT_KNOB = 1.0
#: Missing fewer than this share counts as missing this share: nobody is infinitely good.
LEAST_MISS = 1e-5


@frozen
class Outcome:
    """Of one run: share of the ``judged`` requests that kept every objective, GPU-hours with drain, changes."""

    attainment: float
    gpu_hours: float
    replica_changes: int
    judged: int


@frozen
class Row:
    """One cell of the scorecard."""

    scenario: str
    policy: str
    knob: float
    seed: int
    attainment: float
    gpu_hours: float
    replica_changes: int
    requests: int


@frozen
class Point:
    """What a policy got at one knob: mean attainment (0..1), GPU-hours, mean replica changes per run."""

    knob: float
    attainment: float
    gpu_hours: float
    replica_changes: float

    @property
    def log_miss(self) -> float:
        """The logarithm of the share of requests that missed."""
        return log_miss(self.attainment)


def outcome(run: Run, promise: Promise, seconds: float) -> Outcome:
    """Judge every request that came early enough to finish; who still waits at the gateway has missed."""
    until = seconds - promise.patience_seconds
    judged = [pair for pair in run.fleet.served if pair[0].at < until]
    stranded = sum(1 for request in run.fleet.gateway if request.at < until)
    good = sum(kept(promise, request, sequence) for request, sequence in judged)
    total = len(judged) + stranded
    return Outcome(good / total if total else 1.0, run.gpu_hours, run.replica_changes, total)


def log_miss(attainment: float) -> float:
    """log10 of the miss rate, floored at :data:`LEAST_MISS`."""
    return math.log10(max(1.0 - attainment, LEAST_MISS))


def points_by_scenario(rows: Iterable[Row]) -> dict[tuple[str, str], list[Point]]:
    """(scenario, policy) to its points by knob, seeds averaged."""
    cells: dict[tuple[str, str, float], list[Row]] = defaultdict(list)
    for row in rows:
        cells[row.scenario, row.policy, row.knob].append(row)
    points: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for (scenario, policy, knob), found in sorted(cells.items()):
        count = len(found)
        points[scenario, policy].append(
            Point(
                knob,
                sum(row.attainment for row in found) / count,
                sum(row.gpu_hours for row in found) / count,
                sum(row.replica_changes for row in found) / count,
            )
        )
    return dict(points)


def suite_points(rows: Iterable[Row]) -> dict[str, list[Point]]:
    """Policy to its suite points by knob: attainment averaged over scenarios, GPU-hours summed."""
    by_knob: dict[tuple[str, float], list[Point]] = defaultdict(list)
    for (_, policy), points in points_by_scenario(rows).items():
        for point in points:
            by_knob[policy, point.knob].append(point)
    suite: dict[str, list[Point]] = defaultdict(list)
    for (policy, knob), found in sorted(by_knob.items()):
        suite[policy].append(
            Point(
                knob,
                sum(point.attainment for point in found) / len(found),
                sum(point.gpu_hours for point in found),
                sum(point.replica_changes for point in found) / len(found),
            )
        )
    return dict(suite)


def hull(points: Sequence[Point]) -> list[Point]:
    """The Pareto hull, from the cheapest point to the one that misses least: the lower left convex hull over
    (log miss rate, GPU-hours). Between two of its points lies whatever one gets by running each part of the time.
    """
    efficient: list[Point] = []
    for point in sorted(points, key=lambda each: (each.log_miss, each.gpu_hours)):
        # From the best attainment on, only what is cheaper than all better ones.
        if not efficient or point.gpu_hours < efficient[-1].gpu_hours:
            efficient.append(point)
    lower: list[Point] = []
    for point in efficient:
        while len(lower) >= 2 and _turn(lower[-2], lower[-1], point) <= 0:
            lower.pop()
        lower.append(point)
    return lower[::-1]


def _turn(first: Point, second: Point, third: Point) -> float:
    along, up = second.log_miss - first.log_miss, second.gpu_hours - first.gpu_hours
    return along * (third.gpu_hours - first.gpu_hours) - up * (third.log_miss - first.log_miss)


def gpu_hours_at(points: Sequence[Point], attainment: float) -> float | None:
    """What the policy's hull costs at ``attainment``; None where the hull does not reach it."""
    frontier, wanted = hull(points), log_miss(attainment)
    for worse, better in itertools.pairwise(frontier):
        if better.log_miss <= wanted <= worse.log_miss:
            share = (wanted - better.log_miss) / (worse.log_miss - better.log_miss)
            return better.gpu_hours + share * (worse.gpu_hours - better.gpu_hours)
    for point in frontier:
        if math.isclose(point.log_miss, wanted, abs_tol=1e-9):
            return point.gpu_hours
    return None


def nearest_knob(points: Sequence[Point], attainment: float) -> Point:
    """The point whose attainment is nearest, in log miss rate; of equal ones the cheaper."""
    wanted = log_miss(attainment)
    return min(points, key=lambda point: (abs(point.log_miss - wanted), point.gpu_hours))


def at_knob(points: Sequence[Point], knob: float) -> Point | None:
    """The point of one knob."""
    return next((point for point in points if point.knob == knob), None)


@frozen
class Beside:
    """A rival beside our default in one scenario, at the rival's suite knob nearest to our suite attainment.
    ``oracle_gpu_hours``: what it takes at our attainment if its knob is tuned to this scenario; None beyond its hull.
    """

    scenario: str
    rival: str
    ours: Point
    theirs: Point
    oracle_gpu_hours: float | None

    @property
    def excess(self) -> float:
        """Our GPU-hours over theirs, as a share: below 0 we are cheaper."""
        return self.ours.gpu_hours / self.theirs.gpu_hours - 1.0


def beside(rows: Sequence[Row], ours: str, rivals: Sequence[str]) -> list[Beside]:
    """Every scenario's reading beside every rival."""
    suite, each = suite_points(rows), points_by_scenario(rows)
    own = at_knob(suite[ours], DEFAULT_KNOB)
    if own is None:
        return []
    knobs: Mapping[str, float] = {
        rival: nearest_knob(suite[rival], own.attainment).knob for rival in rivals if rival in suite
    }
    found = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        mine = at_knob(each.get((scenario, ours), ()), DEFAULT_KNOB)
        for rival, knob in knobs.items():
            points = each.get((scenario, rival), [])
            theirs = at_knob(points, knob)
            if mine is not None and theirs is not None:
                found.append(Beside(scenario, rival, mine, theirs, gpu_hours_at(points, mine.attainment)))
    return found
