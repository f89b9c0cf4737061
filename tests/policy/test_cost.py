"""Prices, budgets and the season as they are written: what is taken, and what is refused and how."""

from __future__ import annotations

import pytest

from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile

HOURS = 'days: mon-fri, start: "08:00", end: "20:00", zone: Europe/Berlin'
WRITTEN = f"""
workloads:
  chat/llama:
    gpu: {{hour_price: 2.5, currency: EUR, per_replica: 4}}
    season: {{zone: Europe/Berlin, quantile: 0.8}}
    budget: {{gpu_hours: 900, per: day, at_end: cap, zone: Europe/Berlin}}
    price:
      windows: [{{{HOURS}, objective_factor: 1.2, floor: 2, ceiling: 9}}]
"""


def test_a_file_declares_it_and_metadata_may_change_it() -> None:
    file = PolicyFile.parse("policy.yaml", WRITTEN)
    policy = file.resolve("chat/llama").policy
    assert (policy.gpu.hour_price, policy.gpu.currency, policy.gpu.per_replica) == (2.5, "EUR", 4)
    assert (policy.budget.gpu_hours, policy.budget.at_end, policy.season.quantile) == (900, "cap", 0.8)
    assert [(each.objective_factor, each.floor, each.ceiling) for each in policy.price.windows] == [(1.2, 2, 9)]
    changed = file.resolve("chat/llama", {"budgetGpuHours": "40", "gpuHourPrice": "3"}).policy
    assert (changed.budget.gpu_hours, changed.gpu.hour_price) == (40, 3)


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("per: day", "per: week", 'budget.per: "week" is not allowed; write one of day, month'),
        ("at_end: cap", "at_end: stop", "budget.at_end: "),
        ("gpu_hours: 900", "gpu_hours: 0", "budget.gpu_hours: 0 is not allowed; write a number above 0"),
        ("gpu_hours: 900", "gpu_hour: 900", 'did you mean "gpu_hours"?'),
        ("currency: EUR", "currency: euro", "gpu.currency: "),
        ("hour_price: 2.5", "hour_price: -1", "gpu.hour_price: -1 is not allowed; write a number from 0"),
        ("quantile: 0.8", "quantile: 0.2", "season.quantile: 0.2 is not allowed; write a number from 0.5 to 0.99"),
        ("season: {zone: Europe/Berlin", "season: {zone: Europe/Berln", "'Europe/Berln' is not an IANA time zone"),
        ("at_end: cap, zone: Europe/Berlin", "at_end: cap, zone: CEST2", "'CEST2' is not an IANA time zone"),
        ("objective_factor: 1.2", "objective_factor: 12", "price.windows[0].objective_factor: 12 is not allowed"),
        ("ceiling: 9", "ceiling: 1", "ceiling (1) is below floor (2)"),
        ('end: "20:00"', 'end: "08:00"', "start and end are both 08:00; a window must have a length"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(right: str, wrong: str, says: str) -> None:
    with pytest.raises(PolicyError) as refused:
        PolicyFile.parse("policy.yaml", WRITTEN.replace(right, wrong, 1))
    (text,) = str(refused.value).splitlines()
    assert text.startswith("policy.yaml:")
    assert says in text
