"""A past whose truth is known: the lab plays a workload, a Prometheus beside it remembers, and the same policy run live
on the same requests says what a backtest should find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scaler.control.model import Decision
from scaler.lab.contest import initial_replicas
from scaler.lab.fleet import Fleet, Request
from scaler.lab.ours import Ours
from scaler.lab.policies import POLICIES, Case, our_policy
from scaler.lab.scenarios import PATIENT, Scenario
from scaler.lab.simulate import BEGIN_UTC, Run, World, simulate
from scaler.lab.truth import Truth
from scaler.policy.model import Policy
from tests.lab.backtest.remembered import Remembered, of_folder
from tests.real.recorded_past import Past

BEGIN = BEGIN_UTC.timestamp()
TICK_SECONDS = 15.0


@dataclass(frozen=True)
class Lived:
    """One run of the lab. ``decisions`` are ours, tick by tick; empty where another policy ran."""

    run: Run
    decisions: Sequence[Decision]

    @property
    def replica_hours(self) -> float:
        """Asked for, as a backtest counts."""
        return sum(moment.asked for moment in self.run.timeline) * TICK_SECONDS / 3600.0

    @property
    def short_minutes(self) -> float:
        """Minutes in which the need was above the ready replicas."""
        return sum(TICK_SECONDS / 60.0 for each in self.decisions if (each.utilisation or 0.0) > 1 + 1e-6)


def live(
    scenario: Scenario,
    truth: Truth,
    policy: str,
    requests: Sequence[Request],
    watch: Callable[[float, Fleet], None] | None = None,
) -> Lived:
    """One policy on the requests, for the whole scenario."""
    case = Case(scenario, truth, 1.0, requests)
    player, enactor = POLICIES[policy].build(case)
    world = World(
        scenario.hardware,
        scenario.cold_start_seconds,
        scenario.batch,
        initial_replicas=initial_replicas(scenario, requests, truth),
        tick_seconds=TICK_SECONDS,
    )
    run = simulate(requests, player, enactor, world, seconds=scenario.seconds, seed=1, watch=watch)
    return Lived(run, player.decisions if isinstance(player, Ours) else ())


def policy_for(scenario: Scenario, truth: Truth) -> Policy:
    """The policy that ran in the lab, as an operator would declare it."""
    return our_policy(Case(scenario, truth, 1.0, ()), "adaptive")


def remembered(
    folder: Path, scenario: Scenario, truth: Truth, policy: str, requests: Sequence[Request]
) -> tuple[Remembered, Lived]:
    """What a Prometheus remembers of the run, without a Prometheus."""
    past = Past(folder, scaled_by_us=POLICIES[policy].ours)
    lived = live(scenario, truth, policy, requests, past.watch)
    return of_folder(past.finish()), lived


def short(name: str, seconds: float, build: object, **more: object) -> Scenario:
    """A scenario of long answers on a small model."""
    return Scenario(
        name, name, "tune", "llama-3.1-8b-h100", 120.0, seconds, build, PATIENT, tick_seconds=TICK_SECONDS, **more
    )  # type: ignore[arg-type]
