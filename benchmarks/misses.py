"""Pictures of where ours misses the bar: ``make bench NAME=misses`` (half a minute; it draws into docs/pictures).

Of each scenario below one seed is played, ours and what it is held against: a rival at the knob at which it keeps about
as much in the whole suite, the bound at the cheapest at which it keeps 99 % of this scenario, both as the scorecard has
it. Drawn are the arrivals, the replicas that are ready (ours also asked for), and when the promises were missed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figure import picture
from scaler.lab.chart import Panel, Series
from scaler.lab.contest import Played, play, truth_of
from scaler.lab.promise import kept
from scaler.lab.report import judged
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.score import DEFAULT_KNOB, Row, at_knob, nearest_knob, points_by_scenario, suite_points

ROOT = Path(__file__).parents[1]
OURS, BOUND = "adaptive", "clairvoyant"
#: The seed that shows it, and what is shown beside ours.
SHOWN = {
    "day-8b": (1, (BOUND,)),
    "flat-8b": (4, ("llm-d-slo", BOUND)),
    "bursts-8b": (4, ("ray-serve", BOUND)),
    "step-8b": (1, ("knative-kpa", BOUND)),
}
COLOURS = ("#1f77b4", "#d95f02", "#7a7a7a")
#: Arrivals and misses are counted in so many equal parts of the time.
PARTS = 120
KEPT_SHARE = 0.99


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    arguments.add_argument("scenarios", nargs="*", default=list(SHOWN), help=f"of {', '.join(SHOWN)}")
    arguments.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    given = arguments.parse_args()
    if unknown := [name for name in given.scenarios if name not in SHOWN]:
        arguments.error(f"nothing is drawn of {', '.join(unknown)}; there are {', '.join(SHOWN)}")
    rows = [Row(**row) for row in json.loads((ROOT / "benchmarks" / "scorecard.json").read_text())["rows"]]
    for name in given.scenarios:
        seed, others = SHOWN[name]
        played = [_play(name, policy, _knob(rows, name, policy), seed) for policy in (OURS, *others)]
        (given.out / f"{name}.svg").write_text(_drawn(name, played))
        for each in played:
            found = each.outcome
            print(f"{name:16} {_label(each):24} {found.attainment:8.2%} {found.gpu_hours:8.2f} GPU-hours")  # noqa: T201


def _knob(rows: Sequence[Row], name: str, policy: str) -> float:
    """The knob at which ``policy`` is held against ours."""
    if policy == OURS:
        return DEFAULT_KNOB
    if policy == BOUND:
        points = points_by_scenario(rows)[name, policy]
        enough = [point for point in points if point.attainment >= KEPT_SHARE]
        if enough:
            return min(enough, key=lambda point: point.gpu_hours).knob
        return max(points, key=lambda point: point.attainment).knob
    suite = suite_points(rows)
    ours = at_knob(suite[OURS], DEFAULT_KNOB)
    assert ours is not None
    return nearest_knob(suite[policy], ours.attainment).knob


def _play(name: str, policy: str, knob: float, seed: int) -> Played:
    scenario = SCENARIOS[name]
    return play(scenario, policy, scenario.requests(None, seed), truth_of(name, None), knob, seed)


def _label(played: Played) -> str:
    return f"{played.policy.name} × {played.case.knob:g}"


def _drawn(name: str, played: Sequence[Played]) -> str:
    scenario = played[0].case.scenario
    part = scenario.seconds / PARTS
    times = [request.at for request in played[0].case.requests]
    ready, missed = [], []
    for index, (each, colour) in enumerate(zip(played, COLOURS, strict=False)):
        if index == 0:
            asked = [(moment.at, float(moment.asked)) for moment in each.run.timeline]
            ready.append(Series("asked for", asked, colour, step=True, dashed=True))
        points = [(moment.at, float(moment.ready)) for moment in each.run.timeline]
        ready.append(Series(_label(each), points, colour, step=True))
        until = scenario.seconds - scenario.promise.patience_seconds
        late = [pair[0].at for pair in judged(each) if not kept(scenario.promise, *pair)]
        late += [request.at for request in each.run.fleet.gateway if request.at < until]
        missed.append(Series(_label(each), _rate(late, part), colour, step=True))
    arrivals = Series("arrivals", _rate(times, part), "#444", step=True)
    panels = (
        Panel("Requests/s", [arrivals]),
        Panel("Replicas ready", ready, height=170.0),
        Panel("Requests/s that missed a promise", missed, height=90.0),
    )
    told = ", ".join(
        f"{_label(each)} {each.outcome.attainment:.1%} for {each.outcome.gpu_hours:.1f} GPU-hours" for each in played
    )
    return picture(f"{name}: {told}", panels, scenario.seconds)


def _rate(times: Sequence[float], part: float) -> list[tuple[float, float]]:
    counts = [0] * PARTS
    for at in times:
        counts[min(PARTS - 1, math.floor(at / part))] += 1
    return [(index * part, count / part) for index, count in enumerate(counts)]


if __name__ == "__main__":
    main()
