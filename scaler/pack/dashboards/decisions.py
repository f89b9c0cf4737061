"""Decisions: what was decided and why, on which signals, what holds it back, and whether the machinery works."""

from __future__ import annotations

from scaler.pack.dashboards.machinery import keda_row, machinery_row
from scaler.pack.dashboards.model import Dashboard, Panel, Query, Row, Step
from scaler.pack.dashboards.queries import (
    VARIABLES,
    changed,
    chosen,
    each,
    marks,
    signal,
)
from scaler.pack.dashboards.signals import signal_rows
from scaler.pack.dashboards.words import HELD
from scaler.pack.promql import by, replaced
from scaler.pack.series import DESIRED, TARGET_BATCH

#: Flapping warns above this many changes in this time.
CHANGES, CHANGES_WITHIN = 6, "30m"


def decisions(alerts: tuple[str, ...]) -> Dashboard:
    """The dashboard; ``alerts`` are the names of our alerts."""
    return Dashboard(
        "loadtide-decisions",
        "loadtide / Decisions",
        "What loadtide decided and why, the signals behind it, what was held back, and the calls that carry it.",
        VARIABLES,
        marks(alerts),
        (
            Row("Decisions", _decided()),
            Row("Replicas: decided, asked for, there", _replicas()),
            *signal_rows(),
            machinery_row(),
            keda_row(),
        ),
    )


def _decided() -> tuple[Panel, ...]:
    reasons = {
        "namespace": "Namespace",
        "workload": "Workload",
        "target": "Target",
        "direction": "Direction",
        "code": "Reason",
    }
    return (
        Panel(
            "Last decisions",
            "table",
            "dateTimeFromNow",
            "When each kind of decision was last taken in the time that is shown, to the minute, and for which reason. "
            "The values behind a decision are on loadtide's own page and in its log.",
            (
                Query(
                    f"max_over_time(timestamp({changed('1m')})[$__range:1m]) * 1000",
                    title="Last",
                    unit="dateTimeFromNow",
                ),
            ),
            nothing="Nothing was changed in the time that is shown",
            labels=reasons,
            newest_first="Last",
            empty_when_well=True,
        ),
        Panel(
            "Decisions by target, direction and reason",
            "timeseries",
            "short",
            "Changes decided in each interval of the graph, the first of its kind included.",
            (
                Query(
                    by("sum", "target, direction, code", changed("$__interval")),
                    "{{target}} {{direction}}: {{code}}",
                ),
            ),
            nothing="Nothing was changed in the time that is shown",
            bars=True,
            decimals=0,
            empty_when_well=True,
        ),
        Panel(
            "Held back",
            "state-timeline",
            "short",
            "What was wanted and not done, and what holds it: a cooldown, a settling batch, the way down's window or "
            "step, a floor or ceiling, doubt about a signal.",
            (
                Query(
                    each("suppressed", labels="namespace, workload, target, code"),
                    "{{namespace}}/{{workload}} {{target}}: {{code}}",
                ),
            ),
            nothing="Nothing is held back",
            words=HELD,
            minimum=None,
            empty_when_well=True,
        ),
        Panel(
            "Changes of replicas and batch in 30 minutes",
            "timeseries",
            "short",
            "Above 6, up and down, Flapping warns. A long climb in one direction is none.",
            (
                Query(f"changes({chosen(DESIRED)}[{CHANGES_WITHIN}])", "{{namespace}}/{{workload}} replicas"),
                Query(
                    f"changes({chosen(TARGET_BATCH)}[{CHANGES_WITHIN}])",
                    "{{namespace}}/{{workload}} batch",
                    optional=True,
                ),
            ),
            nothing="Nothing was changed in the time that is shown",
            decimals=0,
            steps=(Step(None, "green"), Step(CHANGES, "orange")),
            needs="rules",
        ),
    )


def _replicas() -> tuple[Panel, ...]:
    hpa = (
        'kube_horizontalpodautoscaler_status_desired_replicas{namespace=~"$namespace",'
        'horizontalpodautoscaler=~"keda-hpa-($workload)"}'
    )
    named = by(
        "max", "namespace, workload", replaced(hpa, "workload", "$1", "horizontalpodautoscaler", "keda-hpa-(.+)")
    )
    return (
        Panel(
            "Desired, HPA, ready",
            "timeseries",
            "short",
            "What loadtide decided, what the target is asked to have, and what is ready.",
            (
                Query(each("desired_replicas"), "{{namespace}}/{{workload}} decided"),
                Query(signal("asked_replicas"), "{{namespace}}/{{workload}} asked for", optional=True),
                Query(each("ready_replicas"), "{{namespace}}/{{workload}} ready"),
            ),
            nothing="No workload",
            decimals=0,
            stairs=True,
        ),
        Panel(
            "What the HPA wants",
            "timeseries",
            "short",
            "The HPA that KEDA makes for the ScaledObject (keda-hpa-NAME), from kube-state-metrics. Below decided for "
            "more than a sync: its behaviour policies or its tolerance hold it back. At zero the HPA is not consulted.",
            (Query(named),),
            nothing="No HPA of that name",
            decimals=0,
            stairs=True,
            needs="kube-state-metrics",
        ),
    )
