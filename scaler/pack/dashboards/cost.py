"""What the workloads cost, what is usual at this hour, and what the budget leaves."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row
from scaler.pack.dashboards.queries import WORKLOAD, each, signal_or_zero

_HOURS = "$__range_s / 3600"
_GPUS = f"{each('desired_replicas')}\n* on ({WORKLOAD})\n{each('gpus_per_replica')}"
_MONEY = f"{_GPUS}\n* on ({WORKLOAD})\n{each('gpu_hour_price')}"


def _average(expr: str) -> str:
    return f"avg_over_time(({expr})[$__range:1m])"


def _most(expr: str) -> str:
    return f"max_over_time(({expr})[$__range:1m])"


def cost_row() -> Row:
    """A row of Overview."""
    return Row("Cost", (_saved(), _gpus(), _season(), _budget()))


def _saved() -> Panel:
    return Panel(
        "GPU-hours against always-on at peak size",
        "table",
        "short",
        "GPU-hours of the replicas decided in the time that is shown, and what as many as the most of them would have "
        "taken all of the time. Money is in the policy's gpu.currency, where gpu.hour_price is declared. loadtide "
        "savings counts the same, and a plain HPA beside it.",
        (
            Query(f"{_average(_GPUS)} * {_HOURS}", title="GPU-hours"),
            Query(f"{_most(_GPUS)} * {_HOURS}", title="Always on"),
            Query(f"1 - {_average(_GPUS)} / ({_most(_GPUS)} > 0)", title="Saved", unit="percentunit", optional=True),
            Query(f"{_average(_MONEY)} * {_HOURS}", title="Money", optional=True),
            Query(f"{_most(_GPUS)} * {_average(each('gpu_hour_price'))} * {_HOURS}", title="Money, always on",
                  optional=True),
        ),
        nothing="No workload",
        labels={"namespace": "Namespace", "workload": "Workload"},
    )  # fmt: skip


def _gpus() -> Panel:
    return Panel(
        "GPUs decided",
        "timeseries",
        "short",
        "Replicas decided, times the GPUs of one (gpu.per_replica).",
        (Query(_GPUS),),
        nothing="No workload",
        stairs=True,
        decimals=0,
    )


def _season() -> Panel:
    return Panel(
        "Arrivals, and what usually comes",
        "timeseries",
        "reqps",
        "Requests that arrive, and what usually comes a cold start later at this time of the week, as far as today "
        "follows it: replicas are bought for it. No line: no pattern shows, or nothing is due.",
        (
            Query(signal_or_zero("arrivals_per_second"), "{{namespace}}/{{workload}} arriving"),
            Query(each("season_requests_per_second"), "{{namespace}}/{{workload}} usual", dashed=True, optional=True),
        ),
        nothing="Scaled to zero",
    )


def _budget() -> Panel:
    spent, reserved, budget = (f"{each(f'budget{which}_gpu_seconds')} / 3600" for which in ("_spent", "_reserved", ""))
    return Panel(
        "Budget of GPU-hours",
        "timeseries",
        "h",
        "GPU-hours taken in the present day or month, those and what the floor takes until it ends, and the budget. "
        "Where the second meets the third, BudgetSpent warns, and a budget that caps goes down to the floor.",
        (
            Query(spent, "{{namespace}}/{{workload}} taken", optional=True),
            Query(f"{spent} + {reserved}", "{{namespace}}/{{workload}} with the floor's", optional=True),
            Query(budget, "{{namespace}}/{{workload}} budget", dashed=True, optional=True),
        ),
        nothing="No budget is declared",
    )
