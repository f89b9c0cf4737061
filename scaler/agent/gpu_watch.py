"""The node's GPUs once a second: what NVML reads, who holds each of them, and which are this engine's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from scaler.agent.holders import Holders, PodResources, holders_of
from scaler.signals.gpu import GpuReading, GpuTelemetry, distinct
from scaler.signals.nvml import LocalGpus
from scaler.signals.visible_devices import visible_devices

#: How often they are read, seconds.
EVERY_SECONDS: Final = 1.0


class GpuWatch:
    """Reads ``gpus``; ``pods`` tells who holds them, None where the kubelet is not asked.

    ``pod`` ("namespace/name") and ``environment`` say which GPUs are the engine's: those that its pod holds, or where
    the kubelet is not asked, those that ``CUDA_VISIBLE_DEVICES`` and ``NVIDIA_VISIBLE_DEVICES`` leave visible. These
    are our own, so they are right where we run in the engine's container, or are given the same.
    """

    def __init__(
        self,
        gpus: LocalGpus,
        pods: PodResources | None = None,
        *,
        pod: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._gpus = gpus
        self._pods = pods
        self._pod = pod
        self._environment = environment or {}
        self.telemetry = GpuTelemetry(False, 0.0, "not read yet")
        """The last round."""

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY_SECONDS)

    async def look(self) -> None:
        """Read once."""
        self.telemetry = await self._gpus.read()

    @property
    def holders(self) -> Holders:
        """Who holds each GPU of the last round."""
        return holders_of(self.telemetry.readings, self._pods.held) if self._pods else {}

    def engines_own(self) -> tuple[GpuReading, ...]:
        """The GPUs of the engine beside us; none where that is not known. Empty also while NVML does not answer."""
        readings = self.telemetry.readings
        if self._pods is not None:
            namespace, _, name = self._pod.partition("/")
            holders = self.holders
            return tuple(
                reading
                for reading in distinct(readings)
                if any((each.namespace, each.pod) == (namespace, name) for each in holders.get(reading.identity, ()))
            )
        return visible_devices(
            readings,
            cuda=self._environment.get("CUDA_VISIBLE_DEVICES"),
            nvidia=self._environment.get("NVIDIA_VISIBLE_DEVICES"),
            device_order=self._environment.get("CUDA_DEVICE_ORDER"),
        ).readings
