"""The fluid model: with equal replicas it changes nothing, with more there is never more in flight, and it knows the
queue of a replica that cannot keep up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.lab.backtest.crowd import UNHURRIED, Crowd, Pace, fit_pace, pace_point
from scaler.signals.model import Interval, Known, Latency, Signals, Unknown

#: Twice as slow at 40 sequences.
PACE = Pace(0.01, 0.00025, 100)
TICK = 15.0


def latency(mean: float, samples: float = 100.0) -> Known[Latency]:
    anywhere = Interval(0.0, math.inf)
    return Known(Latency(anywhere, anywhere, anywhere, mean, samples), 0.0)


def measured(
    arrivals: float, running: float, *, e2e: float = 10.0, waiting: float = 0.0, token: float = 0.01
) -> Signals:
    return Signals(
        arrivals_per_second=Known(arrivals, 0.0),
        arrivals_last_per_second=Known(arrivals, 0.0),
        finished_per_second=Known(arrivals, 0.0),
        running=Known(running, 0.0),
        waiting=Known(waiting, 0.0),
        e2e_seconds=latency(e2e),
        queue_seconds=latency(0.0),
        tpot_seconds=latency(token),
    )


def after(
    ticks: int, past: Signals, ran: float, instead: int, cap: float = math.inf, crowd: Crowd | None = None
) -> Crowd:
    crowd = crowd or Crowd()
    for _ in range(ticks):
        crowd = crowd.after(past, ran, instead, PACE, cap, TICK)
    return crowd


rates = st.floats(0.0, 50.0)
counts = st.integers(1, 40)


@given(st.lists(st.tuples(rates, st.floats(0, 500), counts), min_size=1, max_size=20))
def test_with_the_replicas_that_ran_what_was_measured_is_what_would_have_been(
    history: list[tuple[float, float, int]],
) -> None:
    crowd = Crowd()
    for arrivals, running, ran in history:
        crowd = crowd.after(measured(arrivals, running), float(ran), ran, PACE, math.inf, TICK)
        assert crowd.in_flight(running) == running


@given(st.lists(st.tuples(rates, counts), min_size=1, max_size=15), counts, st.integers(0, 20))
def test_more_replicas_never_leave_more_in_flight(history: list[tuple[float, int]], fewer: int, more: int) -> None:
    one = other = Crowd()
    for arrivals, ran in history:
        one = one.after(measured(arrivals, 10.0), float(ran), fewer, PACE, 64.0, TICK)
        other = other.after(measured(arrivals, 10.0), float(ran), fewer + more, PACE, 64.0, TICK)
        assert other.instead <= one.instead + 1e-6


@given(st.lists(st.tuples(rates, st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=15), st.floats(0, 1000))
def test_it_is_never_negative_and_never_more_than_came(history: list[tuple[float, int, int]], in_flight: float) -> None:
    crowd, came = Crowd(), 0.0
    for arrivals, ran, instead in history:
        crowd = crowd.after(measured(arrivals, 10.0), float(ran), instead, PACE, 64.0, TICK)
        came += arrivals * TICK
        assert 0 <= crowd.ran <= came + 1e-6
        assert 0 <= crowd.instead <= came + 1e-6
        assert crowd.in_flight(in_flight) >= 0


def test_in_balance_it_is_little_s_law_with_the_slowdown() -> None:
    """n replicas' sequences serve λ in w0·(1 + n/κ): n = λ·w0 / (1 - λ·w0/κ) for one replica."""
    past = measured(2.0, 40.0, e2e=10.0)  # at the pace of an empty replica: w0 is 10 s
    one, two = after(200, past, 2.0, 1), after(200, past, 1.0, 2)
    assert one.instead == pytest.approx(2.0 * 10 / (1 - 2.0 * 10 / 40), rel=0.01)
    assert two.instead == pytest.approx(2 * (1.0 * 10 / (1 - 1.0 * 10 / 40)), rel=0.01)
    # Half the replicas have not the same in flight, but half as much again.
    assert one.instead / two.instead == pytest.approx(1.5, rel=0.01)


def test_a_replica_that_cannot_keep_up_falls_behind_by_the_difference() -> None:
    """κ/w0 = 4 requests/s is all that one replica can do, and with 40 at once half of that."""
    past = measured(3.0, 60.0, e2e=10.0)
    behind = [after(ticks, past, 2.0, 1, cap=40.0).instead for ticks in (40, 41)]
    assert behind[1] - behind[0] == pytest.approx((3.0 - 2.0) * TICK, rel=0.02)


def test_without_any_replica_everything_that_comes_is_still_there() -> None:
    crowd = after(4, measured(2.0, 20.0), 2.0, 0)
    assert crowd.instead == pytest.approx(2.0 * 4 * TICK)


def test_when_the_past_has_no_replica_nothing_is_held_against_it() -> None:
    crowd = after(10, measured(2.0, 20.0), 2.0, 1)
    crowd = crowd.after(measured(0.0, 0.0), 0.0, 1, PACE, math.inf, TICK)
    assert crowd.ran == 0.0
    assert crowd.instead > 0.0, "what the others still have in flight goes on"


def test_where_the_flow_is_not_known_nothing_changes() -> None:
    crowd = after(10, measured(2.0, 20.0), 2.0, 1)
    unknown = Signals(running=Known(20.0, 0.0), waiting=Known(0.0, 0.0), arrivals_per_second=Unknown("lost"))
    gone_on = crowd.after(unknown, 2.0, 1, PACE, math.inf, TICK)
    assert (gone_on.ran, gone_on.instead) == (crowd.ran, crowd.instead)


def test_a_queue_that_stuck_to_one_replica_is_no_load() -> None:
    """Twelve replicas, and four hundred requests all in the one that was alone: others would not have them."""
    crowd = after(40, measured(4.0, 40.0), 12.0, 5)
    assert crowd.in_flight(400.0) < 2 * crowd.instead
    assert after(1, measured(4.0, 40.0, waiting=360.0), 12.0, 5, crowd=crowd).explained_seconds == 0.0


def test_what_the_model_gets_a_little_wrong_is_carried_over() -> None:
    crowd = after(200, measured(2.0, 40.0), 2.0, 1)
    right = crowd.in_flight(crowd.ran)
    assert crowd.in_flight(crowd.ran * 1.1) - right == pytest.approx(0.1 * crowd.ran)


def points(pace: Pace, loads: Sequence[float], noise: Random | None = None) -> list[tuple[float, float]]:
    """Two minutes of each load. The time per token is that of the mean, the ticks' own counts move around it."""
    return [
        (load + (noise.uniform(-0.3, 0.3) * load if noise else 0.0), pace.token_seconds * pace.slowdown(load))
        for load in loads
        for _ in range(8)
    ]


def test_the_pace_is_a_line_and_its_slope_survives_the_noise_of_single_ticks() -> None:
    loads = [float(load) for load in range(5, 45)]
    pace = fit_pace(points(PACE, loads, Random(1)), TICK)
    assert pace.token_seconds == pytest.approx(PACE.token_seconds, rel=0.1)
    assert pace.doubled_at == pytest.approx(PACE.doubled_at, rel=0.2)
    assert pace.slowdown(pace.doubled_at) == pytest.approx(2.0)


def test_an_empty_replica_need_not_have_been_seen() -> None:
    """Always between 20 and 30 in flight: what none would be is where the line begins."""
    pace = fit_pace(points(PACE, [20.0, 22.0, 24.0, 26.0, 28.0, 30.0] * 3), TICK)
    assert pace.token_seconds == pytest.approx(PACE.token_seconds)


def test_too_little_shows_no_pace_and_what_does_not_slow_has_no_slope() -> None:
    assert fit_pace(points(PACE, [5.0, 9.0] * 3 + [7.0]), TICK) is UNHURRIED
    assert UNHURRIED.slowdown(1000.0) == 1.0
    assert fit_pace(points(PACE, [10.0] * 20), TICK).doubled_at == math.inf
    faster = [(float(count), 0.03 - 0.0001 * count) for count in range(100)]
    assert fit_pace(faster, TICK).token_seconds == pytest.approx(0.02, abs=0.001)


def test_a_line_that_begins_below_nothing_or_above_what_was_seen_is_none() -> None:
    """A past in turmoil: its requests end minutes after the load that slowed them."""
    below = fit_pace([(100.0 + count, 0.0001 * count + 0.001) for count in range(100)], TICK)
    assert 0 < below.token_seconds < 0.002
    late = [(float(count), 0.01 if index < 40 else 0.05) for index, count in enumerate([50, 2] * 60)]
    turmoil = fit_pace(late, TICK)
    assert turmoil.token_seconds == pytest.approx(0.01)
    assert turmoil.each_more_seconds > 0


def test_a_tick_without_requests_enough_says_nothing_of_the_pace() -> None:
    past = measured(2.0, 40.0, token=0.02)
    assert pace_point(past, 2.0, 20) == (20.0, 0.02)
    assert pace_point(past, None, 20) is None
    assert pace_point(past, 0.0, 20) is None
    assert pace_point(past, 2.0, 101) is None
    assert pace_point(Signals(), 2.0, 20) is None
