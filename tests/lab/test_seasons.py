"""A learned season in the lab: fewer misses for the same hours where there is one, nothing where there is none."""

from __future__ import annotations

from functools import cache

import pytest

from scaler.lab.contest import measured_truth, play
from scaler.lab.ours import Ours
from scaler.lab.policies import NO_PRICE_NAME, NO_SEASON_NAME
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.score import Outcome
from scaler.lab.seasons import learned_from


@cache
def both(name: str) -> tuple[Outcome, Outcome]:
    """One seed without and with the season."""
    scenario = SCENARIOS[name]
    truth, requests = measured_truth(scenario, None), scenario.requests(None, 1)
    season = learned_from(scenario.past, None, 1)
    without, usual = (
        play(scenario, policy, requests, truth, 1.0, 1, season=season).outcome
        for policy in (NO_SEASON_NAME, "adaptive")
    )
    return without, usual


@pytest.mark.parametrize("name", ["season-office", "season-after-spike"])
def test_who_knows_when_they_come_misses_a_tenth_for_the_same_hours(name: str) -> None:
    without, usual = both(name)
    assert 1 - usual.attainment < (1 - without.attainment) / 10
    assert usual.gpu_hours < 1.02 * without.gpu_hours


@pytest.mark.parametrize("name", ["season-none", "season-weekend"])
def test_it_costs_nothing_where_there_is_none(name: str) -> None:
    without, usual = both(name)
    assert usual.gpu_hours <= 1.01 * without.gpu_hours
    assert usual.attainment >= without.attainment


def test_a_holiday_costs_the_morning_and_not_the_day() -> None:
    without, usual = both("season-holiday")
    begun_for_nothing = usual.gpu_hours - without.gpu_hours
    assert 0 < begun_for_nothing < 0.15 * both("season-office")[0].gpu_hours


def test_dear_hours_are_served_by_fewer_replicas_and_the_declared_promise_is_nearly_kept() -> None:
    scenario = SCENARIOS["price-peak"]
    truth, requests = measured_truth(scenario, None), scenario.requests(None, 1)
    plain, priced = (play(scenario, name, requests, truth, 1.0, 1) for name in (NO_PRICE_NAME, "adaptive"))
    spent = [each.policy.memory.bill.money for each in (plain, priced) if isinstance(each.policy, Ours)]
    assert spent[1] < 0.98 * spent[0]
    assert priced.outcome.attainment > 0.99


def test_a_scenario_without_a_past_teaches_nothing() -> None:
    assert learned_from(SCENARIOS["flat-8b"].past, None, 1).slot is None
