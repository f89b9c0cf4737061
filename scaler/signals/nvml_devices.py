"""One round of questions to an initialised NVML: every GPU and MIG instance it lists, as readings.

What a device does not support is asked and left out, quietly: which calls fail differs by card, driver and container,
and is no fault. What says that a device or the whole driver is gone ends its reading, so that nothing frozen remains.

``nvml`` is the module ``pynvml`` (of the distribution nvidia-ml-py) or a stand-in for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from scaler.signals.gpu import GpuMemory, GpuReading, LostGpu, MigInstance, moving, shares_memory
from scaler.signals.nvml_profiling import Activity, Profiling
from scaler.signals.nvml_questions import Questions
from scaler.signals.nvml_xids import Xids
from scaler.value import frozen

_PROFILE: Final = re.compile(r"\bMIG (\S+)")

#: What NVML's errors mean for the person who must act, by the name of the library's class.
_MEANINGS: Final = {
    "NVMLError_LibraryNotFound": "no NVIDIA driver here (libnvidia-ml.so.1 is not found)",
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is not loaded",
    "NVMLError_LibRmVersionMismatch": (
        "the driver was changed under its library: recreate the container, or reboot the node"
    ),
    "NVMLError_NoPermission": "no permission to ask the NVIDIA driver",
    "NVMLError_Unknown": "access to the GPUs is lost or refused: a container must be recreated to get it back",
    "NVMLError_GpuIsLost": "the GPU has fallen off the bus: reset it, or reboot the node",
    "NVMLError_ResetRequired": "the GPU must be reset",
}


def meaning(error: Exception) -> str:
    """An error of NVML's in one of few fixed sentences, which say what to do where anything can be done."""
    return _MEANINGS.get(type(error).__name__) or f"NVML: {error}"


@frozen
class Round:
    """What one round found. ``notes`` are about what a device cannot tell, for a person."""

    readings: tuple[GpuReading, ...]
    lost: tuple[LostGpu, ...]
    notes: tuple[str, ...]


class NvmlDevices:
    """Reads the devices of an initialised NVML. Remembers, per device, that only the old memory call works, which
    devices there were, and what the next round is compared with. Not for use by two threads.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._profiling = Profiling(nvml)
        self._xids = Xids(nvml)
        self._old_memory_call: set[str] = set()
        self._seen: dict[str, int] = {}
        self._notes: list[str] = []

    def release(self) -> None:
        """Before NVML is ended: give back what it lent. Another driver may answer next, and answer other calls."""
        self._profiling.release()
        self._xids.release()
        self._old_memory_call.clear()

    def read(self, now: float) -> Round:
        """Ask everything once, at monotonic time ``now``. Raises the library's ``NVMLError`` if NVML itself, not one
        device, does not answer.
        """
        self._notes = []
        readings: list[GpuReading] = []
        answered: set[str] = set()
        failed: dict[int, Exception] = {}
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                uuid, found = self._device(index, now)
            except self._nvml.NVMLError_Uninitialized:
                raise
            except self._nvml.NVMLError_NoPermission:
                continue  # another container's GPU: listed, but not ours
            except self._nvml.NVMLError as error:
                failed[index] = error
            else:
                answered.add(uuid)
                readings.extend(found)
        for each in failed.values():
            if not answered and isinstance(each, self._nvml.NVMLError_Unknown):
                raise each  # of all at once it means that access is lost, not that the GPUs are
        self._xids.collect(answered)
        reasons = {index: meaning(each) for index, each in failed.items()}
        lost = [
            LostGpu(uuid, index, reasons.pop(index, "no longer listed"), self._last_xid(uuid))
            for uuid, index in sorted(self._seen.items(), key=lambda item: item[1])
            if uuid not in answered
        ]
        lost.extend(LostGpu("", index, reason) for index, reason in reasons.items())
        return Round(tuple(map(self._with_xid, readings)), tuple(lost), tuple(self._notes))

    def _last_xid(self, uuid: str) -> int | None:
        errors = self._xids.of(uuid)
        return errors.xid if errors is not None and errors.count else None

    def _with_xid(self, reading: GpuReading) -> GpuReading:
        errors = self._xids.of(reading.uuid, reading.instance.gpu_instance if reading.instance else None)
        return reading if errors is None else replace(reading, xid=errors.xid, xid_count=errors.count)

    def _device(self, index: int, now: float) -> tuple[str, list[GpuReading]]:
        """The UUID of one GPU, and its reading with those of its instances."""
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        self._seen[uuid] = index
        asked = Questions(nvml)
        name = _text(asked(nvml.nvmlDeviceGetName, handle) or "")
        mode = asked(nvml.nvmlDeviceGetMigMode, handle)
        instances: list[GpuReading] = []
        if mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            instances = list(self._instances(asked, handle, index, uuid, name))
            if not instances:
                return uuid, []
        # `memory` of the rates is left alone: it is the time its controller was busy, and a constant 0 where shared.
        rates = asked(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory, unsupported = self._memory(asked, handle, uuid)
        milliwatts = asked(nvml.nvmlDeviceGetPowerUsage, handle)
        temperature = asked(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        if rates is None and memory is None and milliwatts is None and temperature is None and asked.unknown_error:
            raise asked.unknown_error
        unified = not instances and (unsupported or shares_memory(name))
        if unified:
            self._notes.append(f"{uuid} ({name}) shares the machine's memory: no rule acts on its free memory")
        busy = None if rates is None or instances else _share(rates.gpu)
        # Last of all: on some drivers what is asked after the counters of an instance fails.
        self._xids.listen(asked, handle, uuid)
        profiled = self._profiling.supports(asked, handle, uuid)
        activity = Activity()
        if instances:
            instances = list(self._measured(asked, handle, instances, now))
        elif profiled:
            activity = self._profiling.measure(asked, handle, uuid, now)
        whole = GpuReading(
            uuid=uuid,
            name=name,
            indexes={"nvml": index},
            busy_ratio=busy,
            sm_active_ratio=moving(activity.sm_active_ratio, busy),
            sm_occupancy_ratio=moving(activity.sm_occupancy_ratio, busy),
            unprofiled=not profiled,
            memory=memory,
            unified_memory=unified,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            temperature_celsius=None if temperature is None else float(temperature),
        )
        return uuid, [whole, *instances]

    def _instances(self, asked: Questions, parent: object, index: int, uuid: str, name: str) -> Iterator[GpuReading]:
        """The MIG instances of one GPU. Their places have gaps: an instance that is destroyed leaves one."""
        nvml = self._nvml
        for place in range(asked(nvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
            handle = asked(nvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, place)
            if handle is None:
                continue
            own_uuid = _text(asked(nvml.nvmlDeviceGetUUID, handle) or "")
            gpu_instance = asked(nvml.nvmlDeviceGetGpuInstanceId, handle)
            own_name = _text(asked(nvml.nvmlDeviceGetName, handle) or "")
            profile = _PROFILE.search(own_name)
            memory, _ = self._memory(asked, handle, own_uuid or f"{uuid}/{place}")
            yield GpuReading(
                uuid=uuid,
                instance=MigInstance(
                    gpu_instance=f"place {place}" if gpu_instance is None else str(gpu_instance),
                    compute_instance=str(asked(nvml.nvmlDeviceGetComputeInstanceId, handle) or 0),
                    profile=profile[1] if profile else "",
                    uuid=own_uuid,
                ),
                name=own_name or name,
                indexes={"nvml": index},
                memory=memory,
            )

    def _measured(
        self, asked: Questions, parent: object, instances: list[GpuReading], now: float
    ) -> Iterable[GpuReading]:
        """The instances with how busy they are, as far as that can be told: of a GPU instance, not of its parts."""
        uuid = instances[0].uuid
        if not self._profiling.supports(asked, parent, uuid):
            self._notes.append(
                f"{uuid} is in MIG mode: NVML does not tell how busy its instances are; a DCGM exporter with "
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE does"
            )
            yield from (replace(reading, unprofiled=True) for reading in instances)
            return
        numbers = [reading.instance.gpu_instance if reading.instance else "" for reading in instances]
        parts = Counter(numbers)
        for number, reading in zip(numbers, instances, strict=True):
            if parts[number] > 1 or not number.isdigit():
                yield reading
                continue
            told = self._profiling.measure(asked, parent, uuid, now, number)
            yield replace(
                reading,
                busy_ratio=told.busy_ratio,
                sm_active_ratio=moving(told.sm_active_ratio, told.busy_ratio),
                sm_occupancy_ratio=moving(told.sm_occupancy_ratio, told.busy_ratio),
            )

    def _memory(self, asked: Questions, handle: object, device: str) -> tuple[GpuMemory | None, bool]:
        """The device's memory, and whether it says that it has none of its own.

        The second call tells reserved memory from used. Where it fails (old driver, WSL) or contradicts itself (a vGPU
        shim), the first one is asked, and from then on it alone. If that one fails too, the second's answer is given as
        it is: :attr:`GpuMemory.consistent` then says that no rule may act on it.
        """
        nvml = self._nvml
        new: GpuMemory | None = None
        if device not in self._old_memory_call:
            # The constant holds the structure's size and version; a literal 2 is refused.
            answer = asked(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
            if answer is not None and answer.total > 0:
                new = GpuMemory(answer.total, answer.used, answer.free, answer.reserved, "v2")
                if new.consistent:
                    return new, False
        answer = asked(nvml.nvmlDeviceGetMemoryInfo, handle)
        refused = answer is None and isinstance(asked.refusal, nvml.NVMLError_NotSupported)
        if answer is not None and answer.total > 0:
            self._old_memory_call.add(device)
            return GpuMemory(answer.total, answer.used, answer.free, api="v1"), False
        return new, new is None and (refused or answer is not None)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _share(percent: float) -> float | None:
    return percent / 100 if 0 <= percent <= 100 else None
