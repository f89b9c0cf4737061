"""Which GPUs a process may use: ``CUDA_VISIBLE_DEVICES`` and ``NVIDIA_VISIBLE_DEVICES`` against what NVML lists. Pure.

NVML ignores both variables and numbers GPUs by their place on the PCI bus, so logical GPU 0 may be NVML's 3. The rules
are CUDA's (https://docs.nvidia.com/cuda/cuda-programming-guide, "CUDA environment variables"): entries are numbers or
UUIDs, a UUID may be cut to any beginning that is unique, and the list ends at the first entry that is no GPU.
Where CUDA's answer is not certain (two GPUs begin alike, one stands twice), the answer here is none and a warning: the
utilisation of a wrong card is worse than no utilisation.

``NVIDIA_VISIBLE_DEVICES`` was obeyed by the container runtime before the process began: its numbers are the host's and
mean nothing inside. Only its words for "none" and its UUIDs (a privileged container sees every GPU) still tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from scaler.signals.gpu import GpuReading, distinct
from scaler.value import frozen

# Slurm writes NoDevFiles for a job without GPUs.
_NONE_WORDS: Final = frozenset({"", "-1", "void", "none", "nodevfiles"})
_INDEX: Final = re.compile(r"\d{1,9}", re.ASCII)
# Drivers before R470 named an instance by its parent and its two ids.
_OLD_MIG: Final = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/(\d+)", re.ASCII | re.IGNORECASE)


@frozen
class VisibleGpu:
    """One GPU as the process sees it; its logical number is ``reading.indexes["cuda"]``.

    ``parent_only``: an instance was meant, but only the GPU that it is a part of can be read. What that one measures
    is not the instance's.
    """

    reading: GpuReading
    parent_only: bool = False


@frozen
class VisibleDevices:
    """The GPUs in the process' own order, and what a person should know about how they were found."""

    gpus: tuple[VisibleGpu, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def readings(self) -> tuple[GpuReading, ...]:
        """What may be measured: all but those of which only the parent can be read."""
        return tuple(gpu.reading for gpu in self.gpus if not gpu.parent_only)


def visible_devices(
    gpus: Sequence[GpuReading],
    *,
    cuda: str | None,
    nvidia: str | None = None,
    device_order: str | None = None,
    mig_parents: Mapping[str, str] | None = None,
) -> VisibleDevices:
    """Resolve the two variables' values (None: unset) against all ``gpus`` that NVML lists, numbered in ``indexes``.

    ``device_order``: the value of ``CUDA_DEVICE_ORDER``; unless it is ``PCI_BUS_ID``, CUDA puts the fastest first, and
    its numbers are NVML's only where all GPUs are alike. ``mig_parents``: UUID of an instance → UUID of its GPU, for
    instances that NVML does not list. Never raises, whatever the variables hold.
    """
    if cuda is None:
        return _left_by_runtime(gpus, nvidia)
    text = cuda.strip()
    if text.lower() == "all":
        return _all(gpus)
    if text.lower() in _NONE_WORDS:
        return VisibleDevices()

    warnings: list[str] = []
    entries = [entry.strip() for entry in text.split(",")]
    found: list[VisibleGpu] = []
    for entry in entries:
        match = _resolved(entry, gpus, mig_parents or {})
        if isinstance(match, str):
            rest = f"; CUDA stops there, so {len(found)} of {len(entries)} entries count" if len(entries) > 1 else ""
            if entry != "-1":  # the documented way to end a list
                warnings.append(f"CUDA_VISIBLE_DEVICES: {entry[:80]!r} {match}{rest}")
            break
        found.append(match)
    if device_order != "PCI_BUS_ID" and len({gpu.name for gpu in gpus}) > 1 and any(map(_INDEX.fullmatch, entries)):
        hint = "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs by UUID"
        return VisibleDevices((), (f"the GPUs differ, so CUDA's numbers are not NVML's: none counts; {hint}",))
    if len({gpu.reading.identity for gpu in found}) < len(found):
        return VisibleDevices((), (f"CUDA_VISIBLE_DEVICES={text[:80]!r} names a GPU twice: none counts",))
    warnings.extend(
        f"only the whole GPU {gpu.reading.uuid} can be read, not the MIG instance that is used: it is not measured"
        for gpu in found
        if gpu.parent_only
    )
    return VisibleDevices(_numbered(found), tuple(warnings))


def _left_by_runtime(gpus: Sequence[GpuReading], nvidia: str | None) -> VisibleDevices:
    """What a container may have by ``NVIDIA_VISIBLE_DEVICES``. Empty is as unset: where it hides GPUs, the runtime gave
    the container none and NVML lists none.
    """
    words = [word.strip() for word in (nvidia or "").split(",")]
    if words != [""] and words[0].lower() in _NONE_WORDS:
        if not gpus or words[0].lower() != "void":
            return VisibleDevices()
        # Devices injected by CDI come with "void", to keep the older hook out (NVIDIA/nvidia-container-toolkit#395).
        hint = "if they were injected by CDI, set CUDA_VISIBLE_DEVICES=all for this process"
        return VisibleDevices((), (f"NVIDIA_VISIBLE_DEVICES=void, yet NVML lists GPUs: none counts; {hint}",))
    named = [_resolved(word, gpus, {}) for word in words if word.upper().startswith(("GPU-", "MIG-"))]
    allowed = {match.reading.identity for match in named if isinstance(match, VisibleGpu)}
    if len(allowed) < len(set(words)):  # numbers among them, or a UUID that NVML does not list: NVML knows better
        return _all(gpus)
    return _all([gpu for gpu in gpus if gpu.identity in allowed or (gpu.uuid, "") in allowed])


def _all(gpus: Sequence[GpuReading]) -> VisibleDevices:
    return VisibleDevices(_numbered([VisibleGpu(gpu) for gpu in distinct(gpus)]))


def _numbered(gpus: Sequence[VisibleGpu]) -> tuple[VisibleGpu, ...]:
    return tuple(
        replace(gpu, reading=replace(gpu.reading, indexes={**gpu.reading.indexes, "cuda": number}))
        for number, gpu in enumerate(gpus)
    )


def _resolved(entry: str, gpus: Sequence[GpuReading], mig_parents: Mapping[str, str]) -> VisibleGpu | str:
    """The GPU that one entry means, or why it means none."""
    whole = [gpu for gpu in gpus if gpu.instance is None]
    if _INDEX.fullmatch(entry):
        index = int(entry)
        return _one([gpu for gpu in whole if gpu.indexes.get("nvml") == index], gpus)
    if entry.upper().startswith("GPU-"):
        return _one([gpu for gpu in whole if _begins(gpu.uuid, entry)], gpus)
    if entry.upper().startswith("MIG-"):
        return _instance(entry, gpus, mig_parents)
    return "is neither a number nor a UUID"


def _one(candidates: Sequence[GpuReading], gpus: Sequence[GpuReading]) -> VisibleGpu | str:
    if not candidates:
        return "is no GPU here"
    if len(candidates) > 1:
        return f"is ambiguous: {' and '.join(gpu.uuid for gpu in candidates)} begin so"
    gpu = candidates[0]
    instances = [other for other in gpus if other.instance is not None and other.uuid == gpu.uuid]
    # A GPU in MIG mode cannot be used as a whole; CUDA takes an instance, and which is only sure of a single one.
    return VisibleGpu(instances[0] if len(instances) == 1 else gpu, parent_only=len(instances) > 1)


def _instance(entry: str, gpus: Sequence[GpuReading], mig_parents: Mapping[str, str]) -> VisibleGpu | str:
    instances = [(gpu, gpu.instance) for gpu in gpus if gpu.instance is not None]
    old = _OLD_MIG.fullmatch(entry)
    if old is not None:
        ids, parent = (old[2], old[3]), old[1]
        found = [
            gpu
            for gpu, instance in instances
            if gpu.uuid.lower() == parent.lower() and (instance.gpu_instance, instance.compute_instance) == ids
        ]
    else:
        parent = mig_parents.get(entry, "")
        found = [gpu for gpu, instance in instances if instance.uuid and _begins(instance.uuid, entry)]
    if len(found) > 1:
        return f"is ambiguous: {len(found)} MIG instances begin so"
    if found:
        return VisibleGpu(found[0])
    whole = [gpu for gpu in gpus if gpu.instance is None and parent and gpu.uuid.lower() == parent.lower()]
    return VisibleGpu(whole[0], parent_only=True) if whole else "is no MIG instance here"


def _begins(uuid: str, beginning: str) -> bool:
    return uuid.lower().startswith(beginning.lower())
