"""How fast the HPA rises by its policies, sync by sync."""

from __future__ import annotations

import math

import pytest

from scaler.check.rise import DEFAULT_POLICIES, RisePolicy, rise_seconds


@pytest.mark.parametrize(
    ("goal", "seconds"),
    # 1 -> 5 -> 10 -> 20 -> 40 -> 80: 4 pods or as many again, whichever is more.
    [(1, 0), (5, 0), (6, 15), (10, 15), (20, 30), (21, 45), (80, 60)],
)
def test_the_hpas_own_policies(goal: int, seconds: float) -> None:
    assert rise_seconds(DEFAULT_POLICIES, "Max", 1, goal) == seconds


def test_one_pod_a_minute() -> None:
    policy = (RisePolicy("Pods", 1, 60),)
    assert rise_seconds(policy, "Max", 1, 2) == 0
    assert rise_seconds(policy, "Max", 1, 3) == 60
    assert rise_seconds(policy, "Max", 1, 11) == 9 * 60


def test_the_least_of_two_holds_back() -> None:
    policies = (RisePolicy("Percent", 900, 15), RisePolicy("Pods", 1, 15))
    assert rise_seconds(policies, "Max", 1, 10) == 0
    assert rise_seconds(policies, "Min", 1, 10) == 8 * 15


def test_a_rise_that_never_ends() -> None:
    assert rise_seconds(DEFAULT_POLICIES, "Disabled", 1, 2) == math.inf
    assert rise_seconds((RisePolicy("Pods", 0, 15),), "Max", 1, 2) == math.inf
    assert rise_seconds((RisePolicy("Pods", 1, 1800),), "Max", 1, 100) == math.inf
