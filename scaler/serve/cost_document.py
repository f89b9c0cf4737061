"""What a workload takes, costs and expects, as JSON of the API and as lines of ``explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scaler.control.season import SLOTS_KEPT
from scaler.policy.model import SLOTS_A_DAY
from scaler.serve.plain_json import finite
from scaler.serve.quantities import duration, number
from scaler.serve.snapshot import Snapshot

Document = dict[str, Any]


def season_document(snapshot: Snapshot) -> Document:
    """What is known of the season, and what it expects a cold start ahead."""
    season, expected, law = snapshot.decision.next_memory.season, snapshot.decision.season, snapshot.policy.season
    return {
        "period": season.period,
        "enabled": law.enabled,
        "zone": law.zone,
        "days_known": round(season.slots_known / SLOTS_A_DAY, 2),
        "days_kept": SLOTS_KEPT // SLOTS_A_DAY,
        "unexplained_ratio": finite(season.skill.unexplained),
        "expected_requests_per_second": None if expected is None else finite(expected.rate),
        "usual_requests_per_second": None if expected is None else finite(expected.usual),
        "ahead_seconds": snapshot.policy.replicas.cold_start_seconds,
    }


def cost_document(snapshot: Snapshot) -> Document:
    """What has been taken, at which price, and what a budget leaves."""
    policy, bill, utc = snapshot.policy, snapshot.decision.next_memory.bill, snapshot.decided_at.utc
    budget, window, price = snapshot.decision.budget, policy.price.open(utc), policy.hour_price(utc)
    gpus = snapshot.decision.targets.replicas * policy.gpu.per_replica
    return {
        "gpus": gpus,
        "gpus_per_replica": policy.gpu.per_replica,
        "gpu_hours": finite(bill.gpu_hours),
        "currency": policy.gpu.currency,
        "hour_price": price,
        "an_hour": None if price is None else finite(gpus * price),
        "total": finite(bill.money) if policy.priced else None,
        "window": None
        if window is None
        else {"start": f"{window.start:%H:%M}", "end": f"{window.end:%H:%M}", "zone": window.zone}
        | {"objective_factor": window.objective_factor},
        "budget": None
        if budget is None
        else {
            "gpu_hours": budget.gpu_hours,
            "per": policy.budget.per,
            "at_end": policy.budget.at_end,
            "period": bill.period,
            "spent_gpu_hours": finite(budget.spent),
            "reserved_gpu_hours": finite(bill.reserved),
            "ceiling": budget.ceiling,
            "floor_wins": budget.floor_wins,
        },
    }


def cost_lines(document: Document) -> Iterator[tuple[str, str]]:
    """(title, what is said) of the season, the price and the budget, where there is something to say."""
    if season := document.get("season"):
        yield "season", _season(season)
    if not (cost := document.get("cost")):
        return
    if cost["hour_price"] is not None:
        money = f"{number(cost['an_hour'])} {cost['currency']} an hour for {number(cost['gpus'])} GPUs"
        total = "" if cost["total"] is None else f", {number(cost['total'])} {cost['currency']} so far"
        yield "cost", f"{money}{total} ({number(cost['gpu_hours'])} GPU-hours)"
    if (window := cost["window"]) is not None:
        factor = window["objective_factor"]
        what = "" if factor == 1.0 else f": objectives times {number(factor)}"
        yield "price", f"window {window['start']} to {window['end']} {window['zone']} is open{what}"
    if (budget := cost["budget"]) is not None:
        yield "budget", _budget(budget)


def _season(season: Document) -> str:
    known = f"{number(season['days_known'])} of {season['days_kept']} days known"
    if season["period"] is None:
        return f"no pattern so far, {known}"
    ahead, usual = duration(season["ahead_seconds"]), season["usual_requests_per_second"]
    line = f"{season['period']}; nothing usual in {ahead}"
    if usual is not None:
        line = f"{season['period']}; {number(usual)} req/s usual in {ahead}"
        if season["expected_requests_per_second"] < 0.95 * usual:
            line += f", {number(season['expected_requests_per_second'])} as today goes"
    bought = "" if season["enabled"] else "; season.enabled is false: not bought"
    return f"{line} ({season['zone']}, {known}){bought}"


def _budget(budget: Document) -> str:
    line = f"{number(budget['spent_gpu_hours'])} of {number(budget['gpu_hours'])} GPU-hours of {budget['period']} spent"
    if budget["reserved_gpu_hours"]:
        line += f", {number(budget['reserved_gpu_hours'])} set aside for the floor"
    if budget["floor_wins"]:
        return f"{line}; nothing is left, and the floor stands"
    return line if budget["ceiling"] is None else f"{line}; allows up to {number(budget['ceiling'])} replicas now"
