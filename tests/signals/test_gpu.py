"""GPU readings as signals: what counts once, what is no measurement, and what may act."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.signals.gpu import (
    PREALLOCATED,
    GpuMemory,
    GpuReading,
    GpuTelemetry,
    MigInstance,
    attach_gpu,
    distinct,
    gpu_signals,
    new_xids,
)
from scaler.signals.model import Known, NotApplicable, Stale, Unknown
from scaler.signals.observation import EngineSample
from tests.signals.timeline import Timeline, pod

GIB = 1024.0**3


def gpu(number: int = 0, *, free: float | None = None, **values: object) -> GpuReading:
    """A GPU of 80 GiB; ``free`` in GiB."""
    memory = None if free is None else GpuMemory(80 * GIB, (80 - free) * GIB, free * GIB)
    return replace(GpuReading(uuid=f"GPU-{number}", memory=memory), **values)  # type: ignore[arg-type]


def telemetry(*readings: GpuReading) -> GpuTelemetry:
    return GpuTelemetry(True, 100.0, readings=readings)


# Combining


def test_ratios_are_means_and_free_memory_is_that_of_the_fullest() -> None:
    signals = gpu_signals(
        telemetry(
            gpu(0, free=40, busy_ratio=0.9, sm_active_ratio=0.5), gpu(1, free=8, busy_ratio=0.5, sm_active_ratio=0.1)
        ),
        preallocates=False,
    )

    assert signals.gpu_busy_ratio == Known(pytest.approx(0.7), 100.0)
    assert signals.sm_active_ratio == Known(pytest.approx(0.3), 100.0)
    assert signals.gpu_memory_free_ratio == Known(pytest.approx(0.1), 100.0)


def test_copies_of_one_gpu_count_once() -> None:
    shared = gpu(0, busy_ratio=0.9)
    signals = gpu_signals(telemetry(shared, shared, shared, gpu(1, busy_ratio=0.1)), preallocates=False)

    assert signals.gpu_busy_ratio == Known(pytest.approx(0.5), 100.0)


def test_instances_of_one_gpu_are_not_copies_and_their_parent_is_not_one_beside_them() -> None:
    first, second = (gpu(0, instance=MigInstance(name), busy_ratio=ratio) for name, ratio in (("1", 0.2), ("2", 0.8)))

    assert distinct([gpu(0, busy_ratio=None), first, second]) == (first, second)
    assert gpu_signals(telemetry(gpu(0), first, second), preallocates=False).gpu_busy_ratio == Known(0.5, 100.0)


def test_two_sources_agree_on_the_name_of_an_instance_and_fill_each_others_gaps() -> None:
    by_nvml = gpu(0, free=20, instance=MigInstance("1", "0", "3g.20gb", "MIG-1"), indexes={"nvml": 0})
    by_dcgm = gpu(0, busy_ratio=0.71, instance=MigInstance("1", profile="3g.20gb"), indexes={"dcgm": 0})

    (both,) = distinct([by_dcgm, by_nvml])
    assert (both.busy_ratio, both.memory_free_ratio) == (0.71, 0.25)
    assert both.instance == by_nvml.instance
    assert both.indexes == {"nvml": 0, "dcgm": 0}
    assert gpu(0, instance=MigInstance("1", "1")).identity != by_nvml.identity  # a divided GPU instance


ratios = st.none() | st.floats(0, 1)
copies = st.lists(
    st.builds(
        lambda number, busy, sm, free, xid: gpu(
            number, free=None if free is None else 80 * free, busy_ratio=busy, sm_active_ratio=sm, xid=xid
        ),
        st.integers(0, 3),
        ratios,
        ratios,
        ratios,
        st.none() | st.integers(0, 120),
    ),
    max_size=12,
)


@given(copies, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_of_copies_means_anything(readings: list[GpuReading], rng: random.Random) -> None:
    shuffled = [*readings, *readings]
    rng.shuffle(shuffled)

    def by_name(found: tuple[GpuReading, ...]) -> list[GpuReading]:
        return sorted(found, key=lambda reading: reading.uuid)

    assert by_name(distinct(shuffled)) == by_name(distinct(readings))


@given(copies)
def test_a_signal_is_known_only_if_every_gpu_gives_it_and_is_always_a_ratio(readings: list[GpuReading]) -> None:
    once = distinct(readings)
    signals = gpu_signals(telemetry(*readings), preallocates=False)
    for signal, values in (
        (signals.gpu_busy_ratio, [reading.busy_ratio for reading in once]),
        (signals.sm_active_ratio, [reading.sm_active_ratio for reading in once]),
        (signals.gpu_memory_free_ratio, [reading.memory_free_ratio for reading in once]),
    ):
        assert isinstance(signal, Known) == (bool(values) and None not in values)
        if isinstance(signal, (Known, Stale)):
            assert 0 <= signal.value <= 1


# What is no measurement


def test_what_one_gpu_does_not_tell_holds_and_never_lowers() -> None:
    signals = gpu_signals(telemetry(gpu(0, free=8, busy_ratio=0.9), gpu(1)), preallocates=False)

    assert signals.gpu_busy_ratio == Stale(0.9, 100.0, at_least=0.45)
    assert signals.gpu_memory_free_ratio == Stale(pytest.approx(0.1), 100.0)
    assert signals.sm_active_ratio == Unknown("no GPU gives its SM activity")


def test_no_telemetry_is_unknown_with_its_reason() -> None:
    down = gpu_signals(GpuTelemetry(False, 5.0, "the NVIDIA driver is not loaded"), preallocates=False)
    assert down.gpu_busy_ratio == down.gpu_memory_free_ratio == Unknown("the NVIDIA driver is not loaded")
    assert gpu_signals(telemetry(), preallocates=False).gpu_busy_ratio == Unknown("no GPU is visible")


@pytest.mark.parametrize(
    ("memory", "ratio"),
    [
        (GpuMemory(80957, 8, 80000, 949), pytest.approx(80000 / 80957)),
        (GpuMemory(80957, 957, 80000, api="v1"), pytest.approx(80000 / 80957)),
        (GpuMemory(0, 0, 0), None),  # G4-04 B: no division by zero, no "0 % free"
        (GpuMemory(128, 6.9, 8.0, 0), None),  # G4-04 C: parts far from the total
        (GpuMemory(80957, 957, 0, 957), None),  # G4-05: a vGPU shim's false 0
        (GpuMemory(100, 52, 52), pytest.approx(0.52)),
        (GpuMemory(100, 53, 53), None),
    ],
)
def test_memory_acts_only_if_it_adds_up(memory: GpuMemory, ratio: object) -> None:
    reading = gpu(0, memory=memory)

    assert reading.memory_free_ratio == ratio
    signal = gpu_signals(telemetry(reading), preallocates=False).gpu_memory_free_ratio
    assert isinstance(signal, Unknown if ratio is None else Known)


def test_unified_memory_never_acts_even_if_it_adds_up() -> None:
    signal = gpu_signals(telemetry(gpu(0, free=1, unified_memory=True)), preallocates=False).gpu_memory_free_ratio
    assert signal == Unknown("unified memory: what is free belongs to the whole machine")


# G4-01: an engine that takes its memory at start


@pytest.mark.parametrize("free_gib", [6.4, 0.003 * 80])  # 8 % free for an hour; D: 0.3 %, CUDA graphs
def test_free_vram_of_an_engine_that_preallocates_is_not_applicable(free_gib: float) -> None:
    signals = gpu_signals(telemetry(gpu(0, free=free_gib, busy_ratio=0.3)), preallocates=True)

    assert signals.gpu_memory_free_ratio == PREALLOCATED
    assert isinstance(PREALLOCATED, NotApplicable)
    assert "KV-cache" in PREALLOCATED.reason
    assert signals.gpu_busy_ratio == Known(0.3, 100.0)


@pytest.mark.parametrize("free_gib", [6.4, 0.003 * 80])
def test_nothing_of_it_reaches_the_fold(free_gib: float) -> None:
    page = attach_gpu(pod(kv_use=0.12), [gpu(0, free=free_gib, busy_ratio=0.3)], preallocates=True)
    signals = Timeline().at(0, a=page)

    assert not isinstance(signals.gpu_memory_free_ratio, (Known, Stale))
    assert signals.gpu_busy_ratio == Known(0.3, 0)


# Joining a workload


def test_gpus_are_attached_to_the_sample_of_the_replica_above_them() -> None:
    readings = [gpu(0, free=40, busy_ratio=0.6, sm_active_ratio=0.4), gpu(1, free=16, busy_ratio=0.8)]
    sample = attach_gpu(pod(running=3), readings, preallocates=False)

    assert sample.gauges == {"running": 3.0, "gpu_busy": pytest.approx(0.7), "gpu_memory_free": pytest.approx(0.2)}
    signals = Timeline().at(0, a=sample)
    assert signals.gpu_busy_ratio == Known(pytest.approx(0.7), 0)
    assert isinstance(signals.sm_active_ratio, Unknown)  # one of the two does not tell


def test_without_gpus_a_sample_stays_what_it_is() -> None:
    sample = EngineSample(at=1.0, gauges={"running": 1.0})
    assert attach_gpu(sample, [], preallocates=False) is sample


# XID


def test_an_xid_is_news_only_when_it_changes() -> None:
    def after(before: int | None, now: int | None) -> dict[tuple[str, str], int]:
        return new_xids([gpu(0, xid=before)], [gpu(0, xid=now)])

    assert after(0, 79) == {("GPU-0", ""): 79}
    assert after(31, 79) == {("GPU-0", ""): 79}
    assert after(79, 79) == {}  # sticky: the last error stays for ever
    assert after(79, 0) == {}  # the driver was loaded anew
    assert after(None, 79) == {}  # it may be months old
    assert after(79, None) == {}
    assert new_xids([], [gpu(0, xid=79)]) == {}
