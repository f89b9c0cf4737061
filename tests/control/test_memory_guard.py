"""How far the memory guard shrinks: by what the KV cache tells to what fits it, and by half where nothing tells it."""

from __future__ import annotations

from dataclasses import replace
from math import floor
from typing import Any

import pytest

from scaler.control.memory_guard import MOST_KEPT_SHARE
from scaler.control.model import Admission, Code
from scaler.control.oscillation import WIDEN
from scaler.control.swing import Swing
from scaler.policy.model import Batch, MemoryGuard, Policy, ReplicaRange
from scaler.signals.model import Unknown
from tests.control.timeline import Timeline

POLICY = Policy(batch=Batch(max=64), replicas=ReplicaRange(max=9))
#: 50 run in a replica whose limit is 64.
BUSY: dict[str, Any] = dict(arrivals=20, running=50, waiting=0, ready=1, kv=0.5)
GROWTH, EMERGENCY = POLICY.memory.kv_growth_ratio, POLICY.memory.kv_emergency_ratio
UNKNOWN = Unknown("cannot connect")


def cut(policy: Policy = POLICY, **pressed: Any) -> Timeline:
    """The first tick under pressure."""
    return Timeline(policy).at("0s", **BUSY).expect(batch=policy.batch.max).at("5s", **BUSY | pressed)


@pytest.mark.parametrize("kv", [0.95, 0.97, 1.0])
def test_what_runs_is_cut_to_what_would_stay_below_the_growth_mark(kv: float) -> None:
    timeline = cut(kv=kv).expect(batch=floor(50 * GROWTH / kv), admission=Admission.HOLD).because(Code.MEMORY_PRESSURE)
    after = kv * timeline.decision.targets.batch / 50  # type: ignore[union-attr, operator]
    assert after <= GROWTH


def test_a_limit_that_is_lower_than_what_runs_is_what_is_cut() -> None:
    """Those above it are leaving already."""
    low = POLICY.model_copy(update={"batch": Batch(max=40)})
    cut(low, kv=0.97, applied_batch=40).expect(batch=floor(40 * GROWTH / 0.97))


def test_never_more_than_half_at_once() -> None:
    """A growth mark so low that a third would be left."""
    low = POLICY.model_copy(update={"memory": MemoryGuard(kv_growth_ratio=0.3)})
    cut(low, kv=0.97).expect(batch=25)


def test_a_preemption_that_is_over_takes_a_tenth() -> None:
    """By its use now the cache would hold more than what runs; that it was too full a moment ago is still a fact."""
    assert MOST_KEPT_SHARE == 0.9
    for kv in (0.8, 0.3, 0.0):
        cut(kv=kv, preempted=2).expect(batch=45, admission=Admission.OPEN).because(Code.MEMORY_PRESSURE)


def test_a_preemption_in_a_full_cache_takes_what_its_use_tells() -> None:
    assert GROWTH / 0.945 < MOST_KEPT_SHARE
    assert EMERGENCY > 0.945
    cut(kv=0.945, preempted=2).expect(batch=floor(50 * GROWTH / 0.945), admission=Admission.HOLD)


def test_device_memory_tells_no_share_so_it_is_half() -> None:
    for kv in (0.5, 0.9, UNKNOWN):
        cut(kv=kv, gpu_memory_free_ratio=0.05).expect(batch=25, admission=Admission.HOLD)


def test_so_it_is_where_kv_use_is_not_known() -> None:
    cut(kv=UNKNOWN, preempted=2).expect(batch=25, admission=Admission.HOLD)


def test_the_half_is_the_policys_factor() -> None:
    careful = POLICY.model_copy(update={"batch": Batch(max=64, down_factor=0.8)})
    cut(careful, gpu_memory_free_ratio=0.05).expect(batch=40)
    cut(careful, kv=1.0).expect(batch=floor(50 * GROWTH))
    # One above what the cache tells rules there too: it is the most that is taken.
    cut(POLICY.model_copy(update={"batch": Batch(max=64, down_factor=0.95)}), kv=0.97).expect(batch=47)


def test_a_growth_mark_that_an_oscillation_lowered_is_the_one_that_is_kept_to() -> None:
    """Else the batch would be cut to where it may not grow from and oscillate on."""
    timeline = Timeline(POLICY).at("0s", **BUSY)
    timeline.memory = replace(timeline.memory, batch_swing=Swing(widening=WIDEN))
    widened = EMERGENCY - WIDEN * (EMERGENCY - GROWTH)
    assert widened == pytest.approx(0.8)
    timeline.at("5s", **BUSY | {"kv": 0.97}).expect(batch=floor(50 * widened / 0.97))
    assert floor(50 * widened / 0.97) < floor(50 * GROWTH / 0.97)


def test_the_least_batch_is_kept() -> None:
    cut(POLICY.model_copy(update={"batch": Batch(min=48, max=64)}), kv=1.0).expect(batch=48)
    cut(POLICY.model_copy(update={"batch": Batch(min=1, max=64)}), kv=1.0, running=1).expect(batch=1)
