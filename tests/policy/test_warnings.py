"""What a valid policy still leaves unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from scaler.policy.model import Policy
from scaler.policy.warnings import warnings_of

COMPLETE: dict[str, dict[str, Any]] = {
    "scrape": {"urls": ["http://vllm:8000/metrics"]},
    "push": {"enabled": True},
    "replicas": {"max": 8},
    "batch": {"max": 32},
}


PEAK = {"start": "08:00", "end": "20:00", "zone": "UTC"}


def warned(**groups: dict[str, Any] | str) -> list[str]:
    return list(warnings_of(Policy.model_validate(COMPLETE | groups)))


def test_a_complete_policy_has_no_warnings() -> None:
    assert warned() == []


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"scrape": {}}, "no source: "),
        ({"push": {}}, "nothing can wake this workload from zero: "),
        ({"replicas": {}}, "declare replicas.max equal to the ScaledObject's maxReplicaCount"),
        ({"batch": {}}, "the engine's cap is told by no metric; declare batch.max"),
        ({"capacity": {"sequences": 48}}, "target_unreachable: capacity.sequences (48) is above batch.max (32)"),
        (
            {"push": {"enabled": True, "wake_ttl_seconds": 900}},
            "push.wake_ttl_seconds (900) is not above replicas.load_timeout_seconds (900), so a wake whose load fails",
        ),
        ({"warm": {"floor": 9}}, "warm.floor (9) is above replicas.max (8)"),
        (
            {"push": {}, "replicas": {"min": 1, "max": 8}, "idle": {"sleep_after_seconds": 300}},
            "idle.sleep_after_seconds is not used, for no wake source is declared",
        ),
        (
            {"warm": {"floor": 1}, "idle": {"sleep_after_seconds": 300}},
            "idle.sleep_after_seconds is not used, for warm.floor (1) keeps awake",
        ),
        ({"replicas": {"max": 8, "activation": 9}}, "replicas.activation (9) is above replicas.max (8)"),
        (
            {"jump": {"rows": [{"rate_at_least": 1, "batch": 33, "replicas": 2}]}},
            "jump.rows (33) is above batch.max (32)",
        ),
        ({"price": {"windows": [PEAK | {"objective_factor": 1.2}]}}, "changes nothing, for no objective is declared"),
        ({"price": {"windows": [PEAK | {"hour_price": 3}]}}, "declare gpu.hour_price"),
        ({"price": {"windows": [PEAK]}}, "price.windows[0] changes nothing; declare its objective_factor, floor"),
        ({"price": {"windows": [PEAK | {"floor": 9}]}}, "price.windows (9) is above replicas.max (8)"),
        ({"season": {"source": "main"}}, "write season.query, or the labels under prometheus.match"),
        ({"season": {"query": "sum(rate(x[5m]))"}}, "name one of sources: as season.source"),
        ({"budget": {"at_end": "cap"}}, "there is no budget; declare budget.gpu_hours"),
        ({"budget": {"gpu_hours": 50, "at_end": "cap"}}, "takes the workload to zero until the month ends"),
        (
            {"budget": {"gpu_hours": 40, "per": "day"}, "warm": {"floor": 2}, "gpu": {"per_replica": 4}},
            "the floor of 2 alone takes more than the budget in a day (184 of 40 GPU-hours), and a floor wins",
        ),
    ],
)
def test_each_gap_has_its_warning(groups: dict[str, Any], says: str) -> None:
    (text,) = warned(**groups)
    assert says in text


@pytest.mark.parametrize(
    "groups",
    [
        {"push": {}, "replicas": {"min": 1, "max": 8}},
        {"push": {}, "warm": {"floor": 1}},
        {"batch": {}, "strategy": "stepwise"},
        {"capacity": {"sequences": 32}},
        {"push": {"enabled": True, "wake_ttl_seconds": 901}},
    ],
)
def test_what_is_in_order_is_not_warned_of(groups: dict[str, Any]) -> None:
    assert warned(**groups) == []


def test_who_shares_a_card_and_declares_no_cap_borrows_nothing() -> None:
    said = warned(batch={}, gpu_group={"name": "gpu-0", "share_ratio": 0.5, "batch": 32})
    assert any("so nothing says how far this engine can borrow" in text for text in said)


def test_advice_without_a_count_to_keep_is_warned_of() -> None:
    assert "declare target.name" in " ".join(warned(mode="advisory"))
    assert warned(mode="advisory", target={"name": "vllm"}) == []
    assert warned(mode="paused") == []


def test_a_hidden_value_is_not_shown() -> None:
    policy = Policy.model_validate(COMPLETE | {"capacity": {"sequences": 48}})
    (text,) = warnings_of(policy, {("capacity", "sequences")})
    assert "48" not in text
