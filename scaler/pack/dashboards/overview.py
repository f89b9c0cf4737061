"""Overview: is the promise kept, what is asked, what is there, and what does the scaler make of it."""

from __future__ import annotations

from scaler.pack.dashboards.cost import cost_row
from scaler.pack.dashboards.model import Dashboard, Panel, Query, Row, Step
from scaler.pack.dashboards.promise import promise_row
from scaler.pack.dashboards.queries import (
    VARIABLES,
    WORKLOAD,
    chosen,
    chosen_model,
    each,
    firing,
    marks,
    signal,
    signal_or_zero,
)
from scaler.pack.dashboards.resources import KV_HEADROOM_LOW, KV_HEADROOM_NONE, resource_rows
from scaler.pack.dashboards.rungs import rungs_row
from scaler.pack.dashboards.words import STATES, ZERO_REPLICAS, state
from scaler.pack.promql import by
from scaler.pack.series import KV, REQUESTS, RUNNING, WAITING

_GONE = "Scaled to zero"
_MODEL = "{{namespace}}/{{workload}} {{model_name}}"


def overview(alerts: tuple[str, ...]) -> Dashboard:
    """The dashboard; ``alerts`` are the names of our alerts."""
    return Dashboard(
        "loadtide-overview",
        "loadtide / Overview",
        "Latency against its objectives, demand, memory, batch and replicas of every workload that loadtide scales.",
        VARIABLES,
        marks(alerts),
        (
            Row("Now", _now(alerts)),
            promise_row(),
            Row("Demand", _demand()),
            *resource_rows(),
            rungs_row(),
            cost_row(),
            Row("Engines, by model (the rule pack's recorded series)", _engines()),
        ),
    )


def _now(alerts: tuple[str, ...]) -> tuple[Panel, ...]:
    table = Panel(
        "Workloads",
        "table",
        "short",
        "Every workload that is chosen above, as of its last tick. No batch size: the engine keeps its own setting. No "
        "ceiling: the policy declares none.",
        (
            Query(state(), title="State", words=STATES),
            Query(each("ready_replicas"), title="Ready", words=ZERO_REPLICAS),
            Query(each("desired_replicas"), title="Desired"),
            Query(each("replicas_ceiling"), title="Ceiling", optional=True),
            Query(each("target_batch_size"), title="Target batch"),
            Query(signal_or_zero("running"), title="Running"),
            Query(signal_or_zero("waiting"), title="Waiting"),
            Query(each("utilisation_ratio"), title="Load ÷ capacity", unit="percentunit"),
            Query(by("min", WORKLOAD, chosen("loadtide_seconds_since_tick")), title="Age", unit="s"),
        ),
        nothing="–",
        width=18,
        labels={"namespace": "Namespace", "workload": "Workload"},
    )
    fire = Panel(
        "Firing alerts",
        "stat",
        "short",
        "Our alerts that fire now, by severity. A critical one pages a person; its runbook is linked in the page.",
        tuple(
            Query(f"count({firing(alerts, f'severity={severity}')}) or vector(0)", severity.strip('"'))
            for severity in ('"critical"', '"warning"')
        ),
        nothing="0",
        width=6,
        steps=(Step(None, "green"), Step(1, "red")),
        needs="rules",
    )
    timeline = Panel(
        "Load state",
        "state-timeline",
        "short",
        "In which load state each workload was. `unknown` and `stalled`: loadtide cannot, or must not, judge.",
        (Query(state()),),
        nothing="No workload",
        width=24,
        words=STATES,
        minimum=None,
    )
    return table, fire, timeline


def _demand() -> tuple[Panel, ...]:
    return (
        Panel(
            "Requests per second",
            "timeseries",
            "reqps",
            "Requests that arrive at the engines and that they finish, over the policy's window. Without a replica "
            "none arrives: what waits at the gateway is beside.",
            (
                Query(signal_or_zero("arrivals_per_second"), "{{namespace}}/{{workload}} arriving"),
                Query(signal_or_zero("finished_per_second"), "{{namespace}}/{{workload}} finished"),
            ),
            nothing=_GONE,
        ),
        Panel(
            "Waiting and running",
            "timeseries",
            "short",
            "Requests in the engines' batches, requests queued in the engines, and requests held at the gateway for "
            "want of a replica (only where a gateway reports them).",
            (
                Query(signal_or_zero("running"), "{{namespace}}/{{workload}} running"),
                Query(signal_or_zero("waiting"), "{{namespace}}/{{workload}} waiting"),
                Query(signal("pending"), "{{namespace}}/{{workload}} at the gateway", optional=True),
            ),
            nothing=_GONE,
            decimals=0,
        ),
    )


def _engines() -> tuple[Panel, ...]:
    return (
        Panel(
            "Requests finished per second",
            "timeseries",
            "reqps",
            "By model, from the engines' own counters, whatever the engine and its version call them.",
            (Query(f"sum without (engine) ({chosen_model(REQUESTS)})", _MODEL),),
            nothing=_GONE,
            width=8,
            needs="rules",
        ),
        Panel(
            "Requests in each replica",
            "timeseries",
            "short",
            "Running and waiting, by pod. One pod far from the others: a replica that the balancer starves or drowns.",
            (
                Query(f"sum without (engine) ({chosen(RUNNING)})", "{{pod}} running"),
                Query(f"sum without (engine) ({chosen(WAITING)})", "{{pod}} waiting"),
            ),
            nothing=_GONE,
            width=8,
            decimals=0,
            needs="rules",
        ),
        Panel(
            "KV-cache use",
            "timeseries",
            "percentunit",
            "What KvCacheHeadroomLow (0.9) and KvExhausted (0.98) compare: the fullest engine of each model. A ratio "
            "is never summed.",
            (Query(chosen_model(KV), _MODEL),),
            nothing=_GONE,
            width=8,
            steps=(Step(None, "green"), Step(1 - KV_HEADROOM_LOW, "orange"), Step(1 - KV_HEADROOM_NONE, "red")),
            maximum=1.0,
            needs="rules",
        ),
    )
