"""The past's signals with other replicas in it: totals stay totals, latencies become bounds, doubt stays doubt."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.lab.backtest.counterfactual import Had, Released, at_zero, cap_of, measured_instead
from scaler.lab.backtest.crowd import UNHURRIED, Crowd, Pace
from scaler.policy.model import Policy
from scaler.signals.model import (
    Interval,
    Known,
    Latency,
    NotApplicable,
    Signals,
    Stale,
    Unknown,
    known_value,
    status,
)
from tests.lab.backtest.replaying import policy_of

NOW = 1000.0
POLICY = policy_of(**{"push.enabled": "true"})


def latency(low: float, high: float, mean: float) -> Known[Latency]:
    interval = Interval(low, high)
    return Known(Latency(interval, interval, interval, mean, 100.0), NOW)


def past(running: float = 20.0, waiting: float = 0.0, kv: float = 0.4) -> Signals:
    return Signals(
        arrivals_per_second=Known(2.0, NOW),
        finished_per_second=Known(2.0, NOW),
        running=Known(running, NOW),
        waiting=Known(waiting, NOW),
        busiest_running=Known(running / 2, NOW),
        queueing_replicas=Known(1.0 if waiting else 0.0, NOW),
        ready_replicas=Known(2.0, NOW),
        asked_replicas=Known(2.0, NOW),
        kv_use_ratio=Known(kv, NOW),
        preemptions_recent=Known(3.0, NOW),
        ttft_seconds=latency(0.5, 1.0, 0.7),
        tpot_seconds=latency(0.02, 0.05, 0.03),
        e2e_seconds=latency(5.0, 10.0, 7.0),
        queue_seconds=latency(0.0, 1.0, 0.2),
    )


def instead(
    ready: int,
    signals: Signals,
    *,
    ran: float = 2.0,
    crowd: Crowd | None = None,
    pace: Pace = UNHURRIED,
    policy: Policy = POLICY,
) -> Signals:
    return measured_instead(signals, ran, Had(ready, ready), crowd or Crowd(), pace, policy, NOW)


def p95(signals: Signals, name: str = "ttft") -> Interval:
    found = known_value(getattr(signals, f"{name}_seconds"))
    assert found is not None
    return found.p95


@given(st.floats(0, 500), st.floats(0, 500), st.floats(0, 1))
def test_with_the_same_replicas_only_the_counts_are_the_scaler_s(running: float, waiting: float, kv: float) -> None:
    before = past(running, waiting, kv)
    found = measured_instead(before, 2.0, Had(2, 3), Crowd(), UNHURRIED, POLICY, NOW)
    assert found.ready_replicas == Known(2.0, NOW)
    assert found.asked_replicas == Known(3.0, NOW)
    assert found.pending_replicas == Known(1.0, NOW)
    own = ("ready_replicas", "asked_replicas", "pending_replicas", "unschedulable_replicas", "pending", "wake_demand")
    assert replace(before, **{name: getattr(found, name) for name in own}) == found


@given(st.integers(1, 30), st.floats(0, 300), st.floats(0, 300))
def test_what_runs_and_waits_adds_up_to_what_was_in_flight(ready: int, running: float, waiting: float) -> None:
    found = instead(ready, past(running, waiting))
    total = (known_value(found.running) or 0.0) + (known_value(found.waiting) or 0.0)
    assert total == pytest.approx(running + waiting)
    assert 0 <= (known_value(found.queueing_replicas) or 0.0) <= ready


def test_with_more_replicas_a_latency_is_known_from_above_only() -> None:
    found = instead(4, past())
    assert p95(found) == Interval(0.0, 1.0)
    assert p95(found, "tpot") == Interval(0.0, 0.05)


def test_with_fewer_replicas_from_below_only() -> None:
    found = instead(1, past())
    assert p95(found) == Interval(0.5, math.inf)


def test_so_an_objective_is_never_broken_or_kept_by_a_number_of_other_replicas() -> None:
    """P95 was between 0.5 and 1 s."""
    fewer, same, more = (known_value(instead(ready, past()).ttft_seconds) for ready in (1, 2, 4))
    assert fewer is not None
    assert same is not None
    assert more is not None
    assert [each.against(1.0, 20) for each in (fewer, same, more)] == ["undecided", "met", "met"]
    assert [each.against(0.5, 20) for each in (fewer, same, more)] == ["breached", "breached", "undecided"]


def test_fewer_replicas_prove_no_breach_while_the_past_s_had_more_than_their_load() -> None:
    troubled = Crowd(explained_seconds=30.0)
    assert p95(instead(1, past(), crowd=troubled)) == Interval(0.0, math.inf)


def test_with_more_replicas_but_behind_neither_end_is_certain() -> None:
    behind = Crowd(ran=20.0, instead=60.0)
    assert p95(instead(4, past(), crowd=behind)) == Interval(0.0, math.inf)


def test_mean_times_are_as_much_slower_as_the_model_says() -> None:
    pace = Pace(0.01, 0.001, 100)  # twice as slow at ten
    found = known_value(instead(1, past(running=20.0), pace=pace).e2e_seconds)
    assert found is not None
    assert found.mean_seconds == pytest.approx(7.0 * (1 + 20 / 10) / (1 + 10 / 10))


def test_a_queue_is_worked_on_by_more_replicas_and_grows_before_fewer() -> None:
    """Two ran ten each, and forty waited: that is all a replica takes at once."""
    queued = past(running=20.0, waiting=40.0)
    found = [instead(ready, queued) for ready in (1, 2, 4)]
    assert [known_value(each.running) for each in found] == [10.0, 20.0, 40.0]
    assert [known_value(each.waiting) for each in found] == [50.0, 40.0, 20.0]


def test_a_queue_at_one_of_many_replicas_is_not_spread_over_the_others() -> None:
    """Fourteen ran, and all that waited did so at one: with thirteen it is the same queue, and still at one."""
    stuck = past(running=80.0, waiting=250.0)
    found = instead(13, stuck, ran=14.0)
    assert (known_value(found.running), known_value(found.waiting)) == (80.0, 250.0)
    assert known_value(found.queueing_replicas) == 1.0
    elsewhere = instead(13, stuck, ran=14.0, crowd=Crowd(ran=90.0, instead=100.0))
    assert known_value(elsewhere.waiting) == 0.0, "with another past nobody would have been stuck"


def test_no_more_runs_than_the_declared_batch_holds() -> None:
    policy = policy_of(**{"batch.max": "8"})
    found = instead(1, past(running=20.0), policy=policy)
    assert (known_value(found.running), known_value(found.waiting)) == (8.0, 12.0)
    assert cap_of(policy, replace(past(), applied_batch=Known(4.0, NOW))) == 4.0
    assert cap_of(Policy(), past()) == math.inf


def test_memory_use_shrinks_with_more_and_is_at_least_what_it_was_with_fewer() -> None:
    """What is known at one end only can raise as far as it goes, and lowers nothing."""
    assert known_value(instead(4, past(kv=0.9)).kv_use_ratio) == pytest.approx(0.45)
    assert instead(1, past(kv=0.6)).kv_use_ratio == Stale(0.6, NOW, 0.6)
    assert instead(4, past()).preemptions_recent == Stale(3.0, NOW, 0.0)
    assert instead(1, past()).preemptions_recent == Stale(3.0, NOW, 3.0)
    calm = replace(past(), preemptions_recent=Known(0.0, NOW))
    assert instead(4, calm).preemptions_recent == Known(0.0, NOW), "with more replicas nobody would have been preempted"
    assert instead(1, calm).preemptions_recent == Stale(0.0, NOW, 0.0), "with fewer, who knows"


def test_doubt_stays_doubt() -> None:
    doubtful = replace(past(), running=Stale(20.0, NOW, 10.0), ttft_seconds=Unknown("lost"))
    found = instead(1, doubtful)
    assert found.running == Stale(20.0, NOW, 10.0)
    assert found.ttft_seconds == Unknown("lost")
    assert found.ready_replicas == Known(1.0, NOW)


def test_without_any_replica_the_gateway_holds_what_is_in_flight() -> None:
    found = measured_instead(past(), 2.0, Had(0, 1), Crowd(ran=20.0, instead=50.0), UNHURRIED, POLICY, NOW)
    assert found.pending == Known(pytest.approx(50.0), NOW)
    assert found.ready_replicas == Known(0.0, NOW)
    assert found.asked_replicas == Known(1.0, NOW)
    assert status(found.running) == "unknown", "one is asked for: it may just have stopped being ready"
    asked_for_none = measured_instead(past(), 2.0, Had(0, 0), Crowd(), UNHURRIED, POLICY, NOW)
    assert isinstance(asked_for_none.running, NotApplicable)


def test_where_nothing_can_wake_nobody_tells_of_demand_at_zero() -> None:
    found = measured_instead(past(), 2.0, Had(0, 0), Crowd(), UNHURRIED, policy_of(), NOW)
    assert isinstance(found.pending, NotApplicable)


def test_a_gateway_s_own_queue_is_added_to_what_is_in_flight() -> None:
    told = replace(past(), pending=Known(5.0, NOW))
    found = measured_instead(told, 2.0, Had(0, 0), Crowd(), UNHURRIED, policy_of(), NOW)
    assert found.pending == Known(25.0, NOW)
    assert instead(2, told).pending == Known(5.0, NOW)


def test_who_asked_for_a_replica_while_none_was_ready_had_a_reason() -> None:
    """It wakes the scaler's, if it has none either and anything may wake it."""
    woken = at_zero(replace(past(), wake_demand=NotApplicable("none")), NOW, woken=True)
    asleep = measured_instead(woken, 0.0, Had(0, 0), Crowd(), UNHURRIED, POLICY, NOW)
    assert asleep.wake_demand == Known(1.0, NOW)
    assert measured_instead(woken, 0.0, Had(2, 2), Crowd(), UNHURRIED, POLICY, NOW).wake_demand == Known(1.0, NOW)
    nobody = measured_instead(woken, 0.0, Had(2, 2), Crowd(), UNHURRIED, policy_of(), NOW)
    assert isinstance(nobody.wake_demand, NotApplicable)


def test_what_the_gateway_held_reaches_the_first_replica_at_once() -> None:
    def rates(seconds: float) -> list[float | None]:
        before = replace(past(), arrivals_recent_per_second=Known(2.0, NOW), arrivals_last_per_second=Known(2.0, NOW))
        found = Released(60.0, seconds).seen_in(before, 60.0, 15.0)
        names = ("arrivals_per_second", "arrivals_recent_per_second", "arrivals_last_per_second")
        return [known_value(getattr(found, name)) for name in names]

    assert rates(0.0) == [3.0, 6.0, 6.0]
    assert rates(15.0) == [3.0, 2.0, 2.0]
    assert rates(60.0) == [2.0, 2.0, 2.0]
    doubtful = Signals(arrivals_per_second=Stale(2.0, NOW))
    assert Released(60.0, 0.0).seen_in(doubtful, 60.0, 15.0) == doubtful


def test_at_zero_nothing_is_wanted_and_nothing_is_slow() -> None:
    found = at_zero(Signals(), NOW, woken=False)
    assert [known_value(getattr(found, name)) for name in ("arrivals_per_second", "running", "waiting")] == [0, 0, 0]
    assert isinstance(found.ttft_seconds, NotApplicable)
    assert not found.counters_moved
