"""What GPU-hours cost: of what ran, and of what the scaler would have had, each hour at its own price."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from scaler.lab.backtest.study import Backtest


class Money(NamedTuple):
    """What was paid, in ``currency`` ("" where that was not told)."""

    ran: float
    ours: float
    currency: str


def money(backtest: Backtest) -> Money | None:
    """What both sides cost; None where no price is known. Hours for which none is declared cost nothing, as a warning
    of the policy says. What ran and was paid in no one moment (replicas that loaded, where the cluster did not tell)
    counts at the mean price.
    """
    setting, ran = backtest.setting, backtest.findings.ran
    if not setting.priced:
        return None
    # Windows begin and end on the minute.
    price = cache(lambda minute: setting.hour_price(60.0 * minute) or 0.0)
    hour = backtest.tick_seconds / 3600.0
    known = [
        (each, price((each.unix - backtest.tick_seconds) // 60.0)) for each in backtest.moments if each.kind != "gap"
    ]
    paid = sum((each.paid or 0.0) * cost for each, cost in known) * hour
    loading = ran.replica_hours - sum(each.paid or 0.0 for each, _ in known) * hour
    mean = sum(cost for _, cost in known) / max(1, len(known))
    asked = sum(each.asked * cost for each, cost in known) * hour
    gpus = setting.gpus_per_replica
    return Money((paid + loading * mean) * gpus, asked * gpus, setting.currency)
