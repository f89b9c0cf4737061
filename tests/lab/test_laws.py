"""What the laws promise, played: few false jumps, the right size at a jump, and a capacity told wrong made good."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from scaler.control.model import Code
from scaler.lab.contest import Played, play
from scaler.lab.ours import Ours
from scaler.lab.policies import our_policy
from scaler.lab.scenarios import CHAT, LONG, SCENARIOS, Scenario, drawn, step
from scaler.lab.truth import Truth

#: As measured in the model; measuring takes longer than the play.
TRUTHS = {
    "trickle-8b": Truth(142.0, 21.0),
    "bursts-70b": Truth(16.2, 1.11),
    "bursts-8b": Truth(46.1, 2.15),
    "step-8b": Truth(133.7, 21.8),
    "day-70b": Truth(10.7, 0.147),
}


def played(scenario: Scenario, seed: int = 1, **more: Any) -> Played:
    return play(scenario, "adaptive", scenario.requests(None, seed), TRUTHS[scenario.name], 1.0, seed, **more)


def decisions(found: Played) -> list[Any]:
    assert isinstance(found.policy, Ours)
    return found.policy.decisions


@pytest.mark.parametrize(
    ("name", "rate", "cv", "lengths"),
    [("trickle-8b", 0.1, 1.0, CHAT), ("bursts-70b", 3.0, 4.0, CHAT), ("bursts-8b", 6.0, 4.0, LONG)],
)
def test_bursts_are_no_jumps(name: str, rate: float, cv: float, lengths: Any) -> None:
    """Two hours each. Seen over twice ten hours of CV 4: one false jump; by the ratio alone about ten an hour."""
    build = drawn(lambda _: rate, lengths, 2 * 3600.0, cv=cv)
    found = decisions(played(replace(SCENARIOS[name], seconds=2 * 3600.0, build=build), seed=7))
    jumping = [any(reason.code is Code.JUMP for reason in decision.reasons) for decision in found]
    assert not any(jumping)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_step_to_200_asks_at_once_for_flow_and_drain_within_15_percent_and_goes_on_so(seed: int) -> None:
    """One replica is there, and its queue stays with it: λ/μ* + 1. (And whole replicas.)"""
    scenario = replace(SCENARIOS["step-8b"], seconds=180.0, build=drawn(step(200, 90), CHAT, 180))
    found = played(scenario, seed)
    needed = 200 / found.case.truth.requests_per_second + 1
    assert [moment.ready for moment in found.run.timeline if moment.at == 90] == [1]
    for moment, decision in zip(found.run.timeline, decisions(found), strict=True):
        if moment.at < 95:
            assert decision.targets.replicas == 1
        elif moment.at < 150:
            assert 0.85 * needed <= decision.targets.replicas <= math.ceil(1.15 * needed), moment


def with_capacity_told(factor: float, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Played:
    """A day of which ours was told ``factor`` times what a replica serves."""

    def told(case: Any, strategy: Any, **switches: bool) -> Any:
        policy = our_policy(case, strategy, **switches)
        capacity = {
            "requests_per_second": factor * case.truth.requests_per_second,
            "sequences": factor * case.truth.sequences,
        }
        return policy.model_copy(update={"capacity": policy.capacity.model_copy(update=capacity)})

    monkeypatch.setattr("scaler.lab.policies.our_policy", told)
    return played(SCENARIOS["day-70b"], **more)


@pytest.mark.parametrize(("factor", "lost_share"), [(2.0, 0.0), (0.5, 0.0), (1.0, 0.2)])
def test_a_capacity_told_wrong_and_lost_scrapes_cost_little(
    factor: float, lost_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_capacity_told(factor, monkeypatch, lost_share=lost_share)
    assert found.outcome.attainment >= 0.9995 - 0.03
    capacity = decisions(found)[-1].capacity
    assert capacity.sequences == pytest.approx(TRUTHS["day-70b"].sequences, rel=0.3)
