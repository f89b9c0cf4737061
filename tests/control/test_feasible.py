"""An objective that no replica can keep, however empty it is, is said to be infeasible and buys nothing."""

from __future__ import annotations

from typing import Any

import pytest

from scaler.control.feasible import EmptyReplicas, Unhurried, infeasible_bounds, seen_empty, without
from scaler.control.model import Cause, Code, LoadState, Memory
from scaler.policy.model import Batch, Capacity, Objectives, Policy, ReplicaRange
from tests.control.timeline import Timeline, latency, signals

POLICY = Policy(
    objectives=Objectives(tpot_seconds=0.05, tpot_critical_seconds=0.1, ttft_seconds=1.0),
    capacity=Capacity(requests_per_second=4, sequences=20),
    batch=Batch(max=64),
    replicas=ReplicaRange(max=20, cold_start_seconds=60),
)


def load(running: float, tpot: float, *, ready: float = 2, **more: Any) -> dict[str, Any]:
    measured = dict(tpot=latency(tpot), ttft=latency(0.1), e2e=latency(4.0, mean=3.0, samples=30), kv=0.1)
    return dict(arrivals=2, recent=2, last=2, running=running, waiting=0, ready=ready, identity="m") | measured | more


def emptied(seconds: float, tpot: float, **more: Any) -> EmptyReplicas:
    return seen_empty(
        EmptyReplicas(identity="m", seconds=seconds),
        POLICY,
        signals(0.0, **load(3, tpot) | more),
        sequences=20,
        residence_seconds=4.0,
        elapsed_seconds=5.0,
    )


class TestSeen:
    def test_a_window_counts_when_all_of_its_requests_ran_in_nearly_empty_replicas(self) -> None:
        assert emptied(54, 0.06).tpot.requests == 0  # a window and a residence are 64 s
        assert emptied(59, 0.06).tpot == Unhurried(pytest.approx(0.06, rel=0.01), 100)
        assert emptied(59, 0.06).seconds == pytest.approx(4.0)  # the next window counts a window later

    @pytest.mark.parametrize("busy", [{"running": 5}, {"waiting": 1}, {"ready": 1}])
    def test_whatever_is_busy_begins_the_window_anew(self, busy: dict[str, Any]) -> None:
        """A tenth of L* is two sequences each."""
        assert emptied(59, 0.06, **busy) == EmptyReplicas(identity="m")

    def test_what_is_not_known_is_not_empty(self) -> None:
        lost = signals(0.0, **{**load(3, 0.06), "waiting": None})
        seen = seen_empty(
            EmptyReplicas(seconds=59), POLICY, lost, sequences=20, residence_seconds=4.0, elapsed_seconds=5.0
        )
        assert seen.seconds == 0.0

    def test_another_kind_of_replica_begins_anew(self) -> None:
        before = EmptyReplicas("other", 59.0, tpot=Unhurried(0.2, 100))
        seen = seen_empty(
            before, POLICY, signals(0.0, **load(3, 0.06)), sequences=20, residence_seconds=4.0, elapsed_seconds=5.0
        )
        assert seen == EmptyReplicas("m", 5.0)


class TestInfeasible:
    def test_less_than_a_fifth_above_an_empty_replica_is_infeasible(self) -> None:
        for p95, bounds in ((0.041, ()), (0.0425, ("tpot",)), (0.09, ("tpot", "tpot_critical"))):
            assert tuple(infeasible_bounds(POLICY, EmptyReplicas(tpot=Unhurried(p95, 30)))) == bounds

    def test_few_requests_prove_nothing(self) -> None:
        assert infeasible_bounds(POLICY, EmptyReplicas(tpot=Unhurried(1.0, 19))) == {}

    def test_the_laws_see_no_such_objective(self) -> None:
        left = without(POLICY, {"tpot": (0.06, 0.05)}).objectives
        assert (left.tpot_seconds, left.tpot_critical_seconds, left.ttft_seconds) == (None, 0.1, 1.0)
        assert without(POLICY, {}) is POLICY


class TestOverTime:
    def test_it_buys_nothing_is_no_critical_state_and_is_said(self) -> None:
        """The empty engine has 60 ms; 50 are promised. Without this each cold start bought one replica more."""
        slow = load(3, 0.06)
        timeline = Timeline(POLICY).at("0s", **slow).at("30s").expect(need=3, cause=Cause.STEP)
        timeline.at("5m").expect(cause=None).because(Code.INFEASIBLE)
        assert timeline.decision is not None
        said = next(reason for reason in timeline.decision.reasons if reason.code is Code.INFEASIBLE)
        assert (said.signal, said.threshold) == ("tpot_seconds", 0.05)
        assert said.value == pytest.approx(0.06, rel=0.01)
        assert timeline.decision.verdicts["tpot"] == "infeasible"
        assert timeline.decision.verdicts["ttft"] == "met"
        timeline.at("30m").expect(replicas=1, state=LoadState.LOW)

    def test_nor_does_a_critical_bound_below_what_an_empty_engine_takes(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load(3, 0.2)).expect(state=LoadState.CRITICAL)
        timeline.at("5m").expect(cause=None, replicas=3)
        assert timeline.decision is not None
        assert timeline.decision.state is not LoadState.CRITICAL
        timeline.at("30m").expect(replicas=1)

    def test_what_can_be_kept_is_still_protected(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load(3, 0.06)).at("5m").because(Code.INFEASIBLE)
        late = load(30, 0.06, waiting=20, ttft=latency(3.0), arrivals=8, queueing_replicas=2)
        timeline.at("5m5s", **late).expect(cause=Cause.QUEUEING)

    def test_it_teaches_no_capacity(self) -> None:
        """Windows that break what cannot be kept would put L* at what ran in them."""
        timeline = Timeline(POLICY).at("0s", **load(3, 0.06)).at("20m")
        assert timeline.decision is not None
        assert timeline.decision.capacity.sequences == 20

    def test_a_rollout_to_a_faster_engine_has_the_objective_back(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load(3, 0.06)).at("5m").because(Code.INFEASIBLE)
        timeline.at("5m5s", **load(3, 0.02, identity="faster")).at("10m")
        assert timeline.decision is not None
        assert timeline.decision.verdicts["tpot"] == "met"

    def test_it_is_remembered_over_a_restart(self) -> None:
        timeline = Timeline(POLICY).at("0s", **load(3, 0.06)).at("5m").restarted()
        assert timeline.memory != Memory()
        timeline.at("5m5s").because(Code.INFEASIBLE)
