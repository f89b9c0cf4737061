"""GPU metrics under the names, units and labels of a DCGM exporter, for nodes that have none.

So whatever reads a DCGM exporter reads this: ``gpu.dcgm_urls`` of a policy, our rules and dashboards, and others'. Only
what NVML measures is there: no profiling fields (SM activity), no XID. Names and labels are those that
:mod:`scaler.signals.dcgm` cites. A GPU shared by several containers has its series once for each, as with DCGM's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from scaler.agent.holders import Holders
from scaler.signals.gpu import GpuMemory, GpuReading, GpuTelemetry

_MIB: Final = 1024.0 * 1024.0


class _Field(NamedTuple):
    text: str
    value: Callable[[GpuReading], float | None]


def _of_memory(value: Callable[[GpuMemory], float | None]) -> Callable[[GpuReading], float | None]:
    def mib(reading: GpuReading) -> float | None:
        told = None if reading.memory is None or reading.unified_memory else value(reading.memory)
        return None if told is None else told / _MIB

    return mib


FIELDS: Final[Mapping[str, _Field]] = {
    "DCGM_FI_DEV_GPU_UTIL": _Field(
        "Share of time in which a kernel ran, percent.",
        lambda reading: None if reading.busy_ratio is None else reading.busy_ratio * 100.0,
    ),
    "DCGM_FI_DEV_FB_USED": _Field("GPU memory in use, MiB.", _of_memory(lambda memory: memory.used_bytes)),
    "DCGM_FI_DEV_FB_FREE": _Field("GPU memory free, MiB.", _of_memory(lambda memory: memory.free_bytes)),
    "DCGM_FI_DEV_FB_RESERVED": _Field(
        "GPU memory kept by the driver, MiB.", _of_memory(lambda memory: memory.reserved_bytes)
    ),
    "DCGM_FI_DEV_FB_TOTAL": _Field("GPU memory in all, MiB.", _of_memory(lambda memory: memory.total_bytes)),
    "DCGM_FI_DEV_POWER_USAGE": _Field("Power drawn, W.", lambda reading: reading.power_watts),
    "DCGM_FI_DEV_GPU_TEMP": _Field("Temperature, degrees Celsius.", lambda reading: reading.temperature_celsius),
}
LABELS: Final = (
    *("gpu", "UUID", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname"),
    *("namespace", "pod", "container"),
)


def gpu_families(telemetry: GpuTelemetry, holders: Holders, hostname: str) -> Iterator[Metric]:
    """Every field as a family; what a GPU does not measure has no sample."""
    for name, field in FIELDS.items():
        family = GaugeMetricFamily(name, field.text, labels=LABELS)
        for reading in telemetry.readings:
            value = field.value(reading)
            if value is not None:
                for labels in _labels(reading, holders, hostname):
                    family.add_metric(labels, value)
        yield family


def _labels(reading: GpuReading, holders: Holders, hostname: str) -> Iterator[list[str]]:
    index = reading.indexes.get("nvml")
    number = "" if index is None else str(index)
    instance = reading.instance
    device = [
        number,
        reading.uuid,
        f"nvidia{number}",
        reading.name,
        instance.profile if instance else "",
        instance.gpu_instance if instance else "",
        hostname,
    ]
    for holder in holders.get(reading.identity) or (None,):
        yield [*device, *(("", "", "") if holder is None else (holder.namespace, holder.pod, holder.container))]
