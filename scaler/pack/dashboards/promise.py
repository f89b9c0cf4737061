"""The promise: P95 of each latency against its objective, how much of the time it was kept, and what the alerts see."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row, Step
from scaler.pack.dashboards.queries import chosen, chosen_model, each, p95
from scaler.pack.model import Recording
from scaler.pack.rules.burn import BUDGET, burn_groups
from scaler.pack.rules.latency import CRITICAL_FACTOR
from scaler.pack.series import EMPTY_P95, LATENCY_P95, OBJECTIVE_SECONDS

_MEANINGS = {
    "ttft": "the time from a request's arrival to its first token",
    "tpot": "the time between two output tokens",
    "e2e": "the time of a whole request",
}
_TITLES = {"ttft": "P95 time to first token", "tpot": "P95 time per output token", "e2e": "P95 end to end"}
_JUDGED = "namespace, workload, objective, bound"


def promise_row() -> Row:
    """The row of Overview that people look at first."""
    return Row("Latency and the promise", (*map(_latency, _TITLES), *_kept(), _burning()))


def _latency(objective: str) -> Panel:
    bounds = each("objective_seconds", f'objective="{objective}"', labels="namespace, workload, bound")
    return Panel(
        _TITLES[objective],
        "timeseries",
        "s",
        f"{_MEANINGS[objective].capitalize()} that 95 % of the requests stay within. A histogram tells an interval, so "
        "there are two lines: P95 lies between them. Beyond the engine's last bucket there is only the lower one. "
        "Dashed: the policy's objectives, which are the thresholds of LatencyP95High and LatencyP95Critical.",
        (
            Query(p95(objective, "high"), "{{namespace}}/{{workload}} at most"),
            Query(p95(objective, "low"), "{{namespace}}/{{workload}} at least"),
            Query(bounds, "{{namespace}}/{{workload}} {{bound}} objective", dashed=True),
        ),
        width=8,
    )


def _kept() -> tuple[Panel, ...]:
    """Of the time with a verdict. "Undecided" (too few requests, or a bucket too wide to tell) counts for neither."""
    met, breached = (
        f"avg_over_time(({each('objective_verdict', f'verdict={word}', labels=_JUDGED)})[$__range:1m])"
        for word in ('"met"', '"breached"')
    )
    judged = f"({met} + {breached}) > 0"
    named = "{{namespace}}/{{workload}} {{objective}} {{bound}}"
    return (
        Panel(
            "Attainment: time within the objective",
            "stat",
            "percentunit",
            "Of the time that is shown and in which there was traffic enough to judge: the share in which P95 kept "
            "within the objective.",
            (Query(f"{met} / ({judged})", named),),
            width=8,
            height=6,
            steps=(Step(None, "red"), Step(1 - BUDGET, "green")),
            maximum=1.0,
            needs_traffic=True,
        ),
        Panel(
            "Budget left",
            "stat",
            "percentunit",
            f"Of the {BUDGET:.0%} of that time in which P95 may be over its objective: the share not used up. Below "
            "zero the promise is broken for the time that is shown.",
            (Query(f"1 - {breached} / ({judged}) / {BUDGET}", named),),
            width=8,
            height=6,
            steps=(Step(None, "red"), Step(0, "orange"), Step(0.25, "green")),
            minimum=None,
            maximum=1.0,
            needs_traffic=True,
        ),
        Panel(
            "P95 that the alerts compare",
            "timeseries",
            "s",
            "The engines' histograms over 5 minutes where Prometheus has them, else loadtide's own P95; at least 20 "
            "requests. Dashed: the bounds of LatencyP95High and LatencyP95Critical; a critical bound that no replica "
            f"can keep pages from {CRITICAL_FACTOR} times what an empty replica takes.",
            (
                Query(chosen_model(LATENCY_P95), "{{namespace}}/{{workload}} {{objective}} {{model_name}}"),
                Query(chosen(OBJECTIVE_SECONDS), "{{namespace}}/{{workload}} {{objective}} {{bound}}", dashed=True),
                Query(
                    f"{CRITICAL_FACTOR} * {chosen(EMPTY_P95)}",
                    f"{CRITICAL_FACTOR} × {{{{namespace}}}}/{{{{workload}}}} {{{{objective}}}} of an empty replica",
                    dashed=True,
                    optional=True,
                ),
            ),
            width=8,
            height=6,
            needs="rules",
            needs_traffic=True,
        ),
    )


def _burning() -> Panel:
    objective = chosen(OBJECTIVE_SECONDS, 'bound="warning"')
    records = [rule.record for group in burn_groups() for rule in group.rules if isinstance(rule, Recording)]
    quantiles = [record for record in records if ":latency_seconds:p" in record]
    return Panel(
        "Budget burn",
        "timeseries",
        "percentunit",
        "What LatencyBudgetBurn compares: over each window, the quantile that must stay under the objective, as a "
        "share of it. Over 100 % in a long window and in its short one the alert fires. (A budget of 5 % burning 14.4 "
        "times too fast means that 72 % of the requests are over: that their P28 is.)",
        tuple(
            Query(
                f"{chosen_model(record)}\n/ on (namespace, workload, objective) group_left ()\n{objective}",
                f"{{{{namespace}}}}/{{{{workload}}}} {{{{objective}}}} {record.rpartition(':')[2].replace('_', ' ')}",
                optional=record.endswith("d"),  # the long windows are summed up from whole hours
            )
            for record in quantiles
        ),
        width=24,
        height=7,
        steps=(Step(None, "green"), Step(1, "red")),
        needs="rules",
        needs_traffic=True,
    )
