"""What GPUs say of themselves, whoever read them (NVML or a DCGM exporter), and how that becomes signals. Pure.

The unit is what a process can be given: a whole GPU or one MIG instance. The same one may be read many times (an
exporter repeats a time-sliced GPU for every pod on it); it counts once, by its :attr:`~GpuReading.identity`.

A measurement that does not exist is None, never 0: utilisation of a MIG instance (NVML has none, DCGM's is a false 0),
memory of a GPU that shares the machine's. A signal that one GPU cannot give is not known of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Literal

from scaler.signals.model import Known, NotApplicable, Signal, Stale, Unknown
from scaler.signals.observation import EngineSample
from scaler.value import frozen

#: Parts that miss the total by more than this share of it are not one consistent reading.
MEMORY_TOLERANCE: Final = 0.05

#: Who counts the GPUs: NVML in PCI order, CUDA as ``CUDA_VISIBLE_DEVICES`` says, DCGM on the node.
Numbering = Literal["nvml", "cuda", "dcgm"]

PREALLOCATED: Final = NotApplicable("the engine pre-allocates VRAM; its KV-cache use is looked at instead")

NO_SM_ACTIVITY: Final = NotApplicable("NVML measures SM activity only of GPUs from Hopper on; a DCGM exporter may")

#: A GPU this busy runs kernels, so a profiling ratio of exactly 0 beside it is stuck.
_BUSY: Final = 0.10

# GPUs on one chip with the processor (DGX Spark, Jetson), by the driver's names for them.
_SHARES_MEMORY: Final = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson)\b", re.IGNORECASE)


def shares_memory(name: str) -> bool:
    """Whether a GPU of this name is known to have no memory of its own."""
    return _SHARES_MEMORY.search(name) is not None


def moving(ratio: float | None, busy: float | None) -> float | None:
    """A profiling ratio, unless it is stuck at 0 beside a GPU that is ``busy``. Rounding takes one a little over 1."""
    stuck = ratio == 0 and busy is not None and busy >= _BUSY
    return None if ratio is None or stuck else min(ratio, 1.0)


@frozen
class MigInstance:
    """A part of a GPU in MIG mode. Ids are the driver's own, unique within the GPU."""

    gpu_instance: str
    """What DCGM calls ``GPU_I_ID``."""
    compute_instance: str = "0"
    """0 unless the GPU instance itself is divided."""
    profile: str = ""
    """Its size, for example ``3g.20gb``."""
    uuid: str = ""
    """``MIG-...``; "" where the source does not say."""


@frozen
class GpuMemory:
    """Device memory, bytes. ``api`` is what it was read with: NVML's first call counts ``reserved`` (what the driver
    keeps for itself) as used, its second and newer DCGM apart; None where it is not told apart.
    """

    total_bytes: float
    used_bytes: float
    free_bytes: float
    reserved_bytes: float | None = None
    api: Literal["v1", "v2", "dcgm"] = "v2"

    @property
    def consistent(self) -> bool:
        """Whether used, reserved and free add up to the total, within :data:`MEMORY_TOLERANCE` of it."""
        parts = self.used_bytes + (self.reserved_bytes or 0.0) + self.free_bytes
        return self.total_bytes > 0 and abs(parts - self.total_bytes) <= MEMORY_TOLERANCE * self.total_bytes


@frozen
class GpuReading:
    """One GPU or MIG instance at one moment; None is "not measured"."""

    uuid: str
    """The physical GPU's, ``GPU-...``; of an instance its parent's."""
    instance: MigInstance | None = None
    name: str = ""
    indexes: Mapping[Numbering, int] = field(default_factory=dict)
    """Its number, by who counts. Of an instance the parent's, except ``cuda``."""
    busy_ratio: float | None = None
    """Share of time in which any kernel ran, 0..1."""
    sm_active_ratio: float | None = None
    """Share of cycles in which a streaming multiprocessor had work, mean over all of them, 0..1."""
    sm_occupancy_ratio: float | None = None
    """Resident warps over the most there can be, 0..1."""
    memory: GpuMemory | None = None
    unified_memory: bool = False
    """The GPU has no memory of its own, it shares the machine's: what is free there says nothing of the GPU."""
    unprofiled: bool = False
    """Its source has no counters of its SMs, whenever it is asked: NVML before Hopper."""
    xid: int | None = None
    """The *last* error code of the driver, for ever (0: none that the source knows). :func:`new_xids` tells news."""
    xid_count: int | None = None
    """How many errors there were since the source listens; None where it knows of the last one only."""
    power_watts: float | None = None
    temperature_celsius: float | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """(UUID of the GPU, instance in it or ""): equal for copies and for sources that see the same one."""
        if self.instance is None:
            return (self.uuid, "")
        whole = self.instance.compute_instance in ("", "0")
        suffix = "" if whole else f"/{self.instance.compute_instance}"
        return (self.uuid, self.instance.gpu_instance + suffix)

    @property
    def memory_free_ratio(self) -> float | None:
        """Free over total, 0..1; None unless the GPU's own memory was read and adds up."""
        if self.memory is None or self.unified_memory or not self.memory.consistent:
            return None
        return min(max(self.memory.free_bytes / self.memory.total_bytes, 0.0), 1.0)


@frozen
class LostGpu:
    """A GPU that was there and cannot be read; ``uuid`` is "" if it was lost before it ever told."""

    uuid: str
    nvml_index: int
    reason: str
    xid: int | None = None
    """The last error code that the driver gave for it; None: none, or not known."""


@frozen
class GpuTelemetry:
    """One round of reading this machine's GPUs, at monotonic time ``at``.

    ``reason`` says why there is none where ``up`` is False, in one of few fixed sentences (fit for a label). It is a
    normal state: most machines that run the scaler have no GPU. ``notes`` are for a person, to be told once.
    """

    up: bool
    at: float
    reason: str = ""
    readings: tuple[GpuReading, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    notes: tuple[str, ...] = ()


@frozen
class GpuSignals:
    """The canonical signals that GPUs give; the names are those of :data:`scaler.signals.model.CATALOG`."""

    gpu_busy_ratio: Signal[float]
    sm_active_ratio: Signal[float]
    gpu_memory_free_ratio: Signal[float]


def distinct(readings: Iterable[GpuReading]) -> tuple[GpuReading, ...]:
    """Each GPU or instance once, in the order first seen. A GPU with instances is not one beside them: left out.

    Of copies that disagree the busier one counts, and the memory with less free: the order of copies means nothing.
    """
    copies: dict[tuple[str, str], list[GpuReading]] = {}
    for reading in readings:
        copies.setdefault(reading.identity, []).append(reading)
    divided = {uuid for uuid, instance in copies if instance}
    return tuple(_merged(same) for (uuid, instance), same in copies.items() if instance or uuid not in divided)


def gpu_signals(telemetry: GpuTelemetry, *, preallocates: bool) -> GpuSignals:
    """The signals of all GPUs of ``telemetry`` together. ``preallocates``: the engine takes its VRAM at start (see
    :class:`scaler.signals.preset.Preset`), so that what is free says nothing about load.
    """
    gpus, at = distinct(telemetry.readings), telemetry.at
    if not gpus:
        nothing = Unknown(telemetry.reason or "no GPU is visible")
        return GpuSignals(nothing, nothing, PREALLOCATED if preallocates else nothing)
    return GpuSignals(
        gpu_busy_ratio=_mean([gpu.busy_ratio for gpu in gpus], at, "utilisation"),
        sm_active_ratio=NO_SM_ACTIVITY
        if all(gpu.unprofiled for gpu in gpus)
        else _mean([gpu.sm_active_ratio for gpu in gpus], at, "SM activity"),
        gpu_memory_free_ratio=PREALLOCATED if preallocates else _least_free(gpus, at),
    )


def attach_gpu(sample: EngineSample, readings: Iterable[GpuReading], *, preallocates: bool) -> EngineSample:
    """``sample`` with what the GPUs under its replica say, as the gauges ``gpu_busy``, ``sm_active`` and
    ``gpu_memory_free`` that the fold reads. Only what is known of every one of them is attached.
    """
    signals = gpu_signals(GpuTelemetry(True, sample.at, readings=tuple(readings)), preallocates=preallocates)
    gauges = {
        "gpu_busy": signals.gpu_busy_ratio,
        "sm_active": signals.sm_active_ratio,
        "gpu_memory_free": signals.gpu_memory_free_ratio,
    }
    known = {name: signal.value for name, signal in gauges.items() if isinstance(signal, Known)}
    return replace(sample, gauges={**sample.gauges, **known}) if known else sample


def new_xids(before: Iterable[GpuReading], after: Iterable[GpuReading]) -> dict[tuple[str, str], int]:
    """Identity → error code of every GPU that had an error between two rounds.

    What a first reading shows may be months old and is no news; the same code twice in a row shows only where they are
    counted.
    """
    known = {gpu.identity: gpu for gpu in distinct(before)}
    return {
        gpu.identity: gpu.xid
        for gpu in distinct(after)
        if gpu.xid and (earlier := known.get(gpu.identity)) is not None and _failed_since(earlier, gpu)
    }


def _failed_since(earlier: GpuReading, now: GpuReading) -> bool:
    if earlier.xid_count is not None and now.xid_count is not None:
        return now.xid_count > earlier.xid_count
    return earlier.xid not in (None, now.xid)


def _merged(copies: Sequence[GpuReading]) -> GpuReading:
    first = copies[0]
    if len(copies) == 1:
        return first
    memories = [copy.memory for copy in copies if copy.memory is not None]
    indexes: dict[Numbering, int] = {}
    for copy in copies:
        indexes = {**copy.indexes, **indexes}
    return replace(
        first,
        instance=max((copy.instance for copy in copies if copy.instance), key=lambda known: known.uuid, default=None),
        indexes=indexes,
        busy_ratio=_greatest(copy.busy_ratio for copy in copies),
        sm_active_ratio=_greatest(copy.sm_active_ratio for copy in copies),
        sm_occupancy_ratio=_greatest(copy.sm_occupancy_ratio for copy in copies),
        # One whole memory: parts of two would not add up. A broken one must not win by its false 0.
        memory=min(memories, key=lambda memory: (not memory.consistent, memory.free_bytes), default=None),
        unified_memory=any(copy.unified_memory for copy in copies),
        unprofiled=all(copy.unprofiled for copy in copies),
        xid=max((copy.xid for copy in copies if copy.xid is not None), default=None),
        xid_count=max((copy.xid_count for copy in copies if copy.xid_count is not None), default=None),
        power_watts=_greatest(copy.power_watts for copy in copies),
        temperature_celsius=_greatest(copy.temperature_celsius for copy in copies),
    )


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _mean(values: Sequence[float | None], at: float, quantity: str) -> Signal[float]:
    """The mean over all GPUs; where some do not tell, the others' mean holds, and as if the rest were 0 it raises."""
    known = [value for value in values if value is not None]
    if not known:
        return Unknown(f"no GPU gives its {quantity}")
    mean = sum(known) / len(known)
    return Known(mean, at) if len(known) == len(values) else Stale(mean, at, sum(known) / len(values))


def _least_free(gpus: Sequence[GpuReading], at: float) -> Signal[float]:
    known = [ratio for gpu in gpus if (ratio := gpu.memory_free_ratio) is not None]
    if len(known) == len(gpus):
        return Known(min(known), at)
    if known:
        return Stale(min(known), at)
    if all(gpu.unified_memory for gpu in gpus):
        return Unknown("unified memory: what is free belongs to the whole machine")
    return Unknown("no GPU gives its memory, or what it gives does not add up")
