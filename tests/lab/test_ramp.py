"""llm-d's own benchmark of its SLO-aware law: Qwen3-32B, 2 to 10 to 1 requests/s in steps, 3 to 8 replicas.

Published: 95.8 % of promises kept at 5.93 replicas on average (85.6 % with its latency predictor untrained); a static 8
keeps 100 %. The same law in the lab says how near the model is to a real cluster; ours stands beside it.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from scaler.lab.contest import Played, play, truth_of
from scaler.lab.scenarios import SCENARIOS

PUBLISHED_ATTAINMENT, PUBLISHED_REPLICAS = 0.958, 5.93


@cache
def ramp(policy: str, seed: int) -> Played:
    scenario = SCENARIOS["ramp-llm-d"]
    return play(scenario, policy, scenario.requests(None, seed), truth_of("ramp-llm-d", None), 1.0, seed)


def replicas(played: Played) -> float:
    """On average until the fleet is back at its floor, as published."""
    timeline, floor = played.run.timeline, played.case.scenario.floor
    last = max(index for index, moment in enumerate(timeline) if moment.asked > floor)
    return fmean(moment.asked for moment in timeline[: last + 1])


def test_llm_ds_law_does_in_the_lab_what_it_did_on_a_cluster() -> None:
    """Seen over 5 seeds: 92.4 to 92.6 % at 6.03. Arrivals are even: seeds hardly differ."""
    theirs = ramp("llm-d-slo", 1)
    assert theirs.outcome.attainment == pytest.approx(PUBLISHED_ATTAINMENT, abs=0.06)
    assert replicas(theirs) == pytest.approx(PUBLISHED_REPLICAS, rel=0.06)


@pytest.mark.parametrize("seed", [1, 2])
def test_ours_keeps_more_for_hardly_more(seed: int) -> None:
    """Seen over 5 seeds: 100 % at 6.25."""
    ours = ramp("adaptive", seed)
    assert ours.outcome.attainment >= 0.98
    assert replicas(ours) <= 1.12 * PUBLISHED_REPLICAS


def test_eight_replicas_keep_every_promise() -> None:
    """As published: otherwise the model's replicas would be slower than theirs."""
    assert ramp("static", 1).outcome.attainment == 1.0
