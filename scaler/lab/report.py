"""The report of one scenario: a page without any other file, with a table and timelines of ours beside the rivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby

from scaler.lab.chart import Band, Panel, Series, draw
from scaler.lab.contest import Played
from scaler.lab.fleet import Request
from scaler.lab.ours import Ours
from scaler.lab.report_page import PAGE
from scaler.lab.scenarios import Scenario
from scaler.lab.sequence import Sequence as Served
from scaler.lab.truth import Truth

#: The percentile lines have one point per so many equal parts of the time.
PARTS = 80
#: Means have one per so many.
FINE_PARTS = 240
#: Fewer requests than this in a part make no percentile.
LEAST_REQUESTS = 5
#: A request that never got its answer is drawn as this many times the objective.
NEVER = 100.0
COLOURS = tuple(f"var(--series-{index})" for index in range(1, 7))
_Measure = Callable[[tuple[Request, Served]], float]


def quantile(values: Sequence[float], q: float) -> float:
    """The nearest-rank quantile; NaN of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def judged(played: Played) -> list[tuple[Request, Served]]:
    """The requests that came early enough to be judged."""
    scenario = played.case.scenario
    until = scenario.seconds - scenario.promise.patience_seconds
    return [pair for pair in played.run.fleet.served if pair[0].at < until]


def first_token_seconds(request: Request, served: Served) -> float:
    """From arrival at the gateway to the first token; inf where there was none."""
    return math.inf if served.first_token_at is None else served.first_token_at - request.at


def per_token_seconds(served: Served) -> float:
    """The request's mean time per output token after the first; inf where it was not finished."""
    if served.finished_at is None or served.first_token_at is None:
        return math.inf
    following = served.output_tokens - 1
    return (served.finished_at - served.first_token_at) / following if following else 0.0


def page(played: Sequence[Played], truth: Truth, seed: int) -> str:
    """The page: ours first, then the rivals."""
    scenario = played[0].case.scenario
    title = f"{scenario.name}: {played[0].policy.name} beside {', '.join(each.policy.name for each in played[1:])}"
    title = title if len(played) > 1 else f"{scenario.name}: {played[0].policy.name}"
    panels = "".join(draw(panel, scenario.seconds) for panel in _panels(played, truth))
    return PAGE.format(
        title=escape(title),
        heading=escape(scenario.name),
        lead=escape(_lead(scenario, truth, seed)),
        table=_table(played),
        panels=panels,
    )


def _lead(scenario: Scenario, truth: Truth, seed: int) -> str:
    promise = scenario.promise
    return (
        f"{scenario.summary}; {scenario.hardware_name}, {_gpus(scenario)} per replica, cold start "
        f"{scenario.cold_start_seconds:g} s, {scenario.floor} to {scenario.ceiling} replicas. Promised to each "
        f"request: first token within {promise.ttft_seconds:g} s, {1000 * promise.tpot_seconds:g} ms per token. "
        f"One replica serves {truth.requests_per_second:.3g} requests/s ({truth.sequences:.3g} at once); every policy "
        f"was told so. Seed {seed}."
    )


def _gpus(scenario: Scenario) -> str:
    count = scenario.hardware.gpus
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _table(played: Sequence[Played]) -> str:
    rows = []
    base = played[0].outcome.gpu_hours
    for index, each in enumerate(played):
        served = judged(each)
        found = each.outcome
        more = "" if index == 0 else f"{found.gpu_hours / base - 1:+.0%}"
        ready = [moment.ready for moment in each.run.timeline]
        cells = (
            f'<i class="dot" style="background:{COLOURS[index % len(COLOURS)]}"></i>{escape(each.policy.name)}',
            f"{found.attainment:.2%}",
            f"{found.gpu_hours:.2f}",
            more,
            f"{sum(ready) / len(ready):.2f}",
            f"{max(ready)}",
            f"{found.replica_changes}",
            _seconds(quantile([first_token_seconds(*pair) for pair in served], 0.95)),
            _seconds(quantile([per_token_seconds(sequence) for _, sequence in served], 0.95)),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = (
        "policy", "promises kept", "GPU-hours", "against first", "mean ready", "most", "changes", "P95 first token",
        "P95 per token",
    )  # fmt: skip
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{''.join(rows)}</table>"


def _seconds(value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def _panels(played: Sequence[Played], truth: Truth) -> list[Panel]:
    scenario, first = played[0].case.scenario, played[0]
    arrivals = _averaged([(moment.at, moment.arrivals) for moment in first.run.timeline], scenario.seconds)
    panels = [Panel("Load, requests per second", [Series("", arrivals, "var(--load)", area=True)], height=80)]
    if isinstance(first.policy, Ours):
        panels.append(Panel(f"State as {first.policy.name} saw it", bands=_states(first)))
    needed = [(at, rate / truth.requests_per_second) for at, rate in arrivals]
    most = max(moment.asked for each in played for moment in each.run.timeline)
    for index, each in enumerate(played):
        colour, timeline = COLOURS[index % len(COLOURS)], each.run.timeline
        lines = [
            Series("arrivals / μ*", needed, "var(--load)"),
            Series("asked", [(moment.at, moment.asked) for moment in timeline], colour, step=True, dashed=True),
            Series("ready", [(moment.at, moment.ready) for moment in timeline], colour, step=True, area=True),
        ]
        panels.append(Panel(f"Replicas, {each.policy.name}", lines, height=95, least_top=float(most)))
    panels.append(_concurrency(played))
    promise = scenario.promise
    ttft, tpot = promise.ttft_seconds, promise.tpot_seconds
    panels.append(_percentiles(played, "P95 time to first token, s", ttft, lambda pair: first_token_seconds(*pair)))
    panels.append(_percentiles(played, "P95 time per output token, s", tpot, lambda pair: per_token_seconds(pair[1])))
    return panels


def _concurrency(played: Sequence[Played]) -> Panel:
    scenario = played[0].case.scenario
    lines = [
        Series(
            each.policy.name,
            _averaged(
                [(moment.at, (moment.running + moment.waiting) / max(1, moment.ready)) for moment in each.run.timeline],
                scenario.seconds,
            ),
            COLOURS[index % len(COLOURS)],
        )
        for index, each in enumerate(played)
    ]
    for index, each in enumerate(played):
        if index == 0 or isinstance(each.policy, Ours):  # the rivals leave the batch alone
            batch = [(moment.at, float(moment.batch)) for moment in each.run.timeline]
            colour = COLOURS[index % len(COLOURS)]
            lines.append(Series(f"batch, {each.policy.name}", batch, colour, step=True, dashed=True))
    return Panel("In flight per ready replica, and the batch", lines, scale="log", height=130, most_bottom=1.0)


def _percentiles(played: Sequence[Played], title: str, objective: float, measure: _Measure) -> Panel:
    """P95 by time of arrival; what never came is drawn at the top."""
    seconds = played[0].case.scenario.seconds
    lines = []
    for index, each in enumerate(played):
        parts: list[list[float]] = [[] for _ in range(PARTS)]
        for pair in judged(each):
            parts[min(int(pair[0].at / seconds * PARTS), PARTS - 1)].append(measure(pair))
        points = [
            ((part + 0.5) * seconds / PARTS, min(quantile(values, 0.95), NEVER * objective))
            for part, values in enumerate(parts)
            if len(values) >= LEAST_REQUESTS
        ]
        lines.append(Series(each.policy.name, points, COLOURS[index % len(COLOURS)]))
    note = "by arrival; no answer: at the top"
    return Panel(title, lines, rule=(f"objective {objective:g}", objective), scale="log", height=130, note=note)


def _averaged(points: Sequence[tuple[float, float]], seconds: float) -> list[tuple[float, float]]:
    """The means of equal parts of the time: one tick's arrivals are mostly noise."""
    grouped = groupby(points, key=lambda point: int(point[0] / seconds * FINE_PARTS))
    means = []
    for _, group in grouped:
        found = list(group)
        means.append((sum(at for at, _ in found) / len(found), sum(value for _, value in found) / len(found)))
    return means


def _states(played: Played) -> list[Band]:
    """Ours' states in stretches."""
    assert isinstance(played.policy, Ours)
    bands, start = [], 0.0
    pairs = zip(played.run.timeline, played.policy.decisions, strict=True)
    for state, group in groupby(pairs, key=lambda pair: pair[1].state.value):
        end = list(group)[-1][0].at
        told = f"{state}, {start:.0f} to {end:.0f} s"
        bands.append(Band(start, end, state, f"var(--state-{state})", told))
        start = end
    return bands
