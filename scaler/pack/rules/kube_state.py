"""What kube-state-metrics says of the workloads that loadtide scales: ready replicas, restarts, and why."""

from __future__ import annotations

from scaler.pack.model import Alert, Group, Options, Recording
from scaler.pack.promql import by, last, placed, replaced
from scaler.pack.series import (
    DESIRED,
    KUBE_READY,
    KUBE_SEEN,
    OUT_OF_MEMORY,
    POD,
    RESTARTS,
    WORKLOAD,
)


def kube_state_group(options: Options) -> Group:
    """Replica counts, restarts, and KubeStateMetricsMissing."""
    ready = "\nor\n".join(
        by("max", WORKLOAD, replaced(placed(last(metric)), "workload", "$1", label, "(.+)"))
        for metric, label in (
            ("kube_deployment_status_replicas_ready", "deployment"),
            ("kube_statefulset_status_replicas_ready", "statefulset"),
        )
    )
    restarts = by("sum", f"{POD}, container", placed("increase(kube_pod_container_status_restarts_total[10m])"))
    killed = by(
        "max", f"{POD}, container", placed(last('kube_pod_container_status_last_terminated_reason{reason="OOMKilled"}'))
    )
    ours = f"\nand on ({WORKLOAD}) {DESIRED}"
    return Group(
        "loadtide.kube-state-metrics",
        (
            Recording(KUBE_SEEN, f"count({last('kube_pod_info')})"),
            Recording(KUBE_READY, f"({ready}){ours}"),
            Recording(RESTARTS, f"{restarts}{ours}"),
            Recording(OUT_OF_MEMORY, f"{killed}{ours}"),
            Alert(
                "KubeStateMetricsMissing",
                replaced(f"absent({KUBE_SEEN})", "namespace", options.namespace, "namespace", ""),
                severity="info",
                hold="15m",
                scope="scaler",
                summary="Prometheus has no series of kube-state-metrics.",
                description=(
                    "VramExhausted cannot see restarts, and ReplicasNotConverging knows only the replicas that "
                    "loadtide reads itself."
                ),
            ),
        ),
        source="kube-state-metrics",
    )
