"""What gateways told of demand: sums, silence, wakes, and how much is remembered."""

from __future__ import annotations

import pytest

from scaler.policy.model import Push
from scaler.serve.inbox import FORGET_AFTER_SECONDS, MAX_SOURCES, DemandInbox, TooManySourcesError
from scaler.signals.observation import Demand

ON_DEMAND = Push(enabled=True)
PROMISED = Push(enabled=True, report_every_seconds=10)


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Gateway:
    """An inbox with its clock: ``told(at)`` is what a tick at ``at`` seconds would read."""

    def __init__(self, push: Push) -> None:
        self.push = push
        self.clock = Clock()
        self.inbox = DemandInbox(push, self.clock)

    def at(self, seconds: float) -> DemandInbox:
        self.clock.seconds = 1000.0 + seconds
        return self.inbox

    def told(self, seconds: float) -> Demand:
        demand = self.at(seconds).read(self.clock(), self.push)
        assert demand is not None
        return demand


def test_a_workload_without_push_has_no_wake_source() -> None:
    inbox = DemandInbox(Push(), Clock())
    inbox.wake()
    assert inbox.read(1000.0, Push()) is None


def test_without_a_promise_silence_is_zero_demand() -> None:
    gateway = Gateway(ON_DEMAND)
    assert gateway.told(0) == Demand(1000.0, 0.0, False, None)


def test_a_report_counts_for_its_time_to_live_and_then_is_zero() -> None:
    gateway = Gateway(ON_DEMAND)
    gateway.at(0).report(3, arrivals_per_second=1.5)
    assert (gateway.told(60).pending, gateway.told(60).arrivals_per_second) == (3, 1.5)
    assert (gateway.told(61).pending, gateway.told(61).arrivals_per_second) == (0, 0.0)


def test_sources_add_up_and_each_replaces_its_own_last_report() -> None:
    gateway = Gateway(ON_DEMAND)
    gateway.at(0).report(3, source="a")
    gateway.at(1).report(4, arrivals_per_second=2, source="b")
    gateway.at(2).report(1, source="a")
    assert (gateway.told(2).pending, gateway.told(2).arrivals_per_second) == (5, 2)


def test_a_flow_that_nobody_tells_is_not_told_as_zero() -> None:
    gateway = Gateway(ON_DEMAND)
    gateway.at(0).report(3)
    assert gateway.told(1).arrivals_per_second is None


def test_with_a_promise_nothing_heard_yet_is_unknown() -> None:
    told = Gateway(PROMISED).told(0)
    assert (told.pending, told.arrivals_per_second, told.reason) == (None, None, "no gateway has reported yet")


def test_with_a_promise_silence_beyond_two_reports_is_unknown() -> None:
    gateway = Gateway(PROMISED)
    gateway.at(0).report(0)
    assert gateway.told(20).pending == 0
    told = gateway.told(21)
    assert told.pending is None
    assert told.reason == "the gateway has been silent for 21 s; it should report every 10 s"


def test_a_promised_report_does_not_lapse_into_zero_before_the_next_is_due() -> None:
    gateway = Gateway(Push(enabled=True, report_every_seconds=60, demand_ttl_seconds=10))
    gateway.at(0).report(7)
    assert gateway.told(59).pending == 7


def test_one_silent_gateway_leaves_the_others_a_lower_bound_that_may_raise_but_not_prove_zero() -> None:
    gateway = Gateway(PROMISED)
    gateway.at(0).report(4, source="a")
    gateway.at(30).report(2, source="b")
    told = gateway.told(30)
    assert told.pending == 2
    assert told.reason == "gateway 'a' has been silent for 30 s; it should report every 10 s"
    gateway.at(31).report(0, source="b")
    assert gateway.told(31).pending is None


def test_a_gateway_pod_that_was_replaced_does_not_make_demand_unknown_for_ever() -> None:
    gateway = Gateway(PROMISED)
    gateway.at(0).report(4, source="old-pod")
    gateway.at(FORGET_AFTER_SECONDS + 1).report(0, source="new-pod")
    assert gateway.told(FORGET_AFTER_SECONDS + 1).pending == 0


def test_a_wake_is_latched_until_a_replica_is_ready() -> None:
    gateway = Gateway(ON_DEMAND)
    gateway.at(0).wake()
    assert gateway.told(600).wake_requested
    gateway.at(601).clear_wake()
    assert not gateway.told(601).wake_requested


def test_a_wake_outlives_a_load_that_fails_and_ends_when_its_time_is_over() -> None:
    gateway = Gateway(Push(enabled=True, wake_ttl_seconds=1800))
    gateway.at(0).wake()
    assert gateway.told(901).wake_requested
    assert gateway.told(1800).wake_requested
    assert not gateway.at(1800).give_up_wake()
    assert not gateway.told(1801).wake_requested
    assert gateway.at(1801).give_up_wake()
    assert not gateway.at(1802).give_up_wake()  # it is said once


def test_a_wake_goes_by_the_policy_of_the_moment() -> None:
    gateway = Gateway(Push(enabled=True, wake_ttl_seconds=1800))
    gateway.at(0).wake()
    gateway.push = Push(enabled=True, wake_ttl_seconds=60)
    gateway.inbox.follow(gateway.push)
    assert not gateway.told(61).wake_requested
    assert gateway.at(61).give_up_wake()


def test_a_wake_that_was_remembered_is_as_old_as_it_was() -> None:
    gateway = Gateway(Push(enabled=True, wake_ttl_seconds=100))
    gateway.at(0).wake(seconds_ago=70)
    assert gateway.inbox.wake_age_seconds() == 70
    assert gateway.told(30).wake_requested
    assert not gateway.told(31).wake_requested
    gateway.inbox.clear_wake()
    assert gateway.inbox.wake_age_seconds() is None


def test_reading_moves_nothing() -> None:
    gateway = Gateway(PROMISED)
    gateway.at(0).report(4, source="a")
    gateway.at(0).wake()
    assert [gateway.told(5) for _ in range(10)] == [gateway.told(5)] * 10


@pytest.mark.parametrize("push", [ON_DEMAND, PROMISED])
def test_a_caller_that_invents_names_is_refused_and_the_others_stay(push: Push) -> None:
    gateway = Gateway(push)
    for number in range(MAX_SOURCES):
        gateway.at(0).report(1, source=f"gateway-{number}")
    with pytest.raises(TooManySourcesError, match="64 sources"):
        gateway.at(0).report(1, source="one-more")
    gateway.at(0).report(2, source="gateway-0")
    assert gateway.told(0).pending == MAX_SOURCES + 1
    gateway.at(FORGET_AFTER_SECONDS + 1).report(1, source="one-more")
    assert gateway.told(FORGET_AFTER_SECONDS + 1).pending == 1
