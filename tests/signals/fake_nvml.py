"""A stand-in for the module ``pynvml``: its functions over GPUs that a test describes, raising its own errors.

What is not here (constants, error classes) is the real module's, so that a wrong name or constant fails here too.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

from scaler.signals.gpu import GpuTelemetry
from scaler.signals.nvml import LocalGpus

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
    gpm_supported: Any = False
    counters: Mapping[str, float] = field(default_factory=dict)
    """Percent by metric name (``SM_UTIL``), as it is between any two samples; one that is missing fails alone."""
    sample: Any = None
    """An exception: what taking a sample of the counters raises."""
    event_types: Any = 0
    registering: Any = None
    """An exception: what registering for events raises."""


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
        self.buffers: dict[int, FakeGpu | None] = {}
        """The sample buffers lent, by address, and whose counters each holds."""
        self.event_sets: dict[int, list[int]] = {}
        """The event sets lent, by address, and the handles registered in each."""
        self.undefined: set[int] = set()
        """The event sets in which registering failed in an unknown way."""
        self.events: deque[Any] = deque()
        """What waiting for an event gives next; an exception is raised. Empty: nothing happens in time."""
        self._addresses = iter(range(0x1000, 1 << 30, 0x10))
        self._handles: dict[int, FakeGpu] = {}

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

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        self._called("nvmlDeviceGetHandleByIndex")
        self._value(self.gpus[index].handle)
        return self.handle_of(self.gpus[index])

    def handle_of(self, gpu: FakeGpu) -> Any:
        """The library's own kind of handle, a new object each time; the address in it stays."""
        address = next((address for address, known in self._handles.items() if known is gpu), None)
        if address is None:
            address = next(self._addresses)
            self._handles[address] = gpu
        return _pointer(address, pynvml.c_nvmlDevice_t)

    def nvmlDeviceGetUUID(self, handle: Any) -> Any:  # noqa: N802
        return self._value(self._gpu(handle).uuid)

    def nvmlDeviceGetName(self, handle: Any) -> Any:  # noqa: N802
        return self._value(self._gpu(handle).name)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._value(self._gpu(handle).busy_percent), memory=0)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:  # noqa: N802
        self.calls["memory v1" if version is None else "memory v2"] += 1
        if version not in (None, pynvml.nvmlMemory_v2):
            raise error("FunctionNotFound")
        gpu = self._gpu(handle)
        return self._value(gpu.memory_v1 if version is None else gpu.memory_v2)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> Any:  # noqa: N802
        return self._value(self._gpu(handle).milliwatts)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> Any:  # noqa: N802
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self._value(self._gpu(handle).celsius)

    def nvmlDeviceGetMigMode(self, handle: Any) -> Any:  # noqa: N802
        return self._value(self._gpu(handle).mig_mode)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802
        return 7 if self._gpu(handle).instances else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:  # noqa: N802
        instances = self._gpu(handle).instances
        if index not in instances:
            raise error("NotFound")
        return self.handle_of(instances[index])

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> Any:  # noqa: N802
        return self._value(self._gpu(handle).gpu_instance)

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> Any:  # noqa: N802
        return self._value(self._gpu(handle).compute_instance)

    # GPM: what happened between two samples

    def nvmlGpmQueryDeviceSupport(self, handle: Any) -> Any:  # noqa: N802
        self.calls["nvmlGpmQueryDeviceSupport"] += 1
        support = pynvml.c_nvmlGpmSupport_t()
        support.isSupportedDevice = self._value(self._gpu(handle).gpm_supported)
        return support

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        self._value(None)
        address = next(self._addresses)
        self.buffers[address] = None
        return _pointer(address, pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, sample: Any) -> None:  # noqa: N802
        if not self.initialised:
            raise error("Uninitialized")
        del self.buffers[_address(sample)]

    def nvmlGpmSampleGet(self, handle: Any, sample: Any) -> Any:  # noqa: N802
        return self._sampled(self._gpu(handle), sample)

    def nvmlGpmMigSampleGet(self, handle: Any, number: int, sample: Any) -> Any:  # noqa: N802
        instances = self._gpu(handle).instances.values()
        return self._sampled(next(each for each in instances if each.gpu_instance == number), sample)

    def _sampled(self, gpu: FakeGpu, sample: Any) -> Any:
        self.calls["samples"] += 1
        self._value(gpu.sample)
        assert _address(sample) in self.buffers, "this buffer was never lent"
        self.buffers[_address(sample)] = gpu
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:  # noqa: N802
        self._value(None)
        if request.version != 1:
            raise error("ArgumentVersionMismatch")
        first, second = (self.buffers[_address(sample)] for sample in (request.sample1, request.sample2))
        if first is None or first is not second or _address(request.sample1) == _address(request.sample2):
            raise error("InvalidArgument")
        names = {getattr(pynvml, f"NVML_GPM_METRIC_{name}"): name for name in first.counters}
        for metric in request.metrics[: request.numMetrics]:
            known = metric.metricId in names
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = first.counters[names[metric.metricId]] if known else 77.0  # whatever lay there
        return request

    # Events

    def nvmlEventSetCreate(self) -> Any:  # noqa: N802
        self.calls["nvmlEventSetCreate"] += 1
        self._value(None)
        address = next(self._addresses)
        self.event_sets[address] = []
        return _pointer(address, pynvml.c_nvmlEventSet_t)

    def nvmlEventSetFree(self, event_set: Any) -> None:  # noqa: N802
        if not self.initialised:
            raise error("Uninitialized")
        del self.event_sets[_address(event_set)]

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> Any:  # noqa: N802
        return self._value(self._gpu(handle).event_types)

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: int, event_set: Any) -> None:  # noqa: N802
        assert _address(event_set) not in self.undefined, "this set must be freed"
        if isinstance(self._gpu(handle).registering, pynvml.NVMLError_Unknown):
            self.undefined.add(_address(event_set))
        self._value(self._gpu(handle).registering)
        assert kinds == pynvml.nvmlEventTypeXidCriticalError
        assert _address(handle) not in self.event_sets[_address(event_set)], "registered twice"
        self.event_sets[_address(event_set)].append(_address(handle))

    def nvmlEventSetWait(self, event_set: Any, milliseconds: int) -> Any:  # noqa: N802
        assert milliseconds < 100, "a round must not wait for what may never happen"
        assert _address(event_set) not in self.undefined, "this set must be freed"
        registered = self.event_sets[_address(event_set)]
        self._value(None)
        if not self.events:
            raise error("Timeout")
        event = self._value(self.events.popleft())
        assert _address(event.device) in registered, "of this GPU no event is recorded"
        return event

    def failed(self, gpu: FakeGpu, xid: int, gpu_instance: int = 0xFFFFFFFF) -> Any:
        """The event of an error."""
        event = pynvml.c_nvmlEventData_t()
        event.device = self.handle_of(gpu)
        event.eventType, event.eventData = pynvml.nvmlEventTypeXidCriticalError, xid
        event.gpuInstanceId, event.computeInstanceId = gpu_instance, 0xFFFFFFFF
        return event

    def _gpu(self, handle: Any) -> FakeGpu:
        return self._handles[_address(handle)]

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


class Machine:
    """A machine with a fake NVML and a clock of its own."""

    def __init__(self, *gpus: FakeGpu, timeout_seconds: float = 60.0) -> None:
        self.nvml = FakeNvml(*gpus)
        self.seconds = 0.0
        self.local = LocalGpus(timeout_seconds=timeout_seconds, load=lambda: self.nvml, mono=lambda: self.seconds)

    async def at(self, seconds: float) -> GpuTelemetry:
        self.seconds = seconds
        return await self.local.read()


def _pointer(address: int, kind: Any) -> Any:
    return ctypes.cast(ctypes.c_void_p(address), kind)


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
