"""The node's GPUs: read through NVML, given to whoever holds them, and exported as a DCGM exporter would."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from scaler.agent.agent_metrics import AgentCollector, AgentState
from scaler.agent.gpu_watch import GpuWatch
from scaler.agent.holders import Holder, PodResources
from scaler.signals.dcgm import PodName, read_text
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.gpu import GpuMemory, GpuReading, GpuTelemetry, distinct
from scaler.signals.nvml import LocalGpus
from tests.signals.fake_nvml import FakeGpu, FakeNvml, error, whole

CHAT, OTHER = Holder("chat", "llama-0", "vllm"), Holder("chat", "llama-1", "vllm")


def watching(
    nvml: FakeNvml | None, pods: PodResources | None = None, environment: Mapping[str, str] | None = None
) -> GpuWatch:
    def load() -> object:
        if nvml is None:
            raise ImportError
        return nvml

    return GpuWatch(LocalGpus(load=load), pods, pod="chat/llama-0", environment=environment)


def holding(*held: tuple[str, Holder]) -> PodResources:
    pods = PodResources("/nowhere")
    pods.held = held
    return pods


def page(watch: GpuWatch, *, gpu_metrics: bool = True) -> str:
    def state() -> AgentState:
        return AgentState(watch.telemetry, watch.holders)

    registry = CollectorRegistry()
    registry.register(AgentCollector(state, hostname="node-1", gpu_metrics=gpu_metrics))
    return generate_latest(registry).decode()


async def test_no_driver_is_a_normal_state() -> None:
    watch = watching(None)
    await watch.look()
    assert watch.engines_own() == ()
    told = page(watch)
    assert "loadtide_agent_gpus_up 0.0" in told
    assert "loadtide_agent_gpus 0.0" in told
    assert not [line for line in told.splitlines() if line.startswith("DCGM")]


class TestTheEnginesOwn:
    async def test_those_that_its_pod_holds(self) -> None:
        first, second = whole(0), whole(1)
        watch = watching(FakeNvml(first, second), holding((second.uuid, CHAT), (first.uuid, OTHER)))
        await watch.look()
        assert [reading.uuid for reading in watch.engines_own()] == [second.uuid]

    async def test_while_nobody_told_who_holds_them_none_is(self) -> None:
        """Another's full card must not shrink this engine's batch."""
        watch = watching(FakeNvml(whole(0)), holding())
        await watch.look()
        assert watch.engines_own() == ()

    async def test_without_a_kubelet_those_left_visible(self) -> None:
        watch = watching(FakeNvml(whole(0), whole(1)), environment={"CUDA_VISIBLE_DEVICES": "1"})
        await watch.look()
        assert [reading.uuid for reading in watch.engines_own()] == [whole(1).uuid]

    async def test_a_driver_that_is_lost_leaves_none(self) -> None:
        nvml = FakeNvml(whole(0))
        watch = watching(nvml)
        await watch.look()
        assert len(watch.engines_own()) == 1
        nvml.everything = error("Unknown")
        await watch.look()
        assert watch.engines_own() == ()


class TestThePage:
    async def test_whoever_reads_a_dcgm_exporter_reads_the_same_gpus(self) -> None:
        """Round trip through our own reader: memory, utilisation, power, temperature, holder."""
        first, second = whole(0, busy_percent=73), whole(1)
        watch = watching(FakeNvml(first, second), holding((first.uuid, CHAT), (second.uuid, OTHER)))
        await watch.look()
        read = {gpu.reading.uuid: gpu.reading for gpu in read_text(page(watch))}
        for reading in distinct(watch.telemetry.readings):
            told = read[reading.uuid]
            assert told.busy_ratio == pytest.approx(reading.busy_ratio)
            assert told.memory_free_ratio == pytest.approx(reading.memory_free_ratio)
            assert (told.power_watts, told.temperature_celsius) == (reading.power_watts, reading.temperature_celsius)
            assert told.name == reading.name
        (mine,) = DcgmGpus(read_text(page(watch))).held_by(PodName("chat", "llama-0"))
        assert (mine.uuid, mine.busy_ratio) == (first.uuid, 0.73)

    async def test_mig_instances_are_told_apart_and_have_no_utilisation(self) -> None:
        instance = FakeGpu(uuid="MIG-cccc", name="NVIDIA H100 MIG 3g.40gb", gpu_instance=3)
        gpu = whole(0, mig_mode=(1, 1), instances={0: instance})
        watch = watching(FakeNvml(gpu), holding(("MIG-cccc", CHAT)))
        await watch.look()
        (told,) = DcgmGpus(read_text(page(watch))).held_by(PodName("chat", "llama-0"))
        assert told.instance is not None
        assert (told.instance.gpu_instance, told.instance.profile, told.busy_ratio) == ("3", "3g.40gb", None)

    async def test_a_shared_gpu_is_repeated_for_each_holder(self) -> None:
        gpu = whole(0)
        watch = watching(FakeNvml(gpu), holding((f"{gpu.uuid}::0", CHAT), (f"{gpu.uuid}::1", OTHER)))
        await watch.look()
        gpus = read_text(page(watch))
        for pod in ("llama-0", "llama-1"):
            assert [reading.uuid for reading in DcgmGpus(gpus).held_by(PodName("chat", pod))] == [gpu.uuid]
        assert len(gpus) == 1

    async def test_it_is_not_there_unless_wanted(self) -> None:
        """Beside a DCGM exporter it would be every GPU twice."""
        watch = watching(FakeNvml(whole(0)))
        await watch.look()
        told = page(watch, gpu_metrics=False)
        assert "DCGM" not in told
        assert "loadtide_agent_gpus 1.0" in told

    def test_memory_that_is_shared_with_the_machine_is_not_the_gpus(self) -> None:
        memory = GpuMemory(128e9, 100e9, 28e9)
        reading = GpuReading("GPU-aaaa", name="NVIDIA GB10", memory=memory, unified_memory=True)
        state = AgentState(GpuTelemetry(True, 0.0, readings=(reading,)), {})
        registry = CollectorRegistry()
        registry.register(AgentCollector(lambda: state, hostname="n", gpu_metrics=True))
        assert "DCGM_FI_DEV_FB_FREE{" not in generate_latest(registry).decode()
