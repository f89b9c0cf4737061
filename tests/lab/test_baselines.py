"""Each rival against its published formula, by signals made by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from scaler.control.model import Now
from scaler.lab.baselines.clairvoyant import Clairvoyant
from scaler.lab.baselines.doubling import Doubling
from scaler.lab.baselines.in_flight import InFlight, Static, Waiting
from scaler.lab.baselines.knative import Knative
from scaler.lab.baselines.llmd import LlmD
from scaler.lab.baselines.ray_serve import RayServe
from scaler.lab.fleet import Request
from scaler.lab.simulate import BEGIN_MONO, LabPolicy, Wish
from scaler.signals.model import Interval, Known, Latency, Signals, Stale, Unknown


def signals(
    running: float = 0.0, waiting: float = 0.0, pending: float = 0.0, ready: float = 1.0, **latencies: Latency
) -> Signals:
    return Signals(
        running=Known(running, 0.0),
        waiting=Known(waiting, 0.0),
        pending=Known(pending, 0.0),
        ready_replicas=Known(ready, 0.0),
        **{name: Known(value, 0.0) for name, value in latencies.items()},
    )


def at(seconds: float) -> Now:
    return Now(datetime(2026, 6, 1, tzinfo=UTC), BEGIN_MONO + seconds)


def exactly(seconds: float) -> Latency:
    """A latency that is the same for everybody."""
    point = Interval(seconds, seconds)
    return Latency(point, point, point, seconds, 100.0)


def run(policy: LabPolicy, load: Signals, begin: float, end: float, asked: int, every: float = 5.0) -> Wish:
    """The wish at ``end`` of a load that has lasted since ``begin``."""
    wish, moment = Wish(None), begin
    while moment <= end:
        wish = policy.tick(load, at(moment), asked)
        moment += every
    return wish


class TestInFlight:
    def test_the_metric_is_everything_in_flight_and_the_target_sequences_per_replica(self) -> None:
        policy = InFlight(load_target=20.0)
        assert policy.tick(signals(running=50, waiting=7, pending=3), at(0), 2) == Wish(60.0, active=True)
        assert policy.metric_target == 20.0

    def test_nothing_in_flight_is_inactive(self) -> None:
        assert not InFlight(20.0).tick(signals(), at(0), 1).active

    def test_absence_reads_as_zero_and_a_stale_value_as_itself(self) -> None:
        lost = Signals(running=Stale(30.0, 0.0), waiting=Unknown("lost"), pending=Unknown("lost"))
        assert InFlight(20.0).tick(lost, at(0), 2).metric == 30.0


def test_keda_on_waiting_counts_the_queue_alone_and_stays_active_while_anything_runs() -> None:
    policy = Waiting(10.0)
    assert policy.tick(signals(running=50, waiting=7, pending=3), at(0), 2) == Wish(10.0, active=True)
    assert policy.tick(signals(running=50), at(0), 2) == Wish(0.0, active=True)
    assert policy.tick(signals(), at(0), 2) == Wish(0.0, active=False)


def test_static_never_moves() -> None:
    assert Static(4, batch=32).tick(signals(running=999), at(0), 1) == Wish(4.0, active=True, batch=32)


class TestKnative:
    def test_the_stable_window_aims_at_70_percent_of_the_target(self) -> None:
        # 60 s at 100 in flight, each replica meant for 20: ceil(100 / 14) = 8.
        assert run(Knative(20.0), signals(running=100, ready=8), 0, 300, 8).metric == 8.0

    def test_it_panics_when_the_short_window_wants_twice_what_is_ready(self) -> None:
        policy = Knative(20.0)
        run(policy, signals(running=14, ready=1), 0, 60, 1)
        # 6 s later the panic window holds only the new load: ceil(100 / 14) = 8 >= 2 × 1, though 60 s average far less.
        assert run(policy, signals(running=100, ready=1), 65, 70, 1).metric == 8.0

    def test_in_panic_nothing_goes_down_until_a_stable_window_has_passed_without_cause(self) -> None:
        policy = Knative(20.0)
        run(policy, signals(running=14, ready=1), 0, 60, 1)
        run(policy, signals(running=100, ready=1), 65, 70, 1)
        assert run(policy, signals(running=0, ready=8), 75, 130, 8).metric == 8.0
        assert run(policy, signals(running=0, ready=8), 135, 135, 8).metric == 4.0  # half of what is ready, at most

    def test_an_empty_stable_window_is_zero_replicas(self) -> None:
        policy = Knative(20.0)
        run(policy, signals(running=14), 0, 60, 1)
        assert run(policy, signals(), 65, 115, 1).metric == 1.0
        assert run(policy, signals(), 120, 120, 1) == Wish(0.0, active=False)

    def test_with_several_replicas_it_begins_in_panic_and_keeps_them(self) -> None:
        policy = Knative(20.0)
        assert run(policy, signals(running=14, ready=6), 0, 55, 6).metric == 6.0


class TestLlmD:
    def test_above_055_it_asks_in_proportion(self) -> None:
        # s = 0.8: n + ceil(n(0.8/0.55 - 1)) = 4 + ceil(1.818) = 6.
        load = signals(ready=4, ttft_seconds=exactly(0.8), tpot_seconds=exactly(0.01))
        assert run(LlmD(1.0, 0.05), load, 0, 60, 4).metric == 6.0

    def test_what_still_loads_is_credited_when_going_up_only(self) -> None:
        # 2 of 4 ready: 4 + ceil(4(0.8 · 0.5/0.55 - 1)) = 4 + ceil(-1.09) = 3; with none ready there is no credit.
        half = signals(ready=2, ttft_seconds=exactly(0.8))
        assert run(LlmD(1.0, 0.05), half, 0, 60, 4).metric == 3.0
        none = signals(ready=0, ttft_seconds=exactly(0.8))
        assert run(LlmD(1.0, 0.05), none, 0, 60, 4).metric == 6.0

    def test_between_the_thresholds_it_holds(self) -> None:
        assert run(LlmD(1.0, 0.05), signals(ready=4, ttft_seconds=exactly(0.5)), 0, 60, 4).metric == 4.0

    def test_below_040_it_gives_up_in_proportion_and_an_idle_pool_reads_0(self) -> None:
        # s = 0.2: 8 - floor(8(1 - 0.5)) = 4.
        assert run(LlmD(1.0, 0.05), signals(ready=8, ttft_seconds=exactly(0.2)), 0, 60, 8).metric == 4.0
        assert run(LlmD(1.0, 0.05), signals(ready=8), 0, 60, 8).metric == 1.0

    def test_the_worse_of_both_objectives_counts_clipped_and_averaged_over_45_seconds(self) -> None:
        policy = LlmD(1.0, 0.05)
        run(policy, signals(ready=4, tpot_seconds=exactly(0.0225)), 0, 60, 4)  # 0.45 of it
        # One sample of 40 × the objective counts as 2: (8 · 0.45 + 2) / 9 = 0.622, 4 + ceil(4 · 0.131) = 5.
        assert run(policy, signals(ready=4, tpot_seconds=exactly(2.0)), 65, 65, 4).metric == 5.0

    def test_p90_lies_between_the_median_and_p95(self) -> None:
        latency = Latency(Interval(0.0, 0.2), Interval(0.9, 1.1), Interval(1.1, 2.0), 0.3, 100.0)
        # P50 0.1, P95 1.0: P90 = 1.0 - 0.9/9 = 0.9; 4 + ceil(4(0.9/0.55 - 1)) = 7.
        assert run(LlmD(1.0, 0.05), signals(ready=4, ttft_seconds=latency), 0, 60, 4).metric == 7.0


class TestRayServe:
    def test_up_only_after_30_seconds_above(self) -> None:
        policy, load = RayServe(10.0), signals(running=45)
        assert run(policy, load, 0, 25, 2).metric == 2.0
        assert run(policy, load, 30, 30, 2).metric == 5.0

    def test_an_act_begins_the_count_anew(self) -> None:
        policy = RayServe(10.0)
        run(policy, signals(running=45), 0, 30, 2)
        assert run(policy, signals(running=95), 35, 60, 5).metric == 5.0
        assert run(policy, signals(running=95), 65, 65, 5).metric == 10.0

    def test_down_only_after_600_seconds_below(self) -> None:
        policy, load = RayServe(10.0), signals(running=15)
        assert run(policy, load, 0, 595, 5).metric == 5.0
        assert run(policy, load, 600, 600, 5).metric == 2.0

    def test_a_short_dip_begins_the_count_anew(self) -> None:
        policy = RayServe(10.0)
        run(policy, signals(running=15), 0, 500, 5)
        run(policy, signals(running=48), 505, 535, 5)
        assert run(policy, signals(running=15), 540, 900, 5).metric == 5.0

    def test_ongoing_requests_are_averaged_over_30_seconds(self) -> None:
        policy = RayServe(10.0)
        run(policy, signals(running=10), 0, 25, 1)
        policy.tick(signals(running=70), at(30), 1)  # (5 · 10 + 70) / 6 = 20: two wanted, from now on
        assert run(policy, signals(running=10), 35, 55, 1).metric == 1.0

    def test_zero_is_left_at_once_and_reached_only_from_one(self) -> None:
        policy = RayServe(10.0)
        assert policy.tick(signals(pending=1, ready=0), at(0), 0) == Wish(1.0, active=True)
        assert run(policy, signals(), 5, 605, 3).metric == 1.0
        assert run(policy, signals(), 610, 1210, 1) == Wish(0.0, active=False)


class TestDoubling:
    def test_it_doubles_once_a_minute_while_there_is_more_than_its_replicas_are_meant_for(self) -> None:
        policy, load = Doubling(20.0), signals(running=320)
        counts, asked = [], 1
        for moment in range(0, 305, 5):
            asked = int(policy.tick(load, at(moment), asked).metric or 0)
            counts.append(asked)
        assert [counts[index] for index in (0, 11, 12, 24, 36, 60)] == [2, 2, 4, 8, 16, 16]

    def test_it_halves_where_a_quarter_would_do_and_keeps_one(self) -> None:
        policy = Doubling(20.0)
        assert policy.tick(signals(running=79), at(0), 16).metric == 8.0
        assert policy.tick(signals(running=80), at(60), 16).metric == 16.0
        assert policy.tick(signals(), at(120), 1).metric == 1.0

    def test_what_loads_counts_or_it_would_never_stop(self) -> None:
        assert Doubling(20.0).tick(signals(running=320, ready=1), at(0), 16).metric == 16.0


class TestClairvoyant:
    TRACE = tuple(Request(100 + index / 10, 10, 10) for index in range(600))  # 10/s from 100 to 160 s

    def test_it_asks_one_cold_start_ahead_and_lets_go_when_it_is_over(self) -> None:
        policy = Clairvoyant(self.TRACE, requests_per_second=2.0, cold_start_seconds=60.0)
        assert policy.tick(Signals(), at(10), 1) == Wish(0.0, active=False)
        assert policy.tick(Signals(), at(60), 1).metric == 5.0
        assert policy.tick(Signals(), at(150), 5).metric == pytest.approx(5.0)
        assert policy.tick(Signals(), at(180), 5).metric == 0.0

    def test_peaks_shorter_than_a_residence_time_are_averaged_in_it(self) -> None:
        policy = Clairvoyant(self.TRACE, 2.0, 60.0, residence_seconds=120.0)
        assert policy.tick(Signals(), at(120), 1).metric == math.ceil(600 / 120 / 2)
