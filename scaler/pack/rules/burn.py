"""How fast the latency budget burns, over several windows (Google's SRE workbook, chapter 5).

The objective is a P95: 5 % of the requests may be slower. Burning the budget 14.4 times too fast means that 72 % are,
and that says of the P28 what P95 says of 5 %: the share over the objective exceeds s exactly where the quantile 1 - s
does. So a quantile is compared with the objective, whatever the histogram's bounds are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from scaler.pack.model import Alert, Group, Recording, Severity
from scaler.pack.rules.latency import LEVEL, as_empty
from scaler.pack.rules.scaler import MINIMUM_REQUESTS
from scaler.pack.series import BUCKETS_1H, BUCKETS_5M, OBJECTIVE, OBJECTIVE_SECONDS

BUDGET = 0.05


class Burn(NamedTuple):
    """One pair of windows: the budget burns at ``factor`` times its rate in the long one, and still in the short."""

    severity: Severity
    long: str
    short: str
    factor: float
    hold: str


FAST = (Burn("critical", "1h", "5m", 14.4, "2m"),)
SLOW = (
    Burn("critical", "6h", "30m", 6.0, "15m"),
    Burn("warning", "1d", "2h", 3.0, "1h"),
    Burn("warning", "3d", "6h", 1.0, "3h"),
)

#: What each window is summed up from: increases that lie end to end in it. A range is one minute short of its window,
#: because before Prometheus 3 both its ends belong to it, and it would hold one increase too many.
_PIECES = {
    "5m": BUCKETS_5M,
    "30m": f"sum_over_time({BUCKETS_5M}SELECTED[29m:5m])",
    "1h": f"sum_over_time({BUCKETS_5M}SELECTED[59m:5m])",
    "2h": f"sum_over_time({BUCKETS_5M}SELECTED[119m:5m])",
    "6h": f"sum_over_time({BUCKETS_5M}SELECTED[359m:5m])",
    "1d": f"sum_over_time({BUCKETS_1H}SELECTED[1439m:1h])",
    "3d": f"sum_over_time({BUCKETS_1H}SELECTED[4319m:1h])",
}


def burn_groups() -> tuple[Group, ...]:
    """LatencyBudgetBurn, for the four pairs of windows. The long ones cost most and hurry least."""
    hourly = Recording(BUCKETS_1H, f"sum_over_time({BUCKETS_5M}[59m:5m])")
    return (
        Group("loadtide.budget", tuple(rule for burn in FAST for rule in _rules(burn))),
        Group("loadtide.budget.slow", (hourly, *(rule for burn in SLOW for rule in _rules(burn))), interval="5m"),
    )


def _rules(burn: Burn) -> Iterable[Recording | Alert]:
    share = burn.factor * BUDGET
    records = {}
    for window in (burn.long, burn.short):
        records[window] = f"workload_model_name_objective:latency_seconds:p{100 * (1 - share):.0f}_increase{window}"
        yield Recording(records[window], _quantile(1 - share, window))
    over = (
        f'({records[window]} > on ({OBJECTIVE}) group_left () {OBJECTIVE_SECONDS}{{bound="warning"}})'
        for window in (burn.long, burn.short)
    )
    # A budget that no replica can keep burns at any load: a trend for a working day, and no page.
    but = f"\nunless {as_empty(records[burn.long], 'warning')}" if burn.severity == "critical" else ""
    yield Alert(
        "LatencyBudgetBurn",
        "\nand\n".join(over) + but,
        severity=burn.severity,
        hold=burn.hold,
        labels={"long_window": burn.long, "short_window": burn.short},
        summary="{{ $labels.namespace }}/{{ $labels.workload }} burns its {{ $labels.objective }} budget "
        f"{burn.factor:g} times too fast.",
        description=(
            f"Over {burn.long}, and still over {burn.short}, more than {share:.0%} of the requests have a "
            "{{ $labels.objective }} over the objective; 5% may. Even the fastest of them took "
            "{{ $value | humanizeDuration }}."
        ),
    )


def _quantile(q: float, window: str) -> str:
    pieces = _PIECES[window]
    each = pieces.replace("SELECTED", "")
    counted = pieces.replace("SELECTED", '{le="+Inf"}') if "SELECTED" in pieces else f'{pieces}{{le="+Inf"}}'
    return (
        f"histogram_quantile({q:g}, sum by ({LEVEL}, le) ({each}))\n"
        f"and\nsum by ({LEVEL}) ({counted}) >= {MINIMUM_REQUESTS}"
    )
