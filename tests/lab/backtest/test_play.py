"""The scaler's own replicas over a past: they load, they are asked for, they go, and zero is proven first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from scaler.lab.backtest.crowd import UNHURRIED
from scaler.lab.backtest.past import PackedTicks, Tick
from scaler.lab.backtest.play import MOST_REPLICAS, Moment, Player, Replicas, scaled_object
from scaler.policy.model import Policy
from scaler.signals.model import Known, NotApplicable, Signals, Unknown
from tests.lab.backtest.remembered import BEGIN
from tests.lab.backtest.replaying import policy_of

TICK = 15.0
#: Five sequences at once, one request a second: so much a replica serves.
SERVES = {"capacity.sequences": "5", "capacity.requestsPerSecond": "1", "replicas.max": "20", "batch.max": "64"}


def quiet(unix: float) -> Signals:
    nothing = NotApplicable("no request finished in the window")
    zero = Known(0.0, unix)
    return Signals(
        arrivals_per_second=zero,
        arrivals_recent_per_second=zero,
        arrivals_last_per_second=zero,
        finished_per_second=zero,
        running=zero,
        waiting=zero,
        ready_replicas=Known(1.0, unix),
        stalled_replicas=zero,
        ttft_seconds=nothing,
        tpot_seconds=nothing,
        e2e_seconds=nothing,
        queue_seconds=nothing,
        pending=NotApplicable("no wake source is configured"),
        wake_demand=NotApplicable("no wake source is configured"),
    )


def busy(unix: float, rate: float) -> Signals:
    flow = Known(rate, unix)
    return replace(
        quiet(unix),
        arrivals_per_second=flow,
        arrivals_recent_per_second=flow,
        arrivals_last_per_second=flow,
        finished_per_second=flow,
        running=Known(5 * rate, unix),
        counters_moved=rate > 0,
    )


def ticks(seconds: float, rate: Callable[[float], float], *, ran: float = 1.0) -> list[Tick]:
    found = []
    for number in range(1, int(seconds / TICK) + 1):
        at = number * TICK
        signals = busy(BEGIN + at, rate(at)) if rate(at) else quiet(BEGIN + at)
        found.append(Tick(BEGIN + at, "measured", signals, ran, ran))
    return found


def played(past: Iterable[Tick], policy: Policy, cold_start: float = 60.0) -> tuple[list[Moment], Player]:
    player = Player(policy, UNHURRIED, cold_start, TICK)
    return list(player.play(past)), player


def at(moments: list[Moment], seconds: float) -> Moment:
    return next(moment for moment in moments if moment.unix == BEGIN + seconds)


def test_it_begins_with_the_replicas_that_ran() -> None:
    moments, _ = played(ticks(60, lambda at: 3.0, ran=3.0), policy_of(**SERVES))
    assert (moments[0].ready, moments[0].asked) == (3, 3)


def test_a_rise_is_answered_at_once_and_serves_after_the_cold_start() -> None:
    moments, player = played(ticks(600, lambda at: 1.0 if at <= 120 else 4.0), policy_of(**SERVES), 60.0)
    wished = player.changes[0]
    assert (wished.unix - BEGIN, wished.before, wished.after) == (135, 1, 4)
    # The HPA looks every 15 s, here at the same second as the scaler: one tick later.
    assert [at(moments, seconds).asked for seconds in (135, 150)] == [1, 4]
    assert [at(moments, seconds).ready for seconds in (195, 210)] == [1, 4]
    assert at(moments, 150).need == pytest.approx(4.0)


def test_what_runs_by_chance_in_single_moments_is_no_need_above_the_replicas() -> None:
    """Nine tenths of what a replica serves, on average; in every other moment more than L*, as chance has it."""
    steady = enumerate(ticks(1800, lambda at: 0.9))
    past = [
        tick._replace(signals=replace(tick.signals, running=Known(5.7 if number % 2 else 3.3, tick.unix)))
        for number, tick in steady
    ]
    moments, _ = played(past, policy_of(**SERVES))
    assert max(moment.in_flight or 0.0 for moment in moments) == 5.7
    assert all(moment.need is not None and moment.need <= moment.ready for moment in moments)
    assert all(moment.ran_need is not None and moment.ran_need <= 1.0 for moment in moments)
    more = [tick._replace(signals=replace(tick.signals, running=Known(5.7, tick.unix))) for tick in past]
    moments, _ = played(more, policy_of(**SERVES))
    assert moments[20].ran_need == pytest.approx(5.7 / 5), "what lasts is need"


def test_a_longer_cold_start_is_a_longer_time_at_risk() -> None:
    def short(cold_start: float) -> int:
        moments, _ = played(ticks(900, lambda at: 1.0 if at <= 120 else 4.0), policy_of(**SERVES), cold_start)
        return sum(1 for moment in moments if (moment.need or 0) > moment.ready)

    assert short(30.0) < short(120.0) < short(300.0)


def test_the_way_down_waits_for_the_window_and_is_taken_in_halves() -> None:
    moments, _ = played(ticks(900, lambda at: 8.0 if at <= 60 else 1.0, ran=8.0), policy_of(**SERVES))
    asked = [moment.asked for moment in moments]
    assert asked[: int(330 / TICK)] == [8] * int(330 / TICK)
    assert asked[-1] in (1, 2)
    assert all(after >= before / 2 for before, after in pairwise(asked))


def test_zero_needs_something_that_can_wake_and_half_an_hour_of_nothing() -> None:
    past = ticks(3000, lambda at: 1.0 if at <= 300 else 0.0)
    kept, _ = played(past, policy_of(**SERVES))
    assert {moment.asked for moment in kept} == {1}
    slept, _ = played(past, policy_of(**SERVES, **{"push.enabled": "true"}))
    assert at(slept, 2070).asked == 1
    assert at(slept, 2220).asked == 0


def test_at_zero_a_request_of_the_past_wakes_it() -> None:
    """What came in the past comes to the gateway then, and a push is enacted within the second."""
    past = ticks(4200, lambda at: 1.0 if at <= 300 or at > 3600 else 0.0)
    moments, player = played(past, policy_of(**SERVES, **{"push.enabled": "true"}), 120.0)
    assert at(moments, 3600).asked == 0
    assert at(moments, 3630).asked >= 1
    assert at(moments, 3630).ready == 0
    assert at(moments, 3780).ready >= 1
    woke = next(change for change in player.changes if change.unix > BEGIN + 3600)
    assert (woke.before, woke.reason.code if woke.reason else None) == (0, "demand_from_zero")


def test_at_zero_it_wakes_when_the_past_was_woken_though_nobody_saw_why() -> None:
    """Requests at a gateway are in no engine's series; a replica that was asked for is."""
    past = ticks(4200, lambda at: 1.0 if at <= 300 else 0.0)
    nothing = Signals(pending=NotApplicable("no wake source is configured"))
    for index, tick in enumerate(past):
        if index >= 140:  # 35 min: the past had none, and from an hour on one that loads
            past[index] = Tick(tick.unix, "none ready", nothing, 0.0, 1.0 if index >= 240 else 0.0)
    moments, _ = played(past, policy_of(**SERVES, **{"push.enabled": "true"}), 120.0)
    assert at(moments, 3600).asked == 0
    assert at(moments, 3630).asked == 1


def test_a_gap_holds_what_there_is() -> None:
    past = ticks(1800, lambda at: 4.0, ran=4.0)
    lost = Unknown("the server recorded nothing of anybody")
    for index in range(40, 80):
        unix = past[index].unix
        past[index] = Tick(unix, "gap", Signals(running=lost, waiting=lost, ready_replicas=lost), None, None)
    moments, _ = played(past, policy_of(**SERVES))
    held = [moment for moment in moments if moment.kind == "gap"]
    assert len(held) == 40
    assert {moment.asked for moment in held} == {at(moments, 600).asked}
    assert [moment.available for moment in held][:8] == [True] * 8
    assert not held[-1].available, "after hold_seconds it is honest about it"


def test_before_anything_is_known_nothing_is_played() -> None:
    past = [Tick(BEGIN + 15, "gap", Signals(), None, None), *ticks(60, lambda at: 1.0)[1:]]
    moments, _ = played(past, policy_of(**SERVES))
    assert moments[0].unix == BEGIN + 30


def test_loading_replicas_go_first_and_ready_ones_only_after_them() -> None:
    replicas = Replicas(60.0, ready=2)
    replicas.move(0.0, 5)
    assert (replicas.had.ready, replicas.had.loading) == (2, 3)
    replicas.move(10.0, 3)
    assert (replicas.had.ready, replicas.had.loading) == (2, 1)
    replicas.move(60.0, 1)
    assert (replicas.had.ready, replicas.had.loading) == (1, 0) or replicas.had.asked == 1
    assert replicas.changes == 3
    replicas.move(120.0, 1)
    assert replicas.changes == 3


def test_the_scaled_object_has_the_policy_s_bounds() -> None:
    what = scaled_object(policy_of(**{"replicas.min": "2", "replicas.max": "7"}))
    assert (what.min_replicas, what.max_replicas) == (2, 7)
    assert scaled_object(policy_of()).min_replicas == 1, "nothing could wake it"
    assert scaled_object(policy_of(**{"push.enabled": "true"})).min_replicas == 0
    assert scaled_object(policy_of()).max_replicas == MOST_REPLICAS


def test_packed_ticks_come_back_as_they_were() -> None:
    past = ticks(30_000, lambda at: at % 7)
    packed = PackedTicks()
    for tick in past:
        packed.append(tick)
    assert len(packed) == len(past) == 2000
    assert list(packed) == past
    assert list(packed) == past
