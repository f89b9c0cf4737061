"""The scorecard as people read it (Markdown) and as programs do (JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from scaler.lab.policies import POLICIES
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.score import (
    DEFAULT_KNOB,
    Beside,
    Point,
    Row,
    at_knob,
    beside,
    gpu_hours_at,
    hull,
    nearest_knob,
    points_by_scenario,
    suite_points,
)

OURS = "adaptive"
HALVES = {"report": "the reported half", "tune": "the half the laws were tuned on", "shown": "in neither half"}
#: The bar, in GPU-hours: above the best rival of a scenario, and above the bound on a day's shape at that attainment.
MOST_ABOVE_BEST, MOST_ABOVE_BOUND, BOUND_ATTAINMENT = 0.03, 0.15, 0.99
#: A rival is no better in a scenario where it keeps so much less than we do.
AS_GOOD = 0.005


def as_json(rows: Sequence[Row], seconds: float) -> str:
    """Every row, and what the whole took (seconds of wall clock)."""
    document = {"seconds": round(seconds, 1), "rows": [asdict(row) for row in rows]}
    return json.dumps(document, separators=(",", ":")).replace('{"scenario"', '\n{"scenario"') + "\n"


def rows_from_json(text: str) -> list[Row]:
    """The rows of :func:`as_json`. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for another document."""
    return [Row(**row) for row in json.loads(text)["rows"]]


def as_markdown(rows: Sequence[Row], seconds: float, *, jobs: int) -> str:
    """The whole scorecard."""
    seeds, knobs = sorted({row.seed for row in rows}), sorted({row.knob for row in rows})
    head = (
        "# Scorecard\n\n"
        f"{len(rows)} runs: {len({row.scenario for row in rows})} scenarios, {len({row.policy for row in rows})} "
        f"policies, knobs {', '.join(f'{knob:g}' for knob in knobs)}, {len(seeds)} seeds (the same for all), "
        f"{sum(row.requests for row in rows) / 1e6:.1f} million requests; {seconds / 60:.1f} min on {jobs} cores. "
        "How it is scored: `scaler/lab/score.py`; made with `loadtide score`.\n"
    )
    parts = [head]
    for half, words in HALVES.items():
        found = [row for row in rows if SCENARIOS[row.scenario].half == half]
        if found:
            parts.append(f"\n## {half.capitalize()}: {words}\n\n" + "\n".join(_half(found)) + "\n")
    return "".join(parts)


def _half(rows: Sequence[Row]) -> Iterator[str]:
    yield from _suite(rows)
    yield ""
    yield from _scenarios(rows)


def rivals(rows: Sequence[Row]) -> list[str]:
    """Those that are set beside ours: all but itself and the bound."""
    present = dict.fromkeys(row.policy for row in rows)
    return [name for name in present if name != OURS and not POLICIES[name].bound]


def _suite(rows: Sequence[Row]) -> Iterator[str]:
    suite = suite_points(rows)
    own = at_knob(suite.get(OURS, ()), DEFAULT_KNOB)
    yield "| policy | promises kept, GPU-hours by knob (hull in bold) | GPU-hours at our attainment | ours is |"
    yield "|---|---|---|---|"
    for policy, points in sorted(suite.items(), key=lambda item: (item[0] != OURS, list(POLICIES).index(item[0]))):
        frontier = hull(points)
        shown = ", ".join(_point(point, point in frontier) for point in points)
        at_ours = None if own is None else gpu_hours_at(points, own.attainment)
        if policy == OURS:
            yield f"| **{policy}** | {shown} | {'' if own is None else f'{own.gpu_hours:.0f}'} | |"
        elif at_ours is None or own is None:
            yield f"| {policy} | {shown} | {_unreached(points, own)} | |"
        else:
            yield f"| {policy} | {shown} | {at_ours:.0f} | {own.gpu_hours / at_ours - 1:+.1%} |"


def _point(point: Point, on_hull: bool) -> str:
    text = f"{point.knob:g}: {point.attainment:.2%}, {point.gpu_hours:.0f}"
    return f"**{text}**" if on_hull else text


def _unreached(points: Sequence[Point], own: Point | None) -> str:
    if own is None:
        return ""
    best = max(point.attainment for point in points)
    return "never keeps as much" if best < own.attainment else "always keeps more"


def _scenarios(rows: Sequence[Row]) -> Iterator[str]:
    each = points_by_scenario(rows)
    names = rivals(rows)
    readings = beside(rows, OURS, names)
    yield "Per scenario: ours by default beside each rival at the suite knob whose attainment is nearest to ours."
    yield "Promises kept, GPU-hours, and in brackets by how much ours takes more. `oracle`: the cheapest rival at our"
    yield "attainment if its knob were tuned to this scenario. `bound`: clairvoyant's cheapest knob with 99 %, and"
    yield "what it takes for what we keep, where its hull reaches so far."
    yield "`bar`: at most 3 % above the best rival that keeps as much; `static`, sized with the trace, sets none."
    yield ""
    yield f"| scenario | **{OURS}** | {' | '.join(names)} | oracle | bound | bar |"
    yield "|---" * (len(names) + 5) + "|"
    for scenario in dict.fromkeys(row.scenario for row in rows):
        found = [reading for reading in readings if reading.scenario == scenario]
        if not found:
            continue
        ours, cells = found[0].ours, {reading.rival: _cell(reading) for reading in found}
        oracles = [reading.oracle_gpu_hours for reading in found if reading.oracle_gpu_hours is not None]
        oracle = f"{min(oracles):.1f}" if oracles else ""
        bound = _bound(each.get((scenario, "clairvoyant"), []), ours, diurnal=SCENARIOS[scenario].diurnal)
        yield (
            f"| {scenario} | {ours.attainment:.2%}, {ours.gpu_hours:.1f} | "
            f"{' | '.join(cells.get(name, '') for name in names)} | {oracle} | {bound} | {verdict(found)} |"
        )


def _cell(reading: Beside) -> str:
    theirs = reading.theirs
    return f"{theirs.attainment:.2%}, {theirs.gpu_hours:.1f} ({reading.excess:+.0%})"


def verdict(readings: Sequence[Beside]) -> str:
    """Whether ours is within the bar against the best rival that keeps as much as we do; by how much not, if not.

    A fleet that was sized with the trace in hand sets no bar; where it is cheaper that is said.
    """
    equals = [each for each in readings if each.theirs.attainment >= each.ours.attainment - AS_GOOD]
    fair = [each for each in equals if not POLICIES[each.rival].foresight]
    told = [each for each in equals if POLICIES[each.rival].foresight and each.excess > MOST_ABOVE_BEST]
    also = "".join(f"; {each.excess:+.0%} on {each.rival}" for each in told)
    if not fair:
        return f"kept: nobody keeps as much{also}"
    best = max(fair, key=lambda each: each.excess)
    word = "**missed**" if best.excess > MOST_ABOVE_BEST else "kept"
    return f"{word}: {best.excess:+.0%} on {best.rival}{also}"


def _bound(points: Sequence[Point], ours: Point, *, diurnal: bool) -> str:
    enough = [point for point in points if point.attainment >= BOUND_ATTAINMENT]
    if not enough:
        best = nearest_knob(points, 1.0) if points else None
        return "" if best is None else f"{best.attainment:.2%} at most"
    cheapest = min(enough, key=lambda point: point.gpu_hours)
    above, equal = ours.gpu_hours / cheapest.gpu_hours - 1, gpu_hours_at(points, ours.attainment)
    text = f"{cheapest.gpu_hours:.1f} ({above:+.0%})"
    missed = diurnal and (above > MOST_ABOVE_BOUND or ours.attainment < BOUND_ATTAINMENT)
    told = f"**{text}**" if missed else text
    return told if equal is None else f"{told}; {equal:.1f} ({ours.gpu_hours / equal - 1:+.0%}) for as much"
