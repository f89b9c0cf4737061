"""A DCGM exporter's series as GPU readings: from its own page, or from a Prometheus that scraped it.

Names, units and labels are those of NVIDIA/dcgm-exporter (d5e5f510): ``etc/default-counters.csv`` for the fields
(memory in MiB, DEV utilisation in %, PROF ratios 0..1), ``internal/pkg/rendermetrics/render_metrics.go`` for ``UUID``,
``gpu``, ``modelName``, ``GPU_I_ID``, ``GPU_I_PROFILE``, ``internal/pkg/transformation/const.go`` for the pod's labels.
What makes it easy to misread:

- ``pod`` is the pod that holds the GPU on the exporter's own page, and the *exporter's* pod in a Prometheus that does
  not honour labels (the chart's default): the holder is then ``exported_pod``. So that one goes first.
- With time-slicing every series is repeated for each pod on the GPU. ``GPU_UTIL`` and ``FB_USED`` are then each pod's
  own part, beside the GPU's (``internal/pkg/transformation/process_metrics.go``): the greatest copy is the GPU's.
- ``GPU_UTIL`` of a MIG instance is absent or a 0 that nobody measured (dcgm-exporter#216, #430): the ratio
  ``GR_ENGINE_ACTIVE`` is its utilisation, or nothing is.
- The profiling fields can stick at 0 under load (dcgm-exporter#662): 0 beside a busy GPU is no measurement.
- ``XID_ERRORS`` is the last error for ever: see :func:`scaler.signals.gpu.new_xids`.
- Fields that a card lacks were exported as huge numbers ("blank" values of DCGM) by older exporters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from scaler.signals.exposition import parse
from scaler.signals.gpu import MEMORY_TOLERANCE, GpuMemory, GpuReading, MigInstance, moving, shares_memory
from scaler.signals.reading import STALE_AFTER_SECONDS
from scaler.value import frozen

_MIB: Final = 1024.0 * 1024.0


class _Field(NamedTuple):
    """How one DCGM field becomes one number of a GPU: which of its copies counts, and what can be no measurement."""

    copies: Literal["max", "min", "last"]
    scale: float
    largest: float


_RATIO: Final = _Field("max", 1.0, 1.01)
_MEMORY: Final = _Field("max", _MIB, 1e8)

#: The fields that are read, by the exporter's names for them.
FIELDS: Final[Mapping[str, _Field]] = {
    "DCGM_FI_DEV_GPU_UTIL": _Field("max", 0.01, 100.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _RATIO,
    "DCGM_FI_PROF_SM_ACTIVE": _RATIO,
    "DCGM_FI_PROF_SM_OCCUPANCY": _RATIO,
    "DCGM_FI_DEV_FB_USED": _MEMORY,
    "DCGM_FI_DEV_FB_FREE": _MEMORY._replace(copies="min"),
    "DCGM_FI_DEV_FB_RESERVED": _MEMORY,
    "DCGM_FI_DEV_FB_TOTAL": _MEMORY,
    "DCGM_FI_DEV_XID_ERRORS": _Field("last", 1.0, 1e6),
    "DCGM_FI_DEV_POWER_USAGE": _Field("max", 1.0, 1e5),
    "DCGM_FI_DEV_GPU_TEMP": _Field("max", 1.0, 1e3),
}


#: The labels that name the pod that holds a GPU, the surest first, and where its namespace stands beside them.
_HOLDERS: Final = (
    ("exported_pod", ("exported_namespace", "namespace")),
    ("pod_name", ("pod_namespace",)),  # exporters run with --use-old-namespace
    ("pod", ("namespace",)),
)


class Row(NamedTuple):
    """One value of one series, as a query of a Prometheus gives it; ``unix`` is the sample's own time, if known."""

    name: str
    labels: Mapping[str, str]
    value: float
    unix: float | None = None


class PodName(NamedTuple):
    """A pod. ``namespace`` "" stands for any."""

    namespace: str
    name: str


@frozen
class DcgmGpu:
    """One GPU or MIG instance, and the label sets of the series it was read from: they say whose it is."""

    reading: GpuReading
    series: tuple[Mapping[str, str], ...]

    @property
    def pods(self) -> frozenset[PodName]:
        """The pods that hold it, as the best of the labels tells that any of its series has: beside a series with
        ``exported_pod``, one without names the exporter's own pod. So does every one where the exporter knows no pod.
        """
        for label, namespaces in _HOLDERS:
            named = [labels for labels in self.series if labels.get(label)]
            if named:
                return frozenset(
                    PodName(next((labels[key] for key in namespaces if labels.get(key)), ""), labels[label])
                    for labels in named
                )
        return frozenset()


def read_text(body: str, now_unix: float | None = None) -> tuple[DcgmGpu, ...]:
    """Everything on an exporter's page. Samples with a time stamp of their own (a collector's on the way) long before
    ``now_unix`` (Unix seconds) are left out.

    Raises :class:`scaler.signals.exposition.ExpositionError` for a body that is none.
    """
    exposition = parse(body, FIELDS.__contains__)
    oldest = -math.inf if now_unix is None else now_unix - STALE_AFTER_SECONDS
    return read_rows(
        Row(name, sample.labels.values, sample.value, sample.unix)
        for name, samples in exposition.samples.items()
        for sample in samples
        if sample.unix is None or sample.unix >= oldest
    )


def read_rows(rows: Iterable[Row]) -> tuple[DcgmGpu, ...]:
    """Every GPU and instance in ``rows``, once each, however often it is repeated. Rows of other metrics, without a
    GPU's UUID, or with a value that cannot be one, are left out.
    """
    values: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        field = FIELDS.get(row.name)
        uuid = row.labels.get("UUID") or row.labels.get("uuid") or ""
        if field is not None and uuid and 0 <= row.value <= field.largest:
            identity = (uuid, row.labels.get("GPU_I_ID", ""))
            values.setdefault(identity, {}).setdefault(row.name, []).append(row)
    return tuple(_gpu(uuid, instance, fields) for (uuid, instance), fields in values.items())


def _gpu(uuid: str, instance: str, fields: Mapping[str, Sequence[Row]]) -> DcgmGpu:
    series = {tuple(sorted(row.labels.items())): row.labels for rows in fields.values() for row in rows}
    value = {name: _one(FIELDS[name], rows) for name, rows in fields.items()}
    labels = next(iter(series.values()))
    busy = None if instance else value.get("DCGM_FI_DEV_GPU_UTIL")
    active = moving(value.get("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), busy)
    index, xid = labels.get("gpu", ""), value.get("DCGM_FI_DEV_XID_ERRORS")
    reading = GpuReading(
        uuid=uuid,
        instance=MigInstance(
            instance, profile=labels.get("GPU_I_PROFILE", ""), uuid=labels.get("dra_mig_device_uuid", "")
        )
        if instance
        else None,
        name=labels.get("modelName", ""),
        indexes={"dcgm": int(index)} if index.isascii() and index.isdigit() and len(index) < 10 else {},
        busy_ratio=active if busy is None else busy,
        sm_active_ratio=moving(value.get("DCGM_FI_PROF_SM_ACTIVE"), busy),
        sm_occupancy_ratio=moving(value.get("DCGM_FI_PROF_SM_OCCUPANCY"), busy),
        memory=_memory(value),
        unified_memory=shares_memory(labels.get("modelName", "")),
        xid=None if xid is None else int(xid),
        power_watts=value.get("DCGM_FI_DEV_POWER_USAGE"),
        temperature_celsius=value.get("DCGM_FI_DEV_GPU_TEMP"),
    )
    return DcgmGpu(reading, tuple(series.values()))


def _one(field: _Field, rows: Sequence[Row]) -> float:
    match field.copies:
        case "last":
            # The error's code is a label too, so that Prometheus shows the old and the new series side by side.
            value = max(rows, key=lambda row: (row.unix or 0.0, row.value)).value
        case "max":
            value = max(row.value for row in rows)
        case "min":
            value = min(row.value for row in rows)
    return value * field.scale


def _memory(value: Mapping[str, float]) -> GpuMemory | None:
    """Used and free, and what is reserved: told apart by newer exporters, in some only as what misses the total, and of
    old ones (DCGM before 2.3) part of used.
    """
    used, free = value.get("DCGM_FI_DEV_FB_USED"), value.get("DCGM_FI_DEV_FB_FREE")
    reserved, total = value.get("DCGM_FI_DEV_FB_RESERVED"), value.get("DCGM_FI_DEV_FB_TOTAL")
    if used is None or free is None:
        return None
    if total is None:
        total = used + free + (reserved or 0.0)
    elif reserved is None and 0 < total - used - free <= MEMORY_TOLERANCE * total:
        reserved = total - used - free
    return GpuMemory(total, used, free, reserved, "dcgm") if total > 0 else None
