"""P95 against the objectives: engines' histograms where Prometheus has them, else loadtide's own measurement.

The bounds are the policy's, told as ``loadtide_objective_seconds``: what pages and what the scaler defends are one
number. Fewer requests than the least that make a P95 raise nothing. A bound that no replica can keep, however empty it
is, pages nobody for what an empty replica takes: who is woken could do nothing that night. It stays a warning, and
ObjectiveInfeasible says why. Several times that is another matter, a queue or a fault, and pages.
"""

from __future__ import annotations

from scaler.pack.model import Alert, Group, Recording, Severity
from scaler.pack.rules.scaler import MINIMUM_REQUESTS
from scaler.pack.series import (
    BEYOND_BUCKETS,
    BUCKETS_5M,
    EMPTY_P95,
    INFEASIBLE,
    LATENCY_P95,
    MODEL,
    OBJECTIVE,
    OBJECTIVE_SECONDS,
    OWN_P95,
)

LEVEL = f"{MODEL}, objective"
#: So many times an empty replica's P95 is critical, whatever was declared: what is declared for it pages no more. As
#: the presets have it: the objective is twice what an empty engine takes, the critical bound twice that.
CRITICAL_FACTOR = 4


def latency_group() -> Group:
    """P95 now, the share of requests that no finite bucket holds, and their alerts."""
    counted = f'sum by ({LEVEL}) ({BUCKETS_5M}{{le="+Inf"}})'
    p95 = f"histogram_quantile(0.95, sum by ({LEVEL}, le) ({BUCKETS_5M}))\nand\n{counted} >= {MINIMUM_REQUESTS}"
    # The greatest finite cumulative bucket, whatever its bound is.
    finite = f'max by ({LEVEL}) (sum by ({LEVEL}, le) ({BUCKETS_5M}{{le!="+Inf"}}))'
    return Group(
        "loadtide.latency",
        (
            Recording(LATENCY_P95, f"(\n{p95}\n)\nor on ({OBJECTIVE})\n{OWN_P95}"),
            Recording(BEYOND_BUCKETS, f"(({counted} >= {MINIMUM_REQUESTS}) - {finite}) / {counted}"),
            _above("LatencyP95Critical", "critical", hold="2m", keep="5m", but="unless"),
            _above(
                "LatencyP95Critical",
                "critical",
                hold="2m",
                keep="5m",
                but="and",
                severity="warning",
                more=" Even nearly empty replicas take longer than that bound leaves room for, and this is less than "
                f"{CRITICAL_FACTOR} times as long as they do: nobody is paged.",
            ),
            _above("LatencyP95High", "warning", hold="10m", keep="10m"),
            Alert(
                "LatencyBeyondBuckets",
                f"{BEYOND_BUCKETS} > 0.05",
                severity="warning",
                hold="10m",
                summary="P95 of {{ $labels.namespace }}/{{ $labels.workload }} is beyond the engine's buckets.",
                description=(
                    "{{ $value | humanizePercentage }} of the requests have a {{ $labels.objective }} over the last "
                    "finite bucket of the engine's histogram: how slow they are cannot be told, only that they are."
                ),
            ),
            Alert(
                "ObjectiveInfeasible",
                f"{INFEASIBLE} > 0",
                severity="warning",
                hold="30m",
                keep="10m",
                summary="No replica of {{ $labels.namespace }}/{{ $labels.workload }} can keep its "
                "{{ $labels.objective }} objective.",
                description=(
                    "Even nearly empty replicas of {{ $labels.workload }} take longer than its {{ $labels.bound }} "
                    "bound on {{ $labels.objective }} leaves room for. It buys nothing, and is broken at any load."
                ),
            ),
        ),
    )


def as_empty(latency: str, bound: str) -> str:
    """To stand behind ``and`` or ``unless``: where no replica can keep this bound, and ``latency`` is not so much
    longer that something else must have come on top.
    """
    kept_by_none = f'{latency}\nand on ({OBJECTIVE})\n({INFEASIBLE}{{bound="{bound}"}} > 0)'
    much_longer = f"{latency}\n> on ({OBJECTIVE}) group_left ()\n({CRITICAL_FACTOR} * {EMPTY_P95})"
    return f"(\n{kept_by_none}\nunless\n({much_longer})\n)"


def _above(
    name: str, bound: Severity, *, hold: str, keep: str, but: str = "", severity: Severity | None = None, more: str = ""
) -> Alert:
    """P95 over a bound; ``but`` says what of it: ``and`` only what empty replicas take too, ``unless`` all but that.
    ``severity`` is the bound's unless given.
    """
    over = f'{LATENCY_P95}\n> on ({OBJECTIVE}) group_left ()\n{OBJECTIVE_SECONDS}{{bound="{bound}"}}'
    return Alert(
        name,
        f"({over})\n{but} {as_empty(LATENCY_P95, bound)}" if but else over,
        severity=severity or bound,
        hold=hold,
        keep=keep,
        summary=f"P95 {{{{ $labels.objective }}}} of {{{{ $labels.namespace }}}}/{{{{ $labels.workload }}}} is "
        f"{{{{ $value | humanizeDuration }}}}, over its {bound} bound.",
        description=(
            f"The {{{{ $labels.objective }}}} that 95 % of the requests of {{{{ $labels.workload }}}} stay within is "
            f"{{{{ $value | humanizeDuration }}}}, longer than the {bound} bound of its policy.{more}"
        ),
    )
