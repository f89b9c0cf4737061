"""Local GPUs through NVML: what is read, and every way in which it is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from structlog.testing import CapturingLogger

from scaler.signals.gpu import GpuMemory, gpu_signals
from scaler.signals.model import Stale, Unknown
from scaler.signals.nvml import LOOK_ALIKE, NOT_INSTALLED, TIMED_OUT, LocalGpus
from tests.signals.fake_nvml import GIB, MIB, NOT_SUPPORTED, FakeGpu, FakeNvml, Machine, error, memory, whole


def lines(log: CapturingLogger) -> list[str]:
    return [f"{call.method_name}: {call.args[0]}" for call in log.calls]


async def test_a_gpu_is_read_whole(machine: Callable[..., Machine]) -> None:
    told = await machine(whole(0), whole(1, busy_percent=90)).at(7.0)

    assert (told.up, told.at, told.reason, told.lost) == (True, 7.0, "", ())
    first, second = told.readings
    assert first.uuid.startswith("GPU-aaaa1111")
    assert (first.name, first.indexes, first.instance) == ("NVIDIA H100 80GB HBM3", {"nvml": 0}, None)
    assert (first.busy_ratio, second.busy_ratio) == (0.4, 0.9)
    assert (first.power_watts, first.temperature_celsius, first.unified_memory) == (250.0, 55.0, False)
    assert first.memory == GpuMemory(80 * GIB, 7 * GIB, 72 * GIB, GIB, "v2")
    assert first.sm_active_ratio is None


async def test_all_calls_come_from_one_thread_which_is_not_ours(machine: Callable[..., Machine]) -> None:
    here = machine(whole(0))
    for second in range(5):
        await here.at(second)

    assert len(here.nvml.threads) == 1
    assert threading.get_ident() not in here.nvml.threads
    assert here.nvml.calls["nvmlInit"] == 1


# G4-03: MIG


def divided() -> FakeGpu:
    """A GPU in MIG mode whose instance 1 is gone; the instances after the gap are there."""
    no_permission = error("NoPermission")
    small = memory(20 * GIB, 17.9 * GIB, 2.1 * GIB)

    def instance(number: int, uuid: str) -> FakeGpu:
        return FakeGpu(
            uuid=uuid,
            name="NVIDIA A100-SXM4-40GB MIG 3g.20gb",
            busy_percent=NOT_SUPPORTED,
            memory_v1=small,
            memory_v2=small,
            gpu_instance=number,
        )

    return whole(
        0,
        name="NVIDIA A100-SXM4-40GB",
        busy_percent=NOT_SUPPORTED,
        memory_v1=no_permission,
        memory_v2=no_permission,
        mig_mode=[1, 1],
        instances={0: instance(1, "MIG-1111"), 2: instance(2, "MIG-2222")},
    )


async def test_mig_instances_have_their_memory_and_no_utilisation(
    machine: Callable[..., Machine], log: CapturingLogger
) -> None:
    here = machine(divided())
    for second in range(10):
        told = await here.at(second)

    parent, first, last = told.readings
    assert (parent.busy_ratio, parent.memory, parent.unified_memory) == (None, None, False)
    for reading, number, uuid in ((first, "1", "MIG-1111"), (last, "2", "MIG-2222")):
        assert reading.uuid == parent.uuid
        assert reading.instance is not None
        assert (reading.instance.gpu_instance, reading.instance.uuid) == (number, uuid)
        assert reading.instance.profile == "3g.20gb"
        assert reading.busy_ratio is None
        assert reading.memory is not None
        assert (reading.memory.total_bytes, reading.memory.used_bytes) == (20 * GIB, 17.9 * GIB)
    signals = gpu_signals(told, preallocates=False)
    assert signals.gpu_busy_ratio == Unknown("no GPU gives its utilisation")
    assert lines(log) == ["info: local GPUs are read", "info: about a local GPU"]
    assert "MIG mode" in log.calls[1].kwargs["note"]


async def test_a_divided_gpu_without_instances_is_none_and_not_lost(machine: Callable[..., Machine]) -> None:
    told = await machine(whole(0, mig_mode=[1, 1]), whole(1)).at(0)

    assert [reading.indexes["nvml"] for reading in told.readings] == [1]
    assert told.lost == ()


# G4-04: unified memory


async def test_a_gb10_has_utilisation_and_no_memory(machine: Callable[..., Machine], log: CapturingLogger) -> None:
    spark = FakeGpu(
        name="NVIDIA GB10", busy_percent=93, memory_v1=NOT_SUPPORTED, memory_v2=NOT_SUPPORTED, milliwatts=NOT_SUPPORTED
    )
    here = machine(spark)
    for second in range(10):
        told = await here.at(second)

    (reading,) = told.readings
    assert (reading.busy_ratio, reading.memory, reading.unified_memory) == (0.93, None, True)
    assert (reading.sm_active_ratio, reading.power_watts) == (None, None)
    assert isinstance(gpu_signals(told, preallocates=False).gpu_memory_free_ratio, Unknown)
    assert lines(log) == ["info: local GPUs are read", "info: about a local GPU"]


async def test_a_memory_of_zero_is_as_not_supported(machine: Callable[..., Machine]) -> None:
    (reading,) = (await machine(whole(0, memory_v1=memory(0, 0, 0), memory_v2=memory(0, 0, 0))).at(0)).readings

    assert (reading.memory, reading.memory_free_ratio, reading.unified_memory) == (None, None, True)


async def test_numbers_that_do_not_add_up_are_given_and_do_not_act(machine: Callable[..., Machine]) -> None:
    odd = memory(128e9, 6.9e9, 8.0e9)
    (reading,) = (await machine(whole(0, memory_v1=NOT_SUPPORTED, memory_v2=odd)).at(0)).readings

    assert reading.memory == GpuMemory(128e9, 6.9e9, 8.0e9, 0, "v2")
    assert reading.memory_free_ratio is None


# G4-05: two memory calls

V1 = memory(80957 * MIB, 957 * MIB, 80000 * MIB)
V2 = memory(80957 * MIB, 8 * MIB, 80000 * MIB, 949 * MIB)


def test_the_stand_in_refuses_a_literal_2_like_the_library() -> None:
    assert pynvml.nvmlMemory_v2 == 0x02000028
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        FakeNvml().nvmlDeviceGetMemoryInfo(whole(0, memory_v2=V2), 2)


async def test_reserved_memory_is_told_apart_from_used(machine: Callable[..., Machine]) -> None:
    here = machine(whole(0, memory_v1=V1, memory_v2=V2))
    (reading,) = (await here.at(0)).readings

    assert reading.memory == GpuMemory(80957 * MIB, 8 * MIB, 80000 * MIB, 949 * MIB, "v2")
    parts = reading.memory
    assert parts.used_bytes + (parts.reserved_bytes or 0) + parts.free_bytes == parts.total_bytes
    assert here.nvml.calls["memory v1"] == 0


@pytest.mark.parametrize(
    "second",
    [
        error("FunctionNotFound"),  # an old driver
        error("Unknown"),  # WSL
        error("ArgumentVersionMismatch"),
        memory(80957 * MIB, 957 * MIB, 0, 957 * MIB),  # a vGPU shim: free 0, and used twice
    ],
)
async def test_where_the_second_call_fails_the_first_is_asked_and_remembered(
    second: object, machine: Callable[..., Machine], log: CapturingLogger
) -> None:
    here = machine(whole(0, memory_v1=V1, memory_v2=second), whole(1))
    for number in range(5):
        first, other = (await here.at(number)).readings
        assert first.memory == GpuMemory(80957 * MIB, 957 * MIB, 80000 * MIB, None, "v1")
        assert first.memory.consistent
        assert other.memory is not None
        assert other.memory.api == "v2"

    assert here.nvml.calls["memory v2"] == 1 + 5
    assert lines(log) == ["info: local GPUs are read"]


# G4-06: no driver, and losing it


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("LibraryNotFound", "no NVIDIA driver here"),
        ("LibRmVersionMismatch", "the driver was changed under its library"),
        ("DriverNotLoaded", "the NVIDIA driver is not loaded"),
        ("NoPermission", "no permission to ask the NVIDIA driver"),
        ("Timeout", "NVML: Timeout"),
    ],
)
async def test_without_a_usable_driver_there_is_a_reason_one_line_and_a_retry_a_minute(
    name: str, says: str, machine: Callable[..., Machine], log: CapturingLogger
) -> None:
    here = machine(whole(0))
    here.nvml.init = error(name)
    for second in range(0, 300, 5):
        told = await here.at(second)
        assert (told.up, told.readings, told.at) == (False, (), second)
        assert told.reason.startswith(says)

    assert here.nvml.calls["nvmlInit"] == 5
    assert lines(log) == ["info: local GPUs cannot be read"]

    here.nvml.init = None  # H: after five minutes the calls succeed again
    told = await here.at(300)
    assert (told.up, len(told.readings)) == (True, 1)
    assert lines(log)[1:] == ["info: local GPUs are read"]


async def test_a_missing_library_is_a_normal_state(log: CapturingLogger) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'")

    local = LocalGpus(load=missing)
    assert (await local.read()).reason == NOT_INSTALLED
    assert (await local.read()).up is False
    assert len(log.calls) == 1
    local.close()


async def test_the_old_look_alike_is_named() -> None:
    local = LocalGpus(load=lambda: object())
    assert (await local.read()).reason == LOOK_ALIKE
    local.close()


async def test_this_machine_whatever_it_has_gets_an_answer() -> None:
    local = LocalGpus(timeout_seconds=30.0)
    told = await local.read()
    assert told.up or told.reason
    local.close()


async def test_access_lost_while_running_removes_every_series_and_comes_back(
    machine: Callable[..., Machine], log: CapturingLogger
) -> None:
    here = machine(whole(0), whole(1))
    assert (await here.at(0)).up

    here.nvml.everything = error("Unknown")  # E
    for second in range(600, 780, 5):
        told = await here.at(second)
        assert (told.up, told.readings, told.lost) == (False, (), ())
        assert "container must be recreated" in told.reason
    assert here.nvml.calls["nvmlInit"] == 3  # at the start, and two minutes of tries after the loss
    assert lines(log) == ["info: local GPUs are read", "warning: local GPUs cannot be read"]

    here.nvml.everything = None
    assert len((await here.at(900)).readings) == 2
    assert here.nvml.initialised == 1


async def test_access_lost_below_a_count_that_still_answers(machine: Callable[..., Machine]) -> None:
    unknown = error("Unknown")
    told = await machine(whole(0, handle=unknown), whole(1, handle=unknown)).at(0)
    assert (told.up, told.lost) == (False, ())
    assert "access to the GPUs is lost" in told.reason

    mute = {
        "busy_percent": unknown,
        "memory_v1": unknown,
        "memory_v2": unknown,
        "milliwatts": unknown,
        "celsius": unknown,
    }
    assert not (await machine(whole(0, **mute)).at(0)).up


async def test_one_lost_gpu_leaves_the_others_and_is_told_once(
    machine: Callable[..., Machine], log: CapturingLogger
) -> None:
    here = machine(*(whole(number) for number in range(4)))
    await here.at(0)
    here.nvml.gpus[1].busy_percent = error("GpuIsLost")  # F
    for second in range(5, 60, 5):
        told = await here.at(second)
        assert told.up
        assert [reading.indexes["nvml"] for reading in told.readings] == [0, 2, 3]
        (lost,) = told.lost
        assert (lost.uuid, lost.nvml_index) == (here.nvml.gpus[1].uuid, 1)
        assert "fallen off the bus" in lost.reason
    assert lines(log) == ["info: local GPUs are read", "warning: a GPU is lost"]

    here.nvml.gpus[1].busy_percent = 10
    assert (await here.at(60)).lost == ()
    assert lines(log)[2:] == ["info: a lost GPU is back"]


async def test_a_gpu_lost_before_it_told_its_name_or_dropped_from_the_list(machine: Callable[..., Machine]) -> None:
    here = machine(whole(0), whole(1, handle=error("GpuIsLost")))
    assert [(lost.uuid, lost.nvml_index) for lost in (await here.at(0)).lost] == [("", 1)]

    here = machine(*(whole(number) for number in range(4)))
    await here.at(0)
    gone = here.nvml.gpus.pop(1)
    told = await here.at(5)
    assert [(lost.uuid, lost.reason) for lost in told.lost] == [(gone.uuid, "no longer listed")]
    assert len(told.readings) == 3


async def test_the_only_gpu_lost_is_no_telemetry_and_a_lost_gpu(machine: Callable[..., Machine]) -> None:
    here = machine(whole(0))
    await here.at(0)
    here.nvml.gpus[0].handle = error("GpuIsLost")
    told = await here.at(5)

    assert (told.up, told.readings) == (False, ())
    assert told.reason == told.lost[0].reason
    assert gpu_signals(told, preallocates=False).gpu_busy_ratio == Unknown(told.reason)


async def test_another_containers_gpu_is_not_ours_to_lose(machine: Callable[..., Machine]) -> None:
    told = await machine(whole(0, handle=error("NoPermission")), whole(1)).at(0)
    assert ([reading.indexes["nvml"] for reading in told.readings], told.lost) == ([1], ())


async def test_one_attribute_that_fails_costs_only_itself(machine: Callable[..., Machine]) -> None:
    told = await machine(whole(0, busy_percent=error("Unknown"), celsius=NOT_SUPPORTED), whole(1)).at(0)

    first, _ = told.readings
    assert (first.busy_ratio, first.temperature_celsius, first.power_watts) == (None, None, 250.0)
    assert isinstance(gpu_signals(told, preallocates=False).gpu_busy_ratio, Stale)


async def test_a_stuck_call_holds_nobody_up_and_no_second_round_is_begun(
    machine: Callable[..., Machine], log: CapturingLogger
) -> None:
    here = machine(whole(0), timeout_seconds=1.0)
    assert (await here.at(0)).up
    before = {thread.ident for thread in threading.enumerate()}
    here.nvml.blocks_until = threading.Event()  # G
    rounds = here.nvml.calls["nvmlDeviceGetCount"]

    began = time.monotonic()
    answers = await asyncio.gather(*(here.at(second) for second in range(1, 21)))
    answers.extend([await here.at(second) for second in range(21, 90)])
    assert time.monotonic() - began < 20  # each with a time limit of its own would take 70
    assert {(told.up, told.reason, told.readings) for told in answers} == {(False, TIMED_OUT, ())}
    assert here.nvml.calls["nvmlDeviceGetCount"] == rounds + 1
    assert {thread.ident for thread in threading.enumerate()} <= before
    assert lines(log) == ["info: local GPUs are read", "warning: local GPUs cannot be read"]

    here.nvml.blocks_until.set()
    here.nvml.blocks_until = None
    await _ends(here)
    told = await here.at(91)  # the stuck round's answer is of 90 s ago: another is asked
    assert (told.up, told.at) == (True, 91)


async def test_a_round_that_is_merely_slow_is_heard_by_the_next_who_asks(machine: Callable[..., Machine]) -> None:
    here = machine(whole(0), timeout_seconds=0.05)
    here.nvml.blocks_until = threading.Event()
    assert not (await here.at(0)).up

    here.nvml.blocks_until.set()
    await _ends(here)
    told = await here.at(5)
    assert (told.up, told.at) == (True, 0)


async def _ends(here: Machine) -> None:
    """Wait until the round that is under way has ended."""
    running = here.local._running
    assert running is not None
    await asyncio.wait_for(asyncio.wrap_future(running), 60)


async def test_a_cancelled_reader_takes_nothing_down(machine: Callable[..., Machine]) -> None:
    here = machine(whole(0))
    here.nvml.blocks_until = threading.Event()
    reader = asyncio.create_task(here.at(0))
    await asyncio.sleep(0.05)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    here.nvml.blocks_until.set()
    assert (await here.at(1)).up


async def test_whatever_breaks_in_the_library_is_a_reason(machine: Callable[..., Machine]) -> None:
    here = machine(whole(0, milliwatts=TypeError("a new version of the library")))
    told = await here.at(0)
    assert (told.up, told.reason) == (False, "reading the GPUs failed: TypeError")

    here.nvml.gpus[0].milliwatts = 1000
    assert (await here.at(1)).up
