"""GPUs as the DCGM exporter tells them, once each, by the pod that holds them; XID errors and missing telemetry.

One GPU is many series there: repeated for each pod that shares it, with the holder under ``exported_pod`` or ``pod``,
and without a holder whenever no pod runs on it. So values are taken per UUID and MIG instance, and who held a GPU is
remembered for a while: an XID often ends the very pod it hit.
"""

from __future__ import annotations

from scaler.pack.model import Alert, Group, Recording
from scaler.pack.promql import by, last, placed
from scaler.pack.series import (
    DESIRED,
    ENGINE_INFO,
    GPU,
    GPU_FREE,
    GPU_HELD,
    GPU_MEMORY,
    GPU_USED,
    GPU_XID,
    OWN_READY,
    WORKLOAD,
)

#: MiB. Exporters before 2024 wrote fields that a card lacks as huge numbers.
_LARGEST_MEMORY = 100_000_000


def dcgm_group() -> Group:
    """Memory shares and XIDs of each GPU; GpuXid and GpuMetricsMissing."""
    used, free, reserved = (last(f"DCGM_FI_DEV_FB_{field}") for field in ("USED", "FREE", "RESERVED"))
    most, least = by("max", GPU, placed(used)), by("min", GPU, placed(free))
    kept_back = by("max", GPU, placed(f"{reserved} < {_LARGEST_MEMORY}"))
    return Group(
        "loadtide.dcgm",
        (
            # Used and free miss the total by what is reserved, which older exporters do not tell.
            Recording(
                GPU_MEMORY,
                f"({most}\n+ {least}\n+ (\n{kept_back}\nor\n{least} * 0\n)) > 0 < {_LARGEST_MEMORY}",
            ),
            Recording(GPU_USED, f"{most}\n/ {GPU_MEMORY}"),
            Recording(GPU_FREE, f"{least}\n/ {GPU_MEMORY}"),
            # The code is a label too in newer exporters, so old and new stand side by side: the greatest moves on.
            Recording(GPU_XID, f"max by (UUID, GPU_I_ID) ({last('DCGM_FI_DEV_XID_ERRORS')})"),
            Recording(
                GPU_HELD,
                f"group by ({WORKLOAD}, UUID, GPU_I_ID) ({GPU_USED})\n"
                f"* on ({WORKLOAD}) group_left () group by ({WORKLOAD}) ({ENGINE_INFO})",
            ),
            *_alerts(),
        ),
        source="dcgm",
    )


def _alerts() -> tuple[Alert, ...]:
    # The field keeps the last error for ever: what counts is that it moved.
    changed = f"({GPU_XID} > 0 and changes({GPU_XID}[10m]) > 0)"
    return (
        Alert(
            "GpuXid",
            f"last_over_time({GPU_HELD}[30m])\n* on (UUID, GPU_I_ID) group_left ()\n{changed}",
            severity="warning",
            hold="0s",
            keep="30m",
            dashboard="gpu",
            summary="GPU of {{ $labels.namespace }}/{{ $labels.workload }} reported XID {{ $value }}.",
            description=(
                "The driver reported error XID {{ $value }} on {{ $labels.UUID }}, which serves or just served "
                "{{ $labels.workload }}."
            ),
        ),
        Alert(
            "GpuMetricsMissing",
            f"{OWN_READY} > 0\nunless on ({WORKLOAD}) {DESIRED} == 0\nunless on ({WORKLOAD}) {GPU_USED}",
            severity="warning",
            hold="15m",
            dashboard="gpu",
            summary="No GPU metrics of {{ $labels.namespace }}/{{ $labels.workload }}.",
            description=(
                "{{ $labels.workload }} has {{ $value }} ready replicas, and Prometheus has no DCGM series of a GPU "
                "that one of its pods holds. Alerts on GPU memory and XID errors are blind for it."
            ),
        ),
    )
