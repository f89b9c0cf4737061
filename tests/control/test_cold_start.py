"""How long replicas take is measured, and what does not come is not counted on."""

from __future__ import annotations

from typing import Any

from scaler.control.cold_start import ColdStarts, cold_start_seconds, coming, measured_cold_starts, watched
from scaler.control.model import Code
from scaler.policy.model import Batch, Capacity, Policy, ReplicaRange
from tests.control.timeline import Timeline

POLICY = Policy(
    capacity=Capacity(requests_per_second=1, sequences=10, learn=False),
    batch=Batch(max=32),
    replicas=ReplicaRange(max=20, cold_start_seconds=120),
)


def load(rate: float, ready: int, **more: Any) -> dict[str, Any]:
    return dict(arrivals=rate, recent=rate, last=rate, running=rate, waiting=0, ready=ready, kv=0.3) | more


def seen(*steps: tuple[float, int | None, int | None], unschedulable: bool = False) -> ColdStarts:
    """After (seconds since the step before, asked, ready)."""
    found = ColdStarts()
    for seconds, asked, ready in steps:
        found = watched(found, asked, ready, unschedulable=unschedulable, elapsed_seconds=seconds)
    return found


def test_the_oldest_asked_for_are_the_first_to_come() -> None:
    found = seen((0, 1, 1), (5, 3, 1), (30, 4, 1), (60, 4, 2), (10, 4, 4))
    assert found.warm == (90, 100, 70)
    assert found.row == ()


def test_fewer_asked_for_takes_the_newest_out_of_the_row() -> None:
    found = seen((0, 1, 1), (5, 3, 1), (30, 5, 1), (5, 3, 1), (60, 3, 3))
    assert found.warm == (95, 95)


def test_what_came_without_being_asked_for_is_no_sample() -> None:
    assert seen((0, 2, 1), (60, 2, 2)).warm == ()  # there when we began to look
    assert seen((0, 2, 2), (60, 2, 1), (60, 2, 2)).warm == ()  # restarted


def test_a_count_that_is_not_known_now_loses_nothing() -> None:
    found = seen((0, 1, 1), (5, 2, 1), (60, None, None), (60, None, 2))
    assert found.warm == (120,)


def test_replicas_that_waited_for_a_node_are_kept_apart() -> None:
    one = watched(seen((0, 1, 1), (5, 2, 1)), 2, 1, unschedulable=True, elapsed_seconds=60)
    found = watched(one, 2, 2, unschedulable=False, elapsed_seconds=240)
    assert (found.warm, found.new_node) == ((), (300,))


def test_p95_of_the_latest_stands_in_for_what_was_declared_once_there_are_five() -> None:
    few, enough = (ColdStarts(warm=tuple(float(50 + each) for each in range(number))) for number in (4, 5))
    assert cold_start_seconds(few, 120, unschedulable=False) == 120
    assert cold_start_seconds(enough, 120, unschedulable=False) == 54
    both = ColdStarts(warm=(60.0,) * 5, new_node=(400.0,) * 5)
    assert cold_start_seconds(both, 120, unschedulable=True) == 400
    assert cold_start_seconds(both, 120, unschedulable=False) == 60
    assert list(measured_cold_starts(both)) == [
        ("warm", 0.5, 60), ("warm", 0.95, 60), ("new", 0.5, 400), ("new", 0.95, 400),
    ]  # fmt: skip


def test_memory_stays_small_whatever_happens() -> None:
    found = ColdStarts(asked=0, ready=0)
    for number in range(1000):
        found = watched(found, number, number // 2, unschedulable=number % 3 == 0, elapsed_seconds=5)
    assert len(found.row) <= 64
    assert len(found.warm) <= 32
    assert len(found.new_node) <= 32


def test_pending_is_credited_for_twice_a_cold_start_and_within_the_declared_ceiling() -> None:
    row = seen((0, 1, 1), (5, 9, 1), (100, 9, 1))
    counts = dict(asked=9, ready=1, cold_start_seconds=120.0)
    assert coming(row, pending=None, ceiling=20, **counts) == 8  # type: ignore[arg-type]
    assert coming(row, pending=None, ceiling=None, **counts) == 1  # type: ignore[arg-type]
    assert coming(row, pending=6, ceiling=20, **counts) == 6  # type: ignore[arg-type]  # two have no node
    late = watched(row, 9, 1, unschedulable=False, elapsed_seconds=150)
    assert coming(late, pending=8, ceiling=20, **counts) == 0  # type: ignore[arg-type]


def test_the_forecast_looks_as_far_ahead_as_replicas_really_take() -> None:
    from scaler.signals.model import ArrivalTrend

    rising = dict(arrivals_trend=ArrivalTrend(2.0, 150.0, 0.01, 0.0, 0.0, 1.0))
    Timeline(POLICY).at("0s", **load(3.5, 4, **rising)).expect(need=5, cold_start_seconds=120)
    timeline = Timeline(POLICY)
    timeline.memory = type(timeline.memory)(cold_starts=ColdStarts(warm=(30.0,) * 5))
    timeline.at("0s", **load(3.5, 4, **rising)).expect(need=4, cold_start_seconds=30)


def test_what_has_not_come_in_twice_a_cold_start_is_said_and_not_counted_on() -> None:
    timeline = Timeline(POLICY).at("0s", **load(1, 1)).at("1m").at("1m5s", **load(4, 1)).expect(replicas=4)
    timeline.at("5m10s")
    assert Code.OVERDUE not in {held.code for held in timeline.decision.suppressed}  # type: ignore[union-attr]
    timeline.at("5m15s").held_back(Code.OVERDUE).expect(replicas=4)


def test_a_replica_without_a_node_is_no_capacity_and_it_is_said() -> None:
    timeline = Timeline(POLICY).at("0s", **load(1, 1, asked_replicas=1, pending_replicas=0, unschedulable_replicas=0))
    stuck = load(4, 1, asked_replicas=4, pending_replicas=1, unschedulable_replicas=2)
    timeline.at("5s", **stuck).held_back(Code.UNSCHEDULABLE).expect(replicas=4)


def test_where_no_node_has_room_slow_steps_lower_the_batch_as_at_the_ceiling() -> None:
    from scaler.policy.model import Objectives
    from tests.control.timeline import latency

    policy = POLICY.model_copy(update={"objectives": Objectives(tpot_seconds=0.05)})
    stuck = dict(asked_replicas=3, pending_replicas=0, unschedulable_replicas=2, busiest_running=30)
    slow = load(0.5, 1, running=30, tpot=latency(0.08), **stuck)
    calm = load(0.5, 1, running=3, tpot=latency(0.03))
    timeline = Timeline(policy).at("0s", **calm).at("1m").at("1m5s", **slow)
    assert timeline.decision.targets.batch < 32  # type: ignore[union-attr, operator]


def test_a_rollouts_surge_is_no_capacity() -> None:
    """Two old ones are still there beside the three that were asked for."""
    surge = load(2.5, 5, asked_replicas=3)
    Timeline(POLICY).at("0s", **surge).expect(ready=3, utilisation=2.5 / 3)
