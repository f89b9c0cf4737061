"""Who sleeps, and how long a way up takes: from asleep, and from no replica at all."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row
from scaler.pack.dashboards.queries import WORKLOAD, each
from scaler.pack.dashboards.words import RUNGS

_NAMED = "{{namespace}}/{{workload}}"


def rungs_row() -> Row:
    """A row of Overview."""
    return Row("Asleep, awake, and the way up", _ways_up())


def _ways_up() -> tuple[Panel, ...]:
    asleep = each("rung", 'rung="asleep"')
    return (
        Panel(
            "Rung",
            "state-timeline",
            "short",
            "Where the replicas should be: awake, or asleep (the process lives, its model is off the GPU). At zero "
            "replicas it says nothing.",
            (Query(f"{asleep}\nand on ({WORKLOAD}) {each('desired_replicas')} > 0"),),
            nothing="Scaled to zero",
            words=RUNGS,
            minimum=None,
            width=8,
        ),
        Panel(
            "Awake and asleep",
            "timeseries",
            "short",
            "Replicas that serve, and those that sleep: these count as ready for KEDA, and serve once they are woken. "
            "Asleep although told to be awake for 5 minutes: WakeFailed.",
            (
                Query(f"{each('ready_replicas')}\n- on ({WORKLOAD}) {each('asleep_replicas')}", f"{_NAMED} awake"),
                Query(each("asleep_replicas"), f"{_NAMED} asleep"),
            ),
            nothing="No workload",
            decimals=0,
            stairs=True,
            width=8,
        ),
        Panel(
            "How long a way up takes",
            "timeseries",
            "s",
            "What the next replica is expected to take from being asked for to being ready (P95 as measured, else as "
            "declared); what was measured, on warm nodes and on new ones; and the last wake from sleep.",
            (
                Query(each("expected_cold_start_seconds"), f"{_NAMED} expected"),
                Query(
                    each("cold_start_seconds", labels=f"{WORKLOAD}, node, quantile"),
                    f"{_NAMED} {{{{node}}}} node, quantile {{{{quantile}}}}",
                    dashed=True,
                    optional=True,
                ),
                Query(each("wake_seconds", 'from="asleep"'), f"{_NAMED} last wake from sleep", optional=True),
            ),
            nothing="No workload",
            width=8,
        ),
    )
