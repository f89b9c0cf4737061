"""How busy the parts of a local GPU are: between two rounds, of GPUs that have the counters, and never a false 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from scaler.signals.gpu import NO_SM_ACTIVITY, GpuReading, gpu_signals
from scaler.signals.model import Known, Stale, Unknown
from tests.signals.fake_nvml import NOT_SUPPORTED, FakeGpu, Machine, error, whole

MakeMachine = Callable[..., Machine]

COUNTERS = {"GRAPHICS_UTIL": 71.0, "SM_UTIL": 45.0, "SM_OCCUPANCY": 20.0}


def hopper(number: int = 0, counters: Mapping[str, float] = COUNTERS, **changed: Any) -> FakeGpu:
    return whole(number, gpm_supported=True, counters=dict(counters), **changed)


def activity(reading: GpuReading) -> tuple[float | None, float | None]:
    return (reading.sm_active_ratio, reading.sm_occupancy_ratio)


async def test_a_ratio_is_the_mean_between_two_rounds_and_the_first_round_has_none(machine: MakeMachine) -> None:
    here = machine(hopper())
    (first,) = (await here.at(0)).readings
    assert activity(first) == (None, None)
    assert isinstance(gpu_signals(await here.at(0), preallocates=True).sm_active_ratio, Unknown)

    told = await here.at(5)
    (second,) = told.readings
    assert activity(second) == (0.45, 0.20)
    assert second.busy_ratio == 0.40  # utilisation has a call of its own
    assert gpu_signals(told, preallocates=True).sm_active_ratio == Known(0.45, 5)

    here.nvml.gpus[0].counters = {**COUNTERS, "SM_UTIL": 90.0}
    (third,) = (await here.at(10)).readings
    assert activity(third) == (0.90, 0.20)


async def test_a_gpu_before_hopper_has_no_such_measure_and_is_asked_about_it_once(machine: MakeMachine) -> None:
    here = machine(whole(0), whole(1, gpm_supported=NOT_SUPPORTED), whole(2, gpm_supported=error("FunctionNotFound")))
    for second in range(0, 50, 5):
        told = await here.at(second)
        assert {activity(reading) for reading in told.readings} == {(None, None)}

    assert gpu_signals(told, preallocates=True).sm_active_ratio == NO_SM_ACTIVITY
    assert here.nvml.calls["nvmlGpmQueryDeviceSupport"] == 3
    assert here.nvml.calls["samples"] == 0


async def test_beside_a_gpu_that_cannot_tell_the_mean_is_not_known_of_all(machine: MakeMachine) -> None:
    here = machine(hopper(0), whole(1))
    await here.at(0)

    assert gpu_signals(await here.at(5), preallocates=True).sm_active_ratio == Stale(0.45, 5, 0.225)


@pytest.mark.parametrize(
    "refused", [error("NoPermission"), error("NotSupported"), error("Unknown"), error("InsufficientResources")]
)
async def test_counters_that_are_refused_cost_nothing_else(machine: MakeMachine, refused: Exception) -> None:
    here = machine(hopper(sample=refused))
    for second in range(0, 20, 5):
        (reading,) = (await here.at(second)).readings
        assert activity(reading) == (None, None)
        assert (reading.busy_ratio, reading.power_watts) == (0.40, 250.0)

    here.nvml.gpus[0].sample = None  # permission is given: the second sample makes a ratio
    assert activity((await here.at(20)).readings[0]) == (None, None)
    assert activity((await here.at(25)).readings[0]) == (0.45, 0.20)


async def test_a_sample_that_fails_is_not_bridged(machine: MakeMachine) -> None:
    here = machine(hopper())
    await here.at(0)
    here.nvml.gpus[0].sample = error("Unknown")
    assert activity((await here.at(5)).readings[0]) == (None, None)

    here.nvml.gpus[0].sample = None
    assert activity((await here.at(10)).readings[0]) == (None, None)
    assert activity((await here.at(15)).readings[0]) == (0.45, 0.20)


@pytest.mark.parametrize("value", [-1.0, 102.0, float("nan"), float("inf")])
async def test_a_metric_that_is_missing_or_no_percentage_is_left_out_alone(machine: MakeMachine, value: float) -> None:
    here = machine(
        hopper(0, {**COUNTERS, "SM_UTIL": value}), hopper(1, {"SM_UTIL": 30.0}), hopper(2, {"SM_UTIL": 100.4})
    )
    await here.at(0)

    first, second, third = (await here.at(5)).readings
    assert activity(first) == (None, 0.20)
    assert activity(second) == (0.30, None)
    assert activity(third) == (1.0, None)


async def test_a_0_beside_a_busy_gpu_is_stuck_and_one_beside_an_idle_gpu_is_measured(machine: MakeMachine) -> None:
    stuck = {"GRAPHICS_UTIL": 0.0, "SM_UTIL": 0.0, "SM_OCCUPANCY": 0.0}
    here = machine(hopper(0, stuck, busy_percent=95), hopper(1, stuck, busy_percent=0))
    await here.at(0)

    assert [activity(reading) for reading in (await here.at(5)).readings] == [(None, None), (0.0, 0.0)]


async def test_rounds_too_close_give_the_last_ratio_and_rounds_far_apart_give_none(machine: MakeMachine) -> None:
    here = machine(hopper())
    await here.at(0)
    assert activity((await here.at(1)).readings[0]) == (0.45, 0.20)
    here.nvml.gpus[0].counters = dict.fromkeys(COUNTERS, 5.0)
    assert activity((await here.at(1.05)).readings[0]) == (0.45, 0.20)
    assert here.nvml.calls["samples"] == 2

    assert activity((await here.at(3600)).readings[0]) == (None, None)  # an hour's mean says nothing of now
    assert activity((await here.at(3605)).readings[0]) == (0.05, 0.05)


async def test_mig_instances_are_measured_each_and_so_have_a_utilisation(
    machine: MakeMachine, log: CapturingLogger
) -> None:
    def instance(number: int, graphics: float) -> FakeGpu:
        counters = {**COUNTERS, "GRAPHICS_UTIL": graphics}
        return FakeGpu(f"MIG-{number}", busy_percent=NOT_SUPPORTED, gpu_instance=number, counters=counters)

    here = machine(
        hopper(busy_percent=NOT_SUPPORTED, mig_mode=[1, 1], instances={0: instance(1, 71.0), 2: instance(2, 30.0)})
    )
    await here.at(0)
    told = await here.at(5)

    parent, first, second = told.readings
    assert (parent.busy_ratio, activity(parent)) == (None, (None, None))
    assert (first.busy_ratio, activity(first)) == (0.71, (0.45, 0.20))
    assert second.busy_ratio == 0.30
    assert gpu_signals(told, preallocates=True).gpu_busy_ratio == Known(pytest.approx(0.505), 5)
    assert [call.args[0] for call in log.calls] == ["local GPUs are read"]  # and no hint that DCGM is needed


async def test_the_parts_of_a_divided_instance_are_not_told_apart_and_have_none(machine: MakeMachine) -> None:
    parts = {
        place: FakeGpu(f"MIG-{place}", gpu_instance=1, compute_instance=place, counters=COUNTERS) for place in (0, 1)
    }
    here = machine(hopper(mig_mode=[1, 1], instances=parts))
    await here.at(0)

    assert [reading.busy_ratio for reading in (await here.at(5)).readings] == [None, None, None]


async def test_every_buffer_is_given_back_whenever_nvml_is_ended(machine: MakeMachine) -> None:
    here = machine(hopper(0), hopper(1))
    for second in range(0, 60, 5):
        await here.at(second)
    assert len(here.nvml.buffers) == 4  # two to a GPU, however long it runs

    here.nvml.gpus[0].busy_percent = here.nvml.gpus[1].busy_percent = error("GpuIsLost")
    assert not (await here.at(60)).up
    assert here.nvml.buffers == {}

    here.nvml.gpus[0].busy_percent = here.nvml.gpus[1].busy_percent = 40
    assert activity((await here.at(125)).readings[0]) == (None, None)
    assert activity((await here.at(130)).readings[0]) == (0.45, 0.20)
