"""Who holds which GPU: ids as device plugins give them out, and a kubelet that is asked over its own protocol."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from scaler.agent import podresources_pb2
from scaler.agent.holders import Holder, PodResources, holders_of
from scaler.signals.gpu import GpuReading, MigInstance

ROOT = Path(__file__).parents[2]
CHAT, BATCH = Holder("chat", "llama-0", "vllm"), Holder("jobs", "train-1", "main")
WHOLE = GpuReading(uuid="GPU-aaaa", indexes={"nvml": 0})
OTHER = GpuReading(uuid="GPU-bbbb", indexes={"nvml": 1})
SLICE = GpuReading(uuid="GPU-bbbb", instance=MigInstance("3", uuid="MIG-cccc"), indexes={"nvml": 1})


@pytest.mark.parametrize(
    ("device_id", "held"),
    [
        ("GPU-aaaa", WHOLE),
        ("GPU-aaaa::2", WHOLE),  # a share of it, time-sliced
        ("MIG-cccc", SLICE),
        ("MIG-cccc::0", SLICE),
        ("nvidia0", WHOLE),  # GKE's plugin
        ("nvidia0/vgpu3", WHOLE),
        ("nvidia1/gi3", SLICE),
        ("nvidia1/gi3/vgpu0", SLICE),
        ("1", OTHER),  # a plugin that was told to give out numbers
        ("GPU-a", None),
        ("MIG-GPU-aaaa/3/0", None),
        ("", None),
        ("nvidia٣", None),
        ("99999999999999999999", None),
    ],
)
def test_ids(device_id: str, held: GpuReading | None) -> None:
    expected = {} if held is None else {held.identity: (CHAT,)}
    assert holders_of([WHOLE, OTHER, SLICE], ((device_id, CHAT),)) == expected


def test_a_shared_gpu_has_each_of_its_holders_once() -> None:
    held = (("GPU-aaaa::0", CHAT), ("GPU-aaaa::1", BATCH), ("GPU-aaaa::2", CHAT))
    assert holders_of([WHOLE, OTHER], held) == {WHOLE.identity: (CHAT, BATCH)}


class Kubelet:
    """The PodResources server of a node, over its real protocol."""

    def __init__(self) -> None:
        self.pods: list[tuple[Holder, str, list[str]]] = []
        self.fails = False

    async def list(self, _request: object, context: grpc.aio.ServicerContext) -> object:
        if self.fails:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return podresources_pb2.ListPodResourcesResponse(
            pod_resources=[
                podresources_pb2.PodResources(
                    name=holder.pod,
                    namespace=holder.namespace,
                    containers=[
                        podresources_pb2.ContainerResources(
                            name=holder.container,
                            devices=[podresources_pb2.ContainerDevices(resource_name=resource, device_ids=ids)],
                        )
                    ],
                )
                for holder, resource, ids in self.pods
            ]
        )

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        method = grpc.unary_unary_rpc_method_handler(
            self.list,
            request_deserializer=podresources_pb2.ListPodResourcesRequest.FromString,
            response_serializer=podresources_pb2.ListPodResourcesResponse.SerializeToString,
        )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),)
        )
        server.add_insecure_port(f"unix://{socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)


async def test_the_kubelet_is_asked(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(), tmp_path / "k.sock"
    kubelet.pods = [
        (CHAT, "nvidia.com/gpu", ["GPU-aaaa"]),
        (BATCH, "nvidia.com/mig-1g.10gb", ["MIG-cccc"]),
        (Holder("net", "cni", "main"), "example.com/nic", ["GPU-aaaa"]),
    ]
    pods = PodResources(str(socket))
    async with kubelet.serving(socket):
        await pods.ask()
    assert holders_of([WHOLE, SLICE], pods.held) == {WHOLE.identity: (CHAT,), SLICE.identity: (BATCH,)}


async def test_what_it_said_last_is_kept_while_it_is_away(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(), tmp_path / "k.sock"
    kubelet.pods = [(CHAT, "nvidia.com/gpu", ["GPU-aaaa"])]
    pods = PodResources(str(socket))
    async with kubelet.serving(socket):
        await pods.ask()
        kubelet.fails = True
        await pods.ask()
        assert pods.trouble == f"the kubelet at {socket} does not tell who holds GPUs (RESOURCE_EXHAUSTED)"
    await pods.ask()
    assert "UNAVAILABLE" in (pods.trouble or "")
    assert holders_of([WHOLE], pods.held) == {WHOLE.identity: (CHAT,)}
    kubelet.pods, kubelet.fails = [], False
    async with kubelet.serving(socket):  # another kubelet, at the same place
        await pods.ask()
    assert (pods.held, pods.trouble) == ((), "")


async def test_a_kubelet_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaler.agent.holders.TIMEOUT_SECONDS", 0.1)
    kubelet, socket = Kubelet(), tmp_path / "k.sock"

    async def hangs(_request: object, _context: object) -> object:
        await asyncio.sleep(60)
        raise AssertionError

    kubelet.list = hangs  # type: ignore[method-assign,assignment]
    pods = PodResources(str(socket))
    async with kubelet.serving(socket):
        await pods.ask()
    assert "DEADLINE_EXCEEDED" in (pods.trouble or "")


def test_the_layout_on_the_wire_is_the_kubelets() -> None:
    """k8s.io/kubelet/pkg/apis/podresources/v1/api.proto, the fields that are read."""
    whole = podresources_pb2.ListPodResourcesResponse(
        pod_resources=[
            podresources_pb2.PodResources(
                name="p",
                namespace="n",
                containers=[
                    podresources_pb2.ContainerResources(
                        name="c", devices=[podresources_pb2.ContainerDevices(resource_name="r", device_ids=["d"])]
                    )
                ],
            )
        ]
    )
    devices = b"\x0a\x01r\x12\x01d"
    container = b"\x0a\x01c\x12" + bytes([len(devices)]) + devices
    pod = b"\x0a\x01p\x12\x01n\x1a" + bytes([len(container)]) + container
    assert whole.SerializeToString() == b"\x0a" + bytes([len(pod)]) + pod
    service = podresources_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"]
    assert service.full_name == "v1.PodResourcesLister"


def test_the_committed_stubs_are_the_generated_ones(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    subprocess.run([sys.executable, ROOT / "proto" / "generate.py", tmp_path], check=True, cwd=tmp_path)
    for stub in ("podresources_pb2.py", "podresources_pb2.pyi"):
        assert (tmp_path / stub).read_bytes() == (ROOT / "scaler" / "agent" / stub).read_bytes(), stub
