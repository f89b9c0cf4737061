"""A stand-in for the module ``pynvml``: its functions over GPUs that a test describes, raising its own errors.

What is not here (constants, error classes) is the real module's, so that a wrong name or constant fails here too.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

MIB = 1024**2
GIB = 1024**3


def error(name: str) -> Exception:
    """The library's error of this name: ``error("GpuIsLost")``."""
    raised: Exception = getattr(pynvml, f"NVMLError_{name}")()
    return raised


NOT_SUPPORTED = error("NotSupported")


def memory(total: float, used: float, free: float, reserved: float = 0) -> SimpleNamespace:
    """What a memory call answers, bytes. The first call's structure has no ``reserved``, and nobody reads it there."""
    return SimpleNamespace(total=total, used=used, free=free, reserved=reserved)


@dataclass
class FakeGpu:
    """A GPU or MIG instance. A value that is an exception is raised by the call that asks for it."""

    uuid: Any = "GPU-aaaa1111-0000-0000-0000-000000000000"
    name: Any = "NVIDIA H100 80GB HBM3"
    busy_percent: Any = 40
    memory_v1: Any = field(default_factory=lambda: memory(80 * GIB, 8 * GIB, 72 * GIB))
    memory_v2: Any = field(default_factory=lambda: memory(80 * GIB, 7 * GIB, 72 * GIB, GIB))
    milliwatts: Any = 250_000
    celsius: Any = 55
    mig_mode: Any = field(default_factory=lambda: NOT_SUPPORTED)
    instances: Mapping[int, FakeGpu] = field(default_factory=dict)
    gpu_instance: Any = field(default_factory=lambda: NOT_SUPPORTED)
    compute_instance: Any = 0
    handle: Any = None
    """An exception: what asking for the handle raises."""


def whole(number: int, **changed: Any) -> FakeGpu:
    """The GPU with this number, of its own UUID."""
    letter = "abcdefgh"[number]
    return FakeGpu(uuid=f"GPU-{letter * 4}{str(number + 1) * 4}-0000-0000-0000-000000000000", **changed)


class FakeNvml:
    """The module. ``gpus`` may be changed between rounds; ``init`` and ``everything`` hold an error to raise."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.init: Exception | None = None
        self.everything: Exception | None = None
        self.blocks_until: threading.Event | None = None
        self.calls: Counter[str] = Counter()
        self.threads: set[int] = set()
        self.initialised = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:  # noqa: N802
        self._called("nvmlInit")
        if self.init is not None:
            raise self.init
        self.initialised += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.calls["nvmlShutdown"] += 1
        if not self.initialised:
            raise error("Uninitialized")
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._called("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        self._called("nvmlDeviceGetHandleByIndex")
        self._value(self.gpus[index].handle)
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._value(handle.uuid)

    def nvmlDeviceGetName(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._value(handle.name)

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._value(handle.busy_percent), memory=0)

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu, version: int | None = None) -> Any:  # noqa: N802
        self.calls["memory v1" if version is None else "memory v2"] += 1
        if version not in (None, pynvml.nvmlMemory_v2):
            raise error("FunctionNotFound")
        return self._value(handle.memory_v1 if version is None else handle.memory_v2)

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._value(handle.milliwatts)

    def nvmlDeviceGetTemperature(self, handle: FakeGpu, sensor: int) -> Any:  # noqa: N802
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self._value(handle.celsius)

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._value(handle.mig_mode)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:  # noqa: N802
        return 7 if handle.instances else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> FakeGpu:  # noqa: N802
        if index not in handle.instances:
            raise error("NotFound")
        return handle.instances[index]

    def nvmlDeviceGetGpuInstanceId(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._value(handle.gpu_instance)

    def nvmlDeviceGetComputeInstanceId(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._value(handle.compute_instance)

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        self.threads.add(threading.get_ident())
        if self.blocks_until is not None:
            self.blocks_until.wait(30)
        if self.everything is not None:
            raise self.everything

    def _value(self, value: Any) -> Any:
        if self.everything is not None:
            raise self.everything
        if isinstance(value, Exception):
            raise value
        return value
