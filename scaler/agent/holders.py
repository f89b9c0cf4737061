"""Which container holds which GPU: the kubelet's PodResources API against what NVML lists.

The kubelet tells the ids that device plugins gave out, on a socket of the node
(https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins,
"Monitoring device plugin resources"): pod, namespace and container by name, with nothing else to ask. The other known
way, from a GPU's processes through ``/proc/PID/cgroup``, gives the pod's UID alone, needs the host's process namespace,
and knows nobody while a model is being loaded or a container is idle. What an id looks like is read from
NVIDIA/dcgm-exporter (d5e5f510, ``internal/pkg/transformation/kubernetes.go``). GPUs given out through claims (DRA) have
no ids there, only names that need the cluster's API; they are held by nobody we know.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import grpc
import structlog

from scaler.agent import podresources_pb2
from scaler.signals.gpu import GpuReading
from scaler.value import frozen

log = structlog.get_logger(__name__)

#: Where the kubelet listens, unless it was given another root.
SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
#: Pods come and go in seconds; the kubelet answers from memory.
EVERY_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 3.0
#: Of one resource name all devices are GPUs, or parts of GPUs, of NVIDIA's plugin.
_RESOURCES: Final = "nvidia.com/"
#: gRPC keeps connections to one address for all channels, and after a failure it waits before it connects again.
_NEW_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)
#: GKE's own plugin counts: nvidia0, with /gi2 for a MIG instance and /vgpu1 for a share.
_GKE: Final = re.compile(r"nvidia(\d{1,4})(?:/gi(\d{1,4}))?(?:/vgpu\d+)?", re.ASCII)
_INDEX: Final = re.compile(r"\d{1,4}", re.ASCII)


class Holder(NamedTuple):
    """A container that holds a GPU, or a share of it."""

    namespace: str
    pod: str
    container: str


#: Id as the device plugin gave it, and who has it.
Held: TypeAlias = tuple[tuple[str, Holder], ...]
#: A GPU's or instance's identity, and who holds it: several where it is shared.
Holders: TypeAlias = Mapping[tuple[str, str], tuple[Holder, ...]]


@frozen
class _Device:
    """What an id says: exactly one of the three, and an instance's number where it means one."""

    uuid: str = ""
    index: int | None = None
    gpu_instance: str = ""


def holders_of(readings: Iterable[GpuReading], held: Held) -> Holders:
    """Who holds each of ``readings``, in the kubelet's order; a GPU that nobody holds is not in it. Pure."""
    found: dict[tuple[str, str], list[Holder]] = {}
    devices = [(_device(device_id), holder) for device_id, holder in held]
    for reading in readings:
        for device, holder in devices:
            known = found.setdefault(reading.identity, [])
            if device is not None and _is(reading, device) and holder not in known:
                known.append(holder)
    return {identity: tuple(holders) for identity, holders in found.items() if holders}


def _device(device_id: str) -> _Device | None:
    base = device_id.partition("::")[0]  # a share of it: ::0, ::1, ...
    if base.startswith(("GPU-", "MIG-")):
        return _Device(uuid=base)
    if match := _GKE.fullmatch(base):
        return _Device(index=int(match[1]), gpu_instance=match[2] or "")
    return _Device(index=int(base)) if _INDEX.fullmatch(base) else None


def _is(reading: GpuReading, device: _Device) -> bool:
    if device.uuid:
        own = reading.uuid if reading.instance is None else reading.instance.uuid
        return own == device.uuid
    instance = "" if reading.instance is None else reading.instance.gpu_instance
    return reading.indexes.get("nvml") == device.index and instance == device.gpu_instance


class PodResources:
    """Asks the kubelet. ``held`` is what it said last; it is kept while it does not answer. Never raises."""

    def __init__(self, socket: str = SOCKET) -> None:
        self._socket = socket
        self.held: Held = ()
        self.trouble: str | None = None
        """Why the last question had no answer; "" where it had one, None before the first."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(EVERY_SECONDS)

    async def ask(self) -> None:
        """Ask once. The connection is made anew each time: a kubelet that restarts has another socket there."""
        trouble = ""
        try:
            async with grpc.aio.insecure_channel(f"unix://{self._socket}", options=_NEW_CONNECTION) as channel:
                ask = channel.unary_unary(
                    "/v1.PodResourcesLister/List",
                    request_serializer=podresources_pb2.ListPodResourcesRequest.SerializeToString,
                    response_deserializer=podresources_pb2.ListPodResourcesResponse.FromString,
                )
                answer = await ask(podresources_pb2.ListPodResourcesRequest(), timeout=TIMEOUT_SECONDS)
            self.held = tuple(_held(answer))
        except grpc.aio.AioRpcError as error:
            trouble = f"the kubelet at {self._socket} does not tell who holds GPUs ({error.code().name})"
        if trouble != self.trouble:
            if trouble:
                log.warning("GPUs cannot be attributed", reason=trouble)
            else:
                log.info("GPUs are attributed", held=len(self.held))
        self.trouble = trouble


def _held(answer: podresources_pb2.ListPodResourcesResponse) -> Iterator[tuple[str, Holder]]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                if devices.resource_name.startswith(_RESOURCES):
                    for device_id in devices.device_ids:
                        yield device_id, Holder(pod.namespace, pod.name, container.name)
