"""Zero replicas that the cluster itself tells of: engines that do not answer are then no loss."""

from __future__ import annotations

from typing import Any

from scaler.control.model import Code, LoadState
from scaler.policy.model import Batch, Policy, Push, ReplicaRange
from scaler.signals.model import NotApplicable, Stale, Unknown
from tests.control.timeline import Timeline, gone, quiet

WAKEABLE = Policy(push=Push(enabled=True), replicas=ReplicaRange(max=8), batch=Batch(max=64))
NO_DEMAND = dict(pending=0, wake_demand=0)


def traffic(ready: float = 2, **more: Any) -> dict[str, Any]:
    return dict(arrivals=2, recent=2, last=2, running=3, waiting=0, ready=ready) | NO_DEMAND | more


def taken_to_zero_by_another() -> dict[str, Any]:
    return gone() | NO_DEMAND | dict(asked_replicas=0)


def test_where_the_cluster_asks_for_none_silent_engines_are_no_doubt() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic(asked_replicas=2))
    timeline.at("5s", **taken_to_zero_by_another()).expect(available=True, ready=0, state=LoadState.IDLE)
    timeline.at("29m55s").expect(available=True, active=True)
    timeline.at("30m").expect(available=True, active=False, replicas=0).because(Code.IDLE_PROVEN)


def test_where_some_are_asked_for_silence_is_doubt_and_ends_unavailable() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic(asked_replicas=2))
    timeline.at("5s", **gone(), **NO_DEMAND, asked_replicas=2).expect(available=True, replicas=2)
    timeline.at("5m").expect(available=False, replicas=2)


def test_a_count_that_is_not_known_now_proves_no_zero() -> None:
    for doubtful in (Unknown("forbidden"), Stale(0.0, 0.0), NotApplicable("nobody counts")):
        timeline = Timeline(WAKEABLE).at("0s", **traffic(asked_replicas=2))
        timeline.at("5s", **gone(), **NO_DEMAND, asked_replicas=doubtful).at("5m").expect(available=False, replicas=2)


def test_what_an_engine_says_counts_although_none_is_asked_for() -> None:
    draining = dict(running=3, waiting=0, arrivals=Unknown("timed out"), ready=1, asked_replicas=0) | NO_DEMAND
    timeline = Timeline(WAKEABLE).at("0s", **traffic(asked_replicas=2)).at("5s", **draining).at("31m")
    timeline.expect(active=True)


def test_what_one_of_several_engines_says_counts_although_none_is_asked_for() -> None:
    """One of two still runs requests and the other is not read: no sum, and yet not nothing."""
    running = Stale(3.0, 1000.0, at_least=3.0)
    draining = dict(running=running, waiting=0, arrivals=Stale(0.0, 1000.0), ready=Stale(2.0, 1000.0, 1.0))
    timeline = Timeline(WAKEABLE).at("0s", **traffic(asked_replicas=2))
    timeline.at("5s", **draining, **NO_DEMAND, asked_replicas=0).at("31m").expect(active=True)


def test_a_request_that_reaches_an_engine_on_its_way_to_zero_brings_the_workload_back() -> None:
    """Until the cooldown ends replicas serve; what one of them certainly runs must not be taken away with it."""
    timeline = Timeline(WAKEABLE).at("0s", **quiet(2), **NO_DEMAND).at("31m").expect(active=False)
    partly = dict(running=Stale(1.0, 1000.0, at_least=1.0), ready=Stale(2.0, 1000.0, 1.0), arrivals=Stale(0.0, 1000.0))
    timeline.at("31m5s", **partly, waiting=Stale(0.0, 1000.0), **NO_DEMAND).expect(active=True)


def test_demand_wakes_a_workload_that_another_took_to_zero() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic(asked_replicas=2)).at("5s", **taken_to_zero_by_another())
    timeline.at("10m", **gone(), pending=3, wake_demand=0, asked_replicas=0).expect(active=True, available=True)


def test_a_workload_never_seen_is_not_woken_by_knowing_that_none_is_asked_for() -> None:
    asleep = Timeline(WAKEABLE).at("0s", **taken_to_zero_by_another()).expect(available=True, active=False, replicas=0)
    asleep.at("10m").expect(available=True, active=False, replicas=0)
    asleep.at("11m", **gone(), pending=1, wake_demand=0, asked_replicas=0).expect(active=True, replicas=1)


def test_an_empty_list_of_endpoints_is_no_idleness_while_replicas_are_asked_for() -> None:
    """All of them may have failed their readiness probes, under a load that nobody can see any more."""
    nobody = NotApplicable("no replica: the name resolves to nothing")
    absent = dict(arrivals=nobody, last=nobody, running=nobody, waiting=nobody, ready=0) | NO_DEMAND
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **absent).expect(available=True, ready=0)
    before = timeline.decision.targets.replicas  # type: ignore[union-attr]
    timeline.at("3h").expect(active=True, replicas=before)
    timeline.at("3h5s", **absent, asked_replicas=0).at("3h35m").expect(active=False, replicas=0)


def test_replicas_without_a_node_neither_serve_nor_prove_anything() -> None:
    stuck = quiet(1) | NO_DEMAND | dict(asked_replicas=3, pending_replicas=0, unschedulable_replicas=2)
    Timeline(WAKEABLE).at("0s", **stuck).expect(ready=1, available=True).at("5s").expect(state=LoadState.IDLE)
