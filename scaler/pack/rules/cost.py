"""What is spent: the budget of GPU-hours, and that nothing of it is left but what the floor takes."""

from __future__ import annotations

from scaler.control.model import Code
from scaler.pack.model import Alert, Group, Recording
from scaler.pack.promql import by, last, own
from scaler.pack.series import BUDGET, BUDGET_RESERVED, BUDGET_SPENT, HELD_BACK, WORKLOAD


def cost_group() -> Group:
    """BudgetSpent, BudgetHoldsBack."""
    gauges = {
        BUDGET: "loadtide_budget_gpu_seconds",
        BUDGET_SPENT: "loadtide_budget_spent_gpu_seconds",
        BUDGET_RESERVED: "loadtide_budget_reserved_gpu_seconds",
    }
    return Group(
        "loadtide.cost",
        (
            *(
                Recording(record, f"{by('max', WORKLOAD, own(last(metric)))} / 3600")
                for record, metric in gauges.items()
            ),
            Alert(
                "BudgetSpent",
                f"{BUDGET_SPENT} > 0 and {BUDGET_SPENT} + {BUDGET_RESERVED} >= {BUDGET}",
                severity="warning",
                hold="5m",
                keep="15m",
                summary="The GPU-hours of {{ $labels.namespace }}/{{ $labels.workload }} are spent.",
                description=(
                    "{{ $value }} GPU-hours are taken in the present day or month, and with what the floor of "
                    "{{ $labels.workload }} still takes the budget is used up. With budget.at_end: cap there is no "
                    "replica above the floor until the next period begins."
                ),
            ),
            Alert(
                "BudgetHoldsBack",
                f'{HELD_BACK}{{code="{Code.BUDGET}"}} > 0',
                severity="warning",
                hold="15m",
                keep="5m",
                dashboard="decisions",
                summary="The budget of {{ $labels.namespace }}/{{ $labels.workload }} holds back what its load needs.",
                description=(
                    "For 15 minutes the load of {{ $labels.workload }} has asked for more replicas than its budget of "
                    "GPU-hours leaves. Requests queue, and objectives will not be met, until the period ends."
                ),
            ),
        ),
    )
