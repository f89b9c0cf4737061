"""Cells of a contest: one scenario, policy, knob and seed each, simulated and scored; many of them on several cores."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import repeat
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from scaler.control.season import NO_SEASON, Season
from scaler.lab.fleet import Request
from scaler.lab.meters import FOLDED
from scaler.lab.policies import POLICIES, Case
from scaler.lab.scenarios import SCENARIOS, Scenario, lengths_of
from scaler.lab.score import Outcome, Row, outcome
from scaler.lab.seasons import learned_from
from scaler.lab.simulate import Enactor, LabPolicy, Run, World, simulate
from scaler.lab.truth import Truth, measure_truth
from scaler.value import frozen

#: The first so many seconds of a trace say with how many replicas everybody begins.
OPENING_SECONDS = 60.0


@frozen
class Played:
    """One cell, with all that a picture needs. ``policy`` still holds what it remembered."""

    case: Case
    policy: LabPolicy
    run: Run
    outcome: Outcome


def play(scenario: Scenario, policy_name: str, requests: Sequence[Request], truth: Truth, knob: float, seed: int,
         lost_share: float = 0.0, season: Season = NO_SEASON) -> Played:  # fmt: skip
    """Simulate one cell. ``lost_share``: the probability that one replica's scrape is lost; ``season``: what was
    learned before it.
    """
    entry = POLICIES[policy_name]
    case = Case(scenario, truth, knob, requests, season)
    return play_built(case, *entry.build(case), seed, lost_share, reads=entry.reads)


def play_built(
    case: Case,
    policy: LabPolicy,
    enactor: Enactor,
    seed: int,
    lost_share: float = 0.0,
    *,
    reads: frozenset[str] = FOLDED,
) -> Played:
    """Simulate a policy that has been built, or one's own in its place. ``reads``: the families it looks at."""
    scenario, requests = case.scenario, case.requests
    world = World(
        scenario.hardware,
        scenario.cold_start_seconds,
        scenario.batch,
        initial_replicas=initial_replicas(scenario, requests, case.truth),
        tick_seconds=scenario.tick_seconds,
        lost_share=lost_share,
        fill_seconds=scenario.fill_seconds,
    )
    run = simulate(requests, policy, enactor, world, seconds=scenario.seconds, seed=seed, reads=reads)
    return Played(case, policy, run, outcome(run, scenario.promise, scenario.seconds))


def initial_replicas(scenario: Scenario, requests: Sequence[Request], truth: Truth) -> int:
    """With how many replicas everybody begins: as many as the opening needs, within floor and ceiling."""
    opening = sum(1 for request in requests if request.at < OPENING_SECONDS) / OPENING_SECONDS
    return min(max(math.ceil(opening / truth.requests_per_second), scenario.floor), scenario.ceiling)


@cache
def truth_of(name: str, folder: Path | None) -> Truth:
    """The capacity knowledge of a scenario by name: the same for every policy, knob and seed."""
    return measured_truth(SCENARIOS[name], folder)


def measured_truth(scenario: Scenario, folder: Path | None) -> Truth:
    """What one replica serves of the scenario, measured. Raises ``ValueError`` where it can keep no promise of it."""
    lengths = lengths_of(scenario.requests(folder, seed=0))
    return measure_truth(
        scenario.hardware, lengths, scenario.promise, scenario.batch, fill_seconds=scenario.fill_seconds
    )


def score_cells(
    name: str, truth: Truth, policies: Sequence[str], knobs: Sequence[float], seed: int, folder: Path | None
) -> list[Row]:
    """Every policy and knob on one trace."""
    scenario = SCENARIOS[name]
    requests, season = scenario.requests(folder, seed), learned_from(scenario.past, folder, seed)
    rows = []
    for policy in policies:
        for knob in knobs:
            found = play(scenario, policy, requests, truth, knob, seed, season=season).outcome
            rows.append(
                Row(name, policy, knob, seed, found.attainment, found.gpu_hours, found.replica_changes, found.judged)
            )
    return rows


def contest(
    names: Sequence[str],
    policies: Sequence[str],
    knobs: Sequence[float],
    seeds: Sequence[int],
    folder: Path | None,
    *,
    jobs: int,
    done: Callable[[str, int], None],
) -> list[Row]:
    """Every cell, on ``jobs`` processes; ``done`` is told (scenario, rows) as they come. Rows are in a fixed order."""
    rows: list[Row] = []
    # Longest first, or one process has much left to do when the others have nothing.
    tasks = [(name, seed) for name in sorted(names, key=_ticks, reverse=True) for seed in seeds]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin) as pool:
        truths = dict(zip(names, pool.map(truth_of, names, repeat(folder)), strict=True))
        cells = [pool.submit(score_cells, name, truths[name], policies, knobs, seed, folder) for name, seed in tasks]
        for cell in as_completed(cells):
            rows += cell.result()
            done(rows[-1].scenario, len(cell.result()))
    order = {name: index for index, name in enumerate(names)}
    return sorted(rows, key=lambda row: (order[row.scenario], policies.index(row.policy), row.knob, row.seed))


def _begin() -> None:
    """What a process does before its first cell."""
    # A run drops what it made without leaving a cycle, so that a collector finds nothing, for a ninth of the time.
    gc.disable()
    # Whoever is killed ends no process that it began, and these would work on, and then wait for ever.
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _ticks(name: str) -> float:
    """How often is decided in a scenario: what most of its time goes into."""
    return SCENARIOS[name].seconds / SCENARIOS[name].tick_seconds
