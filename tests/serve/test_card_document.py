"""The card of a workload as the API tells it: everybody on it, what is nobody's, and what is not known stays so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scaler.control.card_part import CardPart
from scaler.control.model import LoadState, Memory
from scaler.policy.model import GpuGroup, Policy
from scaler.serve.card_document import card_document
from scaler.serve.render import workload_detail, workload_summary
from scaler.signals.model import Known, Stale
from tests.serve.tide import POLICY, SIGNALS, FakeWorkload, FakeWorkloads, snapshot


def of_card(share: float, name: str | None = "gpu-0") -> Policy:
    return POLICY.model_copy(update={"gpu_group": GpuGroup(name=name, share_ratio=share, batch=32)})


def member(name: str, part: CardPart, state: LoadState = LoadState.NORMAL, **signals: Any) -> FakeWorkload:
    policy = of_card(part.own)
    made = snapshot(
        name, policy=policy, state=state, next_memory=Memory(card=part), signals=replace(SIGNALS, **signals)
    )
    return FakeWorkloads().add(name, made, policy)


A = member("team/a", CardPart(0.875, 0.5, 0.5, 56), LoadState.HIGH, gpu_memory_free_ratio=Known(0.2, 98.0))
B = member("team/b", CardPart(0.025, 0.3, 0.4, 2), LoadState.IDLE, gpu_memory_free_ratio=Known(0.1, 98.0))


def document(*sharing: FakeWorkload) -> dict[str, Any]:
    assert A.snapshot is not None
    found = card_document(A.snapshot, sharing)
    assert found is not None
    return found


def test_everybody_on_the_card_is_told_and_what_nobody_has() -> None:
    found = document(A, B)
    assert [each["workload"] for each in found["members"]] == ["team/a", "team/b"]
    assert found["members"][1] == {
        "workload": "team/b",
        "state": "idle",
        "own": 0.4,
        "time": 0.025,
        "memory": 0.3,
        "batch_size": 2,
    }
    assert found["nobodys"] == {"time": 0.1, "memory": 0.2}


def test_free_memory_is_that_of_the_fullest_gpu_measured_now() -> None:
    assert document(A, B)["gpu_memory_free_ratio"] == 0.1
    old = member("team/old", CardPart(0.1, 0.1, 0.1, 4), gpu_memory_free_ratio=Stale(0.01, 5.0))
    assert document(A, old)["gpu_memory_free_ratio"] == 0.2
    assert document(old)["gpu_memory_free_ratio"] is None


def test_who_was_not_decided_yet_has_its_own_and_nothing_is_said_of_what_is_left() -> None:
    new = FakeWorkloads().add("team/new", None, of_card(0.1))
    found = document(A, B, new)
    assert found["members"][2] == {
        "workload": "team/new",
        "state": "unknown",
        "own": 0.1,
        "time": None,
        "memory": None,
        "batch_size": None,
    }
    assert found["nobodys"] == {"time": None, "memory": None}


def test_the_list_of_workloads_tells_the_part_and_the_detail_the_whole_card() -> None:
    part = workload_summary(A, 101.0, current=True)["card"]
    assert part == {"name": "gpu-0", "own": 0.5, "time": 0.875, "memory": 0.5, "batch_size": 56}
    assert workload_detail(A, 101.0, current=True, sharing=[A, B])["card"]["members"][1]["workload"] == "team/b"
    alone = FakeWorkloads().add("team/alone", snapshot("team/alone"))
    assert workload_summary(alone, 101.0, current=True)["card"] is None
    assert workload_detail(alone, 101.0, current=True)["card"] is None
