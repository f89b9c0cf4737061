"""One round of questions to an initialised NVML: every GPU and MIG instance it lists, as readings.

What a device does not support is asked and left out, quietly: which calls fail differs by card, driver and container,
and is no fault. What says that a device or the whole driver is gone ends its reading, so that nothing frozen remains.

``nvml`` is the module ``pynvml`` (of the distribution nvidia-ml-py) or a stand-in for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from scaler.signals.gpu import GpuMemory, GpuReading, LostGpu, MigInstance, shares_memory

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


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found. ``notes`` are about what a device cannot tell, for a person."""

    readings: tuple[GpuReading, ...]
    lost: tuple[LostGpu, ...]
    notes: tuple[str, ...]


class NvmlDevices:
    """Reads the devices of an initialised NVML. Remembers, per device, that only the old memory call works, and which
    devices there were. Not for use by two threads.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._old_memory_call: set[str] = set()
        self._seen: dict[str, int] = {}
        self._notes: list[str] = []

    def forget_calls(self) -> None:
        """After NVML was initialised anew: another driver may answer, and answer other calls."""
        self._old_memory_call.clear()

    def read(self) -> Round:
        """Ask everything once. Raises the library's ``NVMLError`` if NVML itself, not one device, does not answer."""
        self._notes = []
        readings: list[GpuReading] = []
        answered: set[str] = set()
        failed: dict[int, Exception] = {}
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                uuid, found = self._device(index)
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
        reasons = {index: meaning(each) for index, each in failed.items()}
        lost = [
            LostGpu(uuid, index, reasons.pop(index, "no longer listed"))
            for uuid, index in sorted(self._seen.items(), key=lambda item: item[1])
            if uuid not in answered
        ]
        lost.extend(LostGpu("", index, reason) for index, reason in reasons.items())
        return Round(tuple(readings), tuple(lost), tuple(self._notes))

    def _device(self, index: int) -> tuple[str, list[GpuReading]]:
        """The UUID of one GPU, and its reading with those of its instances."""
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        self._seen[uuid] = index
        asked = _Questions(nvml)
        name = _text(asked(nvml.nvmlDeviceGetName, handle) or "")
        mode = asked(nvml.nvmlDeviceGetMigMode, handle)
        instances: list[GpuReading] = []
        if mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            instances = list(self._instances(asked, handle, index, uuid, name))
            self._notes.append(
                f"{uuid} is in MIG mode: NVML does not tell how busy its instances are; a DCGM exporter with "
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE does"
            )
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
        whole = GpuReading(
            uuid=uuid,
            name=name,
            indexes={"nvml": index},
            busy_ratio=None if rates is None or instances else _share(rates.gpu),
            memory=memory,
            unified_memory=unified,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            temperature_celsius=None if temperature is None else float(temperature),
        )
        return uuid, [whole, *instances]

    def _instances(self, asked: _Questions, parent: object, index: int, uuid: str, name: str) -> Iterator[GpuReading]:
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

    def _memory(self, asked: _Questions, handle: object, device: str) -> tuple[GpuMemory | None, bool]:
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


class _Questions:
    """Asks one device. The answer is None where it has none; what says that device or driver is gone passes through."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._gone = (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired, nvml.NVMLError_Uninitialized)
        self.refusal: Exception | None = None
        """Why the last question had no answer."""
        self.unknown_error: Exception | None = None
        """The last "unknown error": of all calls at once it means that access is lost, of one it means nothing."""

    def __call__(self, call: Callable[..., Any], *arguments: object) -> Any:
        self.refusal = None
        try:
            return call(*arguments)
        except self._gone:
            raise
        except self._nvml.NVMLError as error:
            self.refusal = error
            if isinstance(error, self._nvml.NVMLError_Unknown):
                self.unknown_error = error
            return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _share(percent: float) -> float | None:
    return percent / 100 if 0 <= percent <= 100 else None
