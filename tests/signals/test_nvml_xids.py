"""The driver's errors on local GPUs: each is heard once, told once, and belongs to who had it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from structlog.testing import CapturingLogger

from scaler.signals.gpu import GpuTelemetry, new_xids
from tests.signals.fake_nvml import NOT_SUPPORTED, FakeGpu, Machine, error, whole

MakeMachine = Callable[..., Machine]

TELLING = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypePState


def listening(number: int = 0, **changed: Any) -> FakeGpu:
    return whole(number, event_types=TELLING, **changed)


def errors(told: GpuTelemetry) -> list[tuple[int | None, int | None]]:
    return [(reading.xid, reading.xid_count) for reading in told.readings]


def said(log: CapturingLogger) -> list[dict[str, Any]]:
    return [call.kwargs for call in log.calls if call.args[0] == "a GPU reports an error"]


async def test_an_error_is_told_once_with_its_code_and_stays_the_last_one(
    machine: MakeMachine, log: CapturingLogger
) -> None:
    here = machine(listening(0), listening(1))
    before = await here.at(0)
    assert errors(before) == [(0, 0), (0, 0)]

    here.nvml.events.append(here.nvml.failed(here.nvml.gpus[1], 31))
    after = await here.at(5)
    assert errors(after) == [(0, 0), (31, 1)]
    assert new_xids(before.readings, after.readings) == {(here.nvml.gpus[1].uuid, ""): 31}
    for second in range(10, 60, 5):
        assert errors(await here.at(second)) == [(0, 0), (31, 1)]
    assert said(log) == [{"uuid": here.nvml.gpus[1].uuid, "gpu_instance": "", "xid": 31}]


async def test_the_same_code_again_is_news(machine: MakeMachine, log: CapturingLogger) -> None:
    here = machine(listening())
    await here.at(0)
    for second in (5, 10):
        here.nvml.events.append(here.nvml.failed(here.nvml.gpus[0], 13))
        told = await here.at(second)

    assert errors(told) == [(13, 2)]
    assert [line["xid"] for line in said(log)] == [13, 13]


async def test_several_errors_of_one_round_are_counted_and_the_last_one_is_shown(machine: MakeMachine) -> None:
    here = machine(listening())
    await here.at(0)
    here.nvml.events.extend(here.nvml.failed(here.nvml.gpus[0], code) for code in (31, 13, 43))

    assert errors(await here.at(5)) == [(43, 3)]


async def test_a_storm_of_errors_does_not_hold_a_round_up(machine: MakeMachine) -> None:
    here = machine(listening())
    await here.at(0)
    here.nvml.events.extend(here.nvml.failed(here.nvml.gpus[0], 13) for _ in range(2500))

    assert [errors(await here.at(second)) for second in (5, 10, 15, 20)] == [
        [(13, 1000)],
        [(13, 2000)],
        [(13, 2500)],
        [(13, 2500)],
    ]


@pytest.mark.parametrize(
    "mute",
    [
        {"event_types": 0},
        {"event_types": pynvml.nvmlEventTypePState},
        {"event_types": NOT_SUPPORTED},
        {"event_types": TELLING, "registering": NOT_SUPPORTED},
        {"event_types": TELLING, "registering": error("NoPermission")},
        {"event_types": TELLING, "registering": error("Unknown")},
    ],
)
async def test_a_gpu_that_cannot_be_listened_to_has_none_and_the_others_are_heard(
    machine: MakeMachine, mute: dict[str, Any]
) -> None:
    here = machine(listening(0), whole(1, **mute), listening(2))
    await here.at(0)
    await here.at(5)
    here.nvml.events.append(here.nvml.failed(here.nvml.gpus[0], 31))

    assert errors(await here.at(10)) == [(31, 1), (None, None), (0, 0)]
    assert len(here.nvml.event_sets) == 1


async def test_without_events_at_all_nothing_is_told_and_all_else_is_read(machine: MakeMachine) -> None:
    here = machine(listening())
    here.nvml.nvmlEventSetCreate = lambda: (_ for _ in ()).throw(NOT_SUPPORTED)  # type: ignore[method-assign]
    told = await here.at(0)

    assert (told.up, errors(told)) == (True, [(None, None)])


async def test_an_error_of_one_instance_is_that_ones_and_one_of_the_gpu_is_everybodys(machine: MakeMachine) -> None:
    instances = {place: FakeGpu(f"MIG-{place}", gpu_instance=place + 1) for place in (0, 1)}
    here = machine(listening(mig_mode=[1, 1], instances=instances))
    await here.at(0)
    here.nvml.events.append(here.nvml.failed(here.nvml.gpus[0], 13, gpu_instance=2))
    before = await here.at(5)
    assert errors(before) == [(13, 1), (0, 0), (13, 1)]  # the whole GPU, instance 1, instance 2

    here.nvml.events.append(here.nvml.failed(here.nvml.gpus[0], 48))
    after = await here.at(10)
    assert errors(after) == [(48, 2), (48, 1), (48, 2)]
    uuid = here.nvml.gpus[0].uuid
    assert new_xids(before.readings, after.readings) == {(uuid, "1"): 48, (uuid, "2"): 48}


async def test_a_gpu_lost_with_an_error_is_told_with_it_even_if_it_no_longer_says_who_it_is(
    machine: MakeMachine, log: CapturingLogger
) -> None:
    here = machine(listening(0), listening(1))
    await here.at(0)
    gone = here.nvml.gpus[1]
    uuid, gone.uuid = gone.uuid, error("GpuIsLost")
    here.nvml.events.append(here.nvml.failed(gone, 79))
    told = await here.at(5)

    assert [(lost.uuid, lost.xid) for lost in told.lost] == [(uuid, 79)]
    assert errors(told) == [(0, 0)]
    assert [call.kwargs["xid"] for call in log.calls if call.args[0] == "a GPU is lost"] == [79]

    gone.uuid = uuid
    here.nvml.events.clear()
    await here.at(10)
    assert here.nvml.calls["nvmlEventSetCreate"] == 2  # what was registered before the loss hears nothing any more
    here.nvml.events.append(here.nvml.failed(gone, 13))
    assert errors(await here.at(15)) == [(0, 0), (13, 2)]


@pytest.mark.parametrize("broken", [error("GpuIsLost"), error("Unknown")])
async def test_waiting_that_fails_costs_the_events_and_nothing_else(machine: MakeMachine, broken: Exception) -> None:
    here = machine(listening())
    await here.at(0)
    here.nvml.events.append(broken)
    told = await here.at(5)
    assert (told.up, told.readings[0].busy_ratio, errors(told)) == (True, 0.40, [(0, 0)])

    await here.at(10)
    here.nvml.events.append(here.nvml.failed(here.nvml.gpus[0], 31))
    assert errors(await here.at(15)) == [(31, 1)]
    assert len(here.nvml.event_sets) == 1


async def test_what_was_heard_before_the_driver_was_lost_is_no_news_after(
    machine: MakeMachine, log: CapturingLogger
) -> None:
    here = machine(listening(0), listening(1, registering=error("NoPermission")))
    await here.at(0)
    here.nvml.events.append(here.nvml.failed(here.nvml.gpus[0], 31))
    await here.at(5)
    here.nvml.everything = error("Uninitialized")
    assert not (await here.at(10)).up
    here.nvml.everything = here.nvml.gpus[1].registering = None
    told = await here.at(75)

    assert errors(told) == [(31, 1), (0, 0)]
    assert len(said(log)) == 1
    assert here.nvml.calls["nvmlEventSetCreate"] == 2
