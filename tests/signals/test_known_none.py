"""Endpoints that are known to be none, a list that could not be had, and the target's own replica counts."""

from __future__ import annotations

from scaler.policy.model import Policy
from scaler.signals.model import CATALOG, NOT_FROM_ENGINES, Known, NotApplicable, Stale, Unknown, at_least
from scaler.signals.observation import Demand, ReplicaCounts
from tests.signals.timeline import Timeline, down, pod

NOBODY = "no replica: the name resolves to nothing"
NO_ANSWER = "the name server did not answer"


# Known to be none


def test_with_no_replica_there_is_nothing_for_an_engine_to_say() -> None:
    signals = Timeline().at(0, absent=NOBODY)

    assert signals.ready_replicas == signals.stalled_replicas == signals.asleep_replicas == Known(0.0, 0)
    for name in CATALOG:
        if name not in (*NOT_FROM_ENGINES, "ready_replicas", "stalled_replicas", "asleep_replicas"):
            assert getattr(signals, name) == NotApplicable(NOBODY), name


def test_replicas_that_are_gone_are_not_held() -> None:
    line = Timeline()
    line.at(0, a=pod(running=4, waiting=1, finished=10))

    assert line.at(5, absent=NOBODY).running == NotApplicable(NOBODY)


def test_the_first_replica_after_none_counts_from_zero() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(arrivals=100, started=-900))
    line.at(5, absent=NOBODY)
    line.at(60, absent=NOBODY)
    signals = line.at(65, b=pod(arrivals=5, started=62))

    assert signals.arrivals_last_per_second == Known(1.0, 65)
    assert signals.counters_moved


def test_a_gateway_is_heard_where_there_is_no_replica() -> None:
    signals = Timeline().at(0, absent=NOBODY, demand=Demand(0, 3.0, False, arrivals_per_second=2.0))

    assert signals.pending == Known(3.0, 0)
    assert signals.arrivals_last_per_second == Known(2.0, 0)


def test_none_ready_where_some_are_asked_for_is_unknown_load() -> None:
    # Replicas that fail their readiness probe under load vanish from the name like replicas that do not exist.
    line = Timeline(Policy(hold_seconds=120))
    for counts in (ReplicaCounts(0, ready=0, asked=5), ReplicaCounts(-100, ready=0, asked=5)):
        signals = line.at(0, absent=NOBODY, replicas=counts)
        assert signals.running == Unknown("of 5 replicas asked for none is ready")
        assert signals.ready_replicas == Known(0.0, 0)


def test_none_ready_and_none_asked_for_is_known_zero() -> None:
    for counts in (ReplicaCounts(0, ready=0, asked=0), ReplicaCounts(0, reason="forbidden")):
        assert Timeline().at(0, absent=NOBODY, replicas=counts).running == NotApplicable(NOBODY)


# A list that could not be had


def test_without_a_list_nothing_is_known() -> None:
    signals = Timeline().at(0, lost=NO_ANSWER)

    assert signals.running == signals.ready_replicas == signals.arrivals_per_second == Unknown(NO_ANSWER)


def test_what_the_endpoints_known_before_say_may_raise_but_never_lower() -> None:
    line = Timeline()
    line.at(0, a=pod(running=2, waiting=1, kv_use_mean=0.5))
    signals = line.at(15, lost=NO_ANSWER, a=pod(running=9, waiting=7, kv_use_mean=0.5, kv_use=0.9))

    assert signals.running == Stale(9.0, 15, at_least=9.0)
    assert signals.waiting == Stale(7.0, 15, at_least=7.0)
    assert signals.ready_replicas == Stale(1.0, 15, at_least=1.0)
    assert at_least(signals.kv_use_ratio) == 0.9
    assert at_least(signals.kv_use_mean_ratio) == 0.0  # any number of others may be empty


def test_rates_without_a_whole_list_are_lower_bounds() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(arrivals=0))
    line.at(5, a=pod(arrivals=10))
    signals = line.at(10, lost=NO_ANSWER, a=pod(arrivals=20))

    assert signals.arrivals_per_second == Stale(2.0, 10, at_least=2.0)
    assert signals.arrivals_last_per_second == Stale(2.0, 10, at_least=2.0)


def test_a_lost_list_is_held_like_any_lost_read_and_then_unknown() -> None:
    line = Timeline(Policy(hold_seconds=120))
    line.at(0, a=pod(running=4))

    assert line.at(60, lost=NO_ANSWER, a=down()).running == Stale(4.0, 0)
    assert line.at(121, lost=NO_ANSWER, a=down()).running == Unknown(NO_ANSWER)


def test_a_list_that_is_back_is_whole_again() -> None:
    line = Timeline()
    line.at(0, a=pod(running=4))
    line.at(15, lost=NO_ANSWER, a=pod(running=4))

    assert line.at(30, a=pod(running=4), b=pod(running=1)).running == Known(5.0, 30)


def test_a_replica_first_seen_after_a_lost_list_may_have_served_meanwhile() -> None:
    # b began at 6 s, between two lists that could not be had: what it counted is older than the last interval.
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(arrivals=0))
    for seconds in (5, 10, 15, 20):
        line.at(seconds, lost=NO_ANSWER, a=pod(arrivals=0))
    signals = line.at(25, a=pod(arrivals=0), b=pod(arrivals=190, started=6))

    assert signals.arrivals_last_per_second == Known(10.0, 25)


# The target's own counts


def test_counts_are_known_while_fresh_then_held_then_unknown() -> None:
    line = Timeline(Policy(hold_seconds=120), interval_seconds=15)
    counts = ReplicaCounts(0, ready=1, asked=3, pending=1, unschedulable=1)

    signals = line.at(0, a=pod(), replicas=counts)
    assert signals.asked_replicas == Known(3.0, 0)
    assert signals.pending_replicas == signals.unschedulable_replicas == Known(1.0, 0)
    assert line.at(46, a=pod(), replicas=counts).asked_replicas == Stale(3.0, 0)
    assert line.at(121, a=pod(), replicas=counts).asked_replicas == Unknown(
        "replicas were last counted more than 120 s ago"
    )


def test_a_count_nobody_may_ask_for_is_unknown_and_never_zero() -> None:
    forbidden = ReplicaCounts(0, ready=2, reason="the cluster forbids to get deployments/scale")
    signals = Timeline().at(0, a=pod(), replicas=forbidden)

    assert signals.asked_replicas == Unknown("the cluster forbids to get deployments/scale")
    assert signals.pending_replicas == signals.unschedulable_replicas == signals.asked_replicas
    assert signals.ready_replicas == Known(1.0, 0)


def test_without_anyone_who_counts_the_counts_are_unknown() -> None:
    assert Timeline().at(0, a=pod()).asked_replicas == Unknown("no source counts the target's replicas")
