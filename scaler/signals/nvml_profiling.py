"""How busy a GPU's parts are, by NVML's GPM calls, which GPUs from Hopper on have. Of others nothing tells it here.

The driver compares two samples of the GPU's counters. One is taken each round and kept until the next: so a ratio is
the mean since the round before, nobody waits between two samples, and the first round of a GPU has none.

Names, units and the least time between samples are those of ``nvml.h`` (NVIDIA/go-nvml ``pkg/nvml/nvml.h``, 2f9e261f).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from scaler.signals.nvml_questions import Questions
from scaler.value import frozen

#: The driver renews its counters every 100 ms; two samples closer than this may be the same one.
SHORTEST_SECONDS: Final = 0.2
#: Samples further apart than this tell of the past rather than of now.
LONGEST_SECONDS: Final = 60.0


@frozen
class Activity:
    """What two samples say, each 0..1; None is "not measured"."""

    busy_ratio: float | None = None
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None


_NOT_MEASURED: Final = Activity()


@dataclass(slots=True)
class _Samples:
    """One GPU's or instance's two buffers, which take turns; ``at`` is when ``kept`` was filled (None: not yet)."""

    kept: Any
    spare: Any
    at: float | None = None
    activity: Activity = _NOT_MEASURED


class Profiling:
    """Measures GPUs between rounds. Belongs to one initialisation of NVML: call :meth:`release` before it ends.

    ``nvml`` is the module ``pynvml`` (of the distribution nvidia-ml-py) or a stand-in for it.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._metrics = (
            nvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
            nvml.NVML_GPM_METRIC_SM_UTIL,
            nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
        )
        self._supported: dict[str, bool] = {}
        self._samples: dict[tuple[str, str], _Samples] = {}

    def supports(self, ask: Questions, handle: object, uuid: str) -> bool:
        """Whether the whole GPU has these counters. Asked once for each."""
        if uuid not in self._supported:
            told = ask(self._nvml.nvmlGpmQueryDeviceSupport, handle)
            self._supported[uuid] = told is not None and bool(told.isSupportedDevice)
        return self._supported[uuid]

    def measure(self, ask: Questions, handle: object, uuid: str, now: float, gpu_instance: str = "") -> Activity:
        """What happened on the GPU, or on one GPU instance of it, since the last call. ``handle`` is the whole GPU's,
        ``now`` monotonic seconds.
        """
        samples = self._samples.get((uuid, gpu_instance)) or self._allocate(ask, uuid, gpu_instance)
        if samples is None:
            return Activity()
        age = None if samples.at is None else now - samples.at
        if age is not None and age < SHORTEST_SECONDS:
            return samples.activity
        if gpu_instance:
            filled = ask(self._nvml.nvmlGpmMigSampleGet, handle, int(gpu_instance), samples.spare)
        else:
            filled = ask(self._nvml.nvmlGpmSampleGet, handle, samples.spare)
        if filled is None:
            samples.at, samples.activity = None, Activity()
            return samples.activity
        recent = age is not None and age <= LONGEST_SECONDS
        samples.activity = self._between(ask, samples.kept, samples.spare) if recent else Activity()
        samples.kept, samples.spare, samples.at = samples.spare, samples.kept, now
        return samples.activity

    def release(self) -> None:
        """Give every buffer back. Nothing is known of any GPU afterwards."""
        held = [buffer for samples in self._samples.values() for buffer in (samples.kept, samples.spare)]
        self._samples.clear()
        self._supported.clear()
        for buffer in held:
            self._free(buffer)

    def _allocate(self, ask: Questions, uuid: str, gpu_instance: str) -> _Samples | None:
        kept = ask(self._nvml.nvmlGpmSampleAlloc)
        spare = None if kept is None else ask(self._nvml.nvmlGpmSampleAlloc)
        if spare is None:
            if kept is not None:
                self._free(kept)
            return None
        samples = self._samples[uuid, gpu_instance] = _Samples(kept, spare)
        return samples

    def _free(self, buffer: object) -> None:
        with suppress(self._nvml.NVMLError):  # of a driver that is gone: there is nobody to give it back to
            self._nvml.nvmlGpmSampleFree(buffer)

    def _between(self, ask: Questions, earlier: object, later: object) -> Activity:
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = earlier, later
        for place, metric in enumerate(self._metrics):
            request.metrics[place].metricId = metric
        if ask(self._nvml.nvmlGpmMetricsGet, request) is None:
            return Activity()
        return Activity(*(self._ratio(request.metrics[place]) for place in range(len(self._metrics))))

    def _ratio(self, metric: Any) -> float | None:
        """One metric, percent, as a ratio. Rounding takes it a little over 100."""
        told = metric.nvmlReturn == self._nvml.NVML_SUCCESS and 0 <= metric.value <= 101
        return min(metric.value / 100, 1.0) if told else None
