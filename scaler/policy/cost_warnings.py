"""What declared prices, budgets and seasons leave unsaid, or cannot keep."""

from __future__ import annotations

from collections.abc import Iterator

from scaler.policy.model import Policy

#: The shortest period of each kind, in hours: a day in which the clocks change, a February.
_SHORTEST_HOURS = {"day": 23.0, "month": 28 * 24.0}


def cost_warnings(policy: Policy) -> Iterator[str]:
    """Every warning about ``price``, ``budget``, ``gpu.hour_price`` and where a season is read from."""
    objectives = policy.objectives
    bounds = [getattr(objectives, name) for name in type(objectives).model_fields if name.endswith("_seconds")]
    for index, window in enumerate(policy.price.windows):
        if window.objective_factor != 1.0 and not any(bounds):
            yield (
                f"price.windows[{index}].objective_factor changes nothing, for no objective is declared; declare "
                "objectives.ttft_seconds and objectives.tpot_seconds"
            )
        if window.hour_price is not None and policy.gpu.hour_price is None:
            yield (
                f"price.windows[{index}].hour_price is the only price there is, so other hours cost nothing in every "
                "report; declare gpu.hour_price"
            )
        if (window.objective_factor, window.floor, window.ceiling, window.hour_price) == (1.0, 0, None, None):
            yield (
                f"price.windows[{index}] changes nothing; declare its objective_factor, floor, ceiling or hour_price"
            )
    if policy.season.source is not None and policy.season.query is None and not policy.prometheus.match:
        yield (
            "season.source is not asked, for nothing says which series are this workload's; write season.query, or the "
            "labels under prometheus.match"
        )
    if policy.season.query is not None and policy.season.source is None:
        yield "season.query is not used, for no server is asked; name one of sources: as season.source"
    yield from _budget(policy)


def _budget(policy: Policy) -> Iterator[str]:
    budget, least = policy.budget, max(policy.replicas.min, policy.warm.floor, 0 if policy.can_wake else 1)
    if budget.gpu_hours is None:
        if budget.at_end == "cap":
            yield "budget.at_end: cap is not used, for there is no budget; declare budget.gpu_hours"
        return
    taken = least * policy.gpu.per_replica * _SHORTEST_HOURS[budget.per]
    if taken > budget.gpu_hours:
        yield (
            f"the floor of {least} alone takes more than the budget in a {budget.per} ({taken:g} of "
            f"{budget.gpu_hours:g} GPU-hours), and a floor wins; lower warm.floor and replicas.min, or raise "
            "budget.gpu_hours"
        )
    if budget.at_end == "cap" and least == 0:
        yield (
            f"budget.at_end: cap with a floor of 0 takes the workload to zero until the {budget.per} ends once the "
            "budget is spent, whoever calls; declare warm.floor: 1 to keep one replica, or budget.at_end: warn"
        )
