"""Admission and what goes with the batch: hold until relief, shed what comes too late, limits that follow the batch."""

from __future__ import annotations

from typing import Any

from scaler.control.model import Admission, Code, Target
from scaler.policy.model import AdmissionControl, Batch, Capacity, Objectives, Policy, ReplicaRange
from tests.control.timeline import Timeline, gone

POLICY = Policy(
    batch=Batch(max=64),
    capacity=Capacity(requests_per_second=4.0),
    objectives=Objectives(ttft_seconds=1.0, ttft_critical_seconds=5.0),
    replicas=ReplicaRange(max=2),
)


def load(kv: float = 0.5, waiting: float = 0, finished: float = 4.0, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict(arrivals=8, running=50, waiting=waiting, ready=1, kv=kv, finished_per_second=finished)
    return values | more


class TestHold:
    def test_it_lasts_until_there_is_room_again_and_not_only_no_emergency(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load()).at("5s", **load(0.97)).expect(admission=Admission.HOLD)
        timeline.at("10s", **load(0.9)).at("60s").expect(admission=Admission.HOLD).held_back(Code.KV_ROOM)
        timeline.at("65s", **load(0.84)).expect(admission=Admission.OPEN).because(Code.RECOVERY)

    def test_preemptions_that_are_over_hold_nobody_back(self) -> None:
        """They are remembered for 15 s; with nobody admitted for so long a real engine ran empty. The batch stays."""
        timeline = Timeline(POLICY).at("0s", **load(0.5)).at("5s", **load(0.97, preempted=3))
        timeline.expect(admission=Admission.HOLD, batch=43)  # 50 x 0.85/0.97
        timeline.at("10s", **load(0.2, running=2, preempted=3)).expect(admission=Admission.OPEN, batch=43)
        timeline.at("15s").expect(admission=Admission.OPEN, batch=43)
        timeline.at("20s", **load(0.9, preempted=2)).expect(admission=Admission.HOLD)

    def test_preemptions_hold_where_nothing_says_that_there_is_room(self) -> None:
        blind = load(0.5, preempted=3)
        del blind["kv"]
        Timeline(POLICY).at("0s", **load(0.5)).at("5s", **blind).expect(admission=Admission.HOLD)

    def test_preemptions_alone_still_shrink_at_once(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load(0.5)).at("5s", **load(0.5, preempted=3))
        timeline.expect(admission=Admission.OPEN, batch=45).because(Code.MEMORY_PRESSURE)  # nine tenths of 50

    def test_doubt_holds_it(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load()).at("5s", **load(0.97)).at("10s", **gone()).at("60s")
        timeline.expect(admission=Admission.HOLD)


class TestShed:
    def test_a_long_hold_with_a_queue_that_comes_too_late_sheds_and_goes_back_by_steps(self) -> None:
        """30 wait at 4 per second: 7.5 s, where 5 s is the bound."""
        timeline = Timeline(POLICY).at("0s", **load()).at("5s", **load(0.97, waiting=30))
        timeline.at("30s").expect(admission=Admission.HOLD)
        timeline.at("35s").expect(admission=Admission.SHED).because(Code.QUEUE_HOPELESS)
        assert timeline.decision is not None
        said = next(reason for reason in timeline.decision.reasons if reason.code is Code.QUEUE_HOPELESS)
        assert (said.target, said.value, said.threshold) == (Target.ADMISSION, 7.5, 5.0)
        # Down to 4.5 s it is not over, below 4 s it is: hold, and then open.
        timeline.at("40s", **load(0.97, waiting=18)).expect(admission=Admission.SHED)
        timeline.at("45s", **load(0.97, waiting=15)).expect(admission=Admission.HOLD).because(Code.RECOVERY)
        timeline.at("50s", **load(0.5, waiting=15)).expect(admission=Admission.OPEN)

    def test_who_waits_at_the_gateway_waits_too(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load()).at("5s", **load(0.97, waiting=10, pending=15)).at("35s")
        timeline.expect(admission=Admission.SHED)

    def test_without_a_hold_no_queue_sheds(self) -> None:
        Timeline(POLICY).at("0s", **load(waiting=500)).at("10m").expect(admission=Admission.OPEN)

    def test_the_capacity_stands_in_for_a_rate_that_is_not_known(self) -> None:
        slow = load(0.97, waiting=30)
        del slow["finished_per_second"]
        Timeline(POLICY).at("0s", **load()).at("5s", **slow).at("35s").expect(admission=Admission.SHED)
        unknown = POLICY.model_copy(update={"capacity": Capacity()})
        Timeline(unknown).at("0s", **load()).at("5s", **slow).at("10m").expect(admission=Admission.HOLD)

    def test_it_can_be_forbidden(self) -> None:
        never = POLICY.model_copy(update={"admission": AdmissionControl(shed_after_seconds=None)})
        Timeline(never).at("0s", **load()).at("5s", **load(0.97, waiting=300)).at("10m").expect(
            admission=Admission.HOLD
        )

    def test_without_a_critical_bound_nothing_comes_too_late(self) -> None:
        unbound = POLICY.model_copy(update={"objectives": Objectives()})
        Timeline(unbound).at("0s", **load()).at("5s", **load(0.97, waiting=300)).at("10m").expect(
            admission=Admission.HOLD
        )


class TestCompanions:
    def test_the_queue_that_is_served_in_time_and_the_workers_that_fill_the_batch(self) -> None:
        """4 per second and a bound of 5 s: 20 may wait."""
        Timeline(POLICY).at("0s", **load()).expect(batch=64, queue_limit=20, workers=64)
        wide = POLICY.model_copy(update={"batch": Batch(max=64, workers_per_sequence=1.25)})
        Timeline(wide).at("0s", **load()).expect(workers=80)

    def test_they_move_with_the_batch(self) -> None:
        Timeline(POLICY).at("0s", **load()).at("5s", **load(0.97)).expect(batch=43, workers=43)

    def test_where_the_capacity_is_not_known_as_many_as_run_may_wait(self) -> None:
        unknown = POLICY.model_copy(update={"capacity": Capacity()})
        Timeline(unknown).at("0s", **load()).expect(queue_limit=64)

    def test_without_a_batch_there_is_nothing_to_say(self) -> None:
        own = POLICY.model_copy(update={"batch": Batch()})
        Timeline(own).at("0s", **load()).expect(batch=None, queue_limit=None, workers=None)

    def test_a_capacity_that_is_measured_anew_does_not_move_the_limit_with_each_tick(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load()).expect(queue_limit=20)
        for mark, rate, limit in (("5s", 4.8, 20), ("10s", 3.1, 20), ("15s", 6.0, 30), ("20s", 5.0, 30)):
            timeline.policy = POLICY.model_copy(update={"capacity": Capacity(requests_per_second=rate)})
            timeline.at(mark, **load()).expect(queue_limit=limit)
