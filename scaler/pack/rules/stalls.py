"""Replicas with work and no progress: an engine that hangs keeps its gauges, and may look merely busy (vllm#22545)."""

from __future__ import annotations

from scaler.pack.model import Alert, Group, Recording
from scaler.pack.promql import GAUGE_WINDOW, replaced
from scaler.pack.series import OWN_READY, POD, PROGRESS, RUNNING, SIGNAL, STALLED, WAITING, WORKLOAD


def stalls_group() -> Group:
    """Which replicas are stalled; ReplicaStalled and WorkloadStalled."""
    work = "\nor\n".join(
        replaced(f"min_over_time({record}[{GAUGE_WINDOW}])", "part", part, "", "")
        for record, part in ((RUNNING, "running"), (WAITING, "waiting"))
    )
    own = f'max by ({WORKLOAD}) ({SIGNAL}{{signal="stalled_replicas"}}) > 0'
    return Group(
        "loadtide.stalls",
        (
            # 1 for a replica that had work all the time and moved nothing, 0 for the others. Of one whose counters
            # were not read twice nothing is said.
            Recording(
                STALLED,
                f"(sum by ({POD}) (\n{work}\n) > bool 0)\n* on ({POD})\n(sum by ({POD}) ({PROGRESS}) == bool 0)",
            ),
            Alert(
                "ReplicaStalled",
                f"{STALLED} == 1\nor on ({WORKLOAD})\n{own}",
                severity="warning",
                hold="1m",
                keep=GAUGE_WINDOW,
                summary="{{ $labels.namespace }}/{{ $labels.workload }} has a replica with work and no progress.",
                description=(
                    "{{ if $labels.pod }}{{ $labels.pod }}{{ else }}{{ $value }} of its replicas{{ end }} had requests "
                    "for two minutes and computed nothing. loadtide does not count what it reports, neither for more "
                    "replicas nor for fewer."
                ),
            ),
            Alert(
                "WorkloadStalled",
                f"min by ({WORKLOAD}) ({STALLED}) == 1\n"
                f"or on ({WORKLOAD})\n({own} and on ({WORKLOAD}) {OWN_READY} == 0)",
                severity="critical",
                hold="1m",
                keep=GAUGE_WINDOW,
                summary="Every replica of {{ $labels.namespace }}/{{ $labels.workload }} has work and none progresses.",
                description=(
                    "{{ $labels.workload }} answers nobody: each of its replicas had requests for two minutes and "
                    "computed nothing. loadtide holds everything as it is; a restart is a person's decision."
                ),
            ),
        ),
    )
