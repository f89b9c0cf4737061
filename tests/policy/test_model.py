"""What a policy refuses, and that it is a value."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from scaler.policy.model import Policy


def refused(body: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate(body)
    return str(caught.value)


def test_the_defaults_are_a_valid_policy() -> None:
    assert Policy.model_validate({}) == Policy()
    assert Policy().idle.timeout_seconds == 1800


def test_a_policy_is_an_immutable_hashable_value() -> None:
    policy = Policy()
    assert hash(policy) == hash(Policy())
    with pytest.raises(ValidationError, match="frozen"):
        policy.batch.min = 4  # type: ignore[misc]


@pytest.mark.parametrize("body", [{"hold": 1}, {"batch": {"maximum": 1}}, {"jump": {"rows": [{"rate": 1}]}}])
def test_an_unknown_key_is_refused_at_every_depth(body: dict[str, Any]) -> None:
    assert "extra_forbidden" in refused(body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"replicas": {"max": True}}, "a switch"),
        ({"hold_seconds": float("nan")}, "finite"),
        ({"hold_seconds": float("inf")}, "finite"),
        ({"replicas": {"min": 3, "max": 2}}, r"max \(2\) is below min \(3\)"),
        ({"replicas": {"max": 0}}, "greater than or equal to 1"),
        ({"batch": {"min": 8, "max": 4}}, r"max \(4\) is below min \(8\)"),
        ({"batch": {"start": 1}}, r"start \(1\) must lie in"),
        ({"batch": {"max": 8, "start": 9}}, r"start \(9\) must lie in"),
        ({"batch": {"token_budget": 100}}, r"token_budget \(100\) is below token_budget_min"),
        ({"objectives": {"ttft_seconds": 2, "ttft_critical_seconds": 1}}, "must be the worse one"),
        ({"scrape": {"urls": ["vllm:8000"]}}, "is not a URL"),
        ({"scrape": {"urls": ["http://"]}}, "is not a URL"),
        ({"scrape": {"urls": ["http://["]}}, "is not a URL"),
        ({"scrape": {"urls": ["http://a/", "http://a/"]}}, "twice"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(body: dict[str, Any], says: str) -> None:
    assert re.search(says, refused(body))


@pytest.mark.parametrize(
    "body",
    [
        {"load": {"low_utilisation": 0.8, "low_leave_utilisation": 0.8, "high_leave_utilisation": 0.8}},
        {"load": {"low_utilisation": 0.95, "low_leave_utilisation": 0.97, "high_leave_utilisation": 0.98}},
        {"load": {"high_requests_per_second": 10, "low_requests_per_second": 9}},
        {"load": {"gpu_busy_high_ratio": 0.8, "gpu_busy_low_ratio": 0.8}},
        {"memory": {"kv_emergency_ratio": 0.8, "kv_growth_ratio": 0.8}},
    ],
)
def test_a_low_mark_must_be_below_its_high_mark_by_a_margin(body: dict[str, Any]) -> None:
    assert "value_error" in refused(body)


def test_jump_rows_are_sorted() -> None:
    rows = [{"rate_at_least": rate, "batch": 8, "replicas": rate} for rate in (200, 50, 100)]
    policy = Policy.model_validate({"jump": {"rows": rows}})
    assert [row.rate_at_least for row in policy.jump.rows] == [50, 100, 200]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"rate_at_least": 50, "batch": 8, "replicas": 4}, "two rows with rate_at_least 50"),
        ({"rate_at_least": 60, "batch": 8, "replicas": 1}, "row rate_at_least 60 has fewer replicas"),
        ({"rate_at_least": -1, "batch": 8, "replicas": 1}, "greater than or equal to 0"),
        ({"rate_at_least": 60, "batch": 8, "replicas": 10**16}, "less than or equal to 100000"),
    ],
)
def test_a_jump_row_at_odds_with_another_is_named(second: dict[str, Any], says: str) -> None:
    first = {"rate_at_least": 50, "batch": 8, "replicas": 2}
    assert says in refused({"jump": {"rows": [first, second]}})
