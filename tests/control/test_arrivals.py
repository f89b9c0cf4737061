"""λ⁺: replicas are bought for what is expected, not for noise, and at once for what noise can't explain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scaler.control.arrivals import expected_arrivals
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.model import Code
from scaler.control.season import Foreseen
from scaler.policy.model import Batch, Capacity, Policy, ReplicaRange
from scaler.signals.model import ArrivalTrend
from tests.control.timeline import Timeline, signals

POLICY = Policy(
    capacity=Capacity(requests_per_second=1, sequences=10),
    batch=Batch(max=32),
    replicas=ReplicaRange(max=50, cold_start_seconds=120),
)


def trend(rate: float, *, slope: float = 0.0, dispersion: float = 1.0) -> ArrivalTrend:
    """A trend that stands at ``rate`` now, by five minutes of it."""
    return ArrivalTrend(rate - slope * 150.0, 150.0, slope, 0.01, 0.0, dispersion)


def load(rate: float, recent: float | None = None, **more: Any) -> dict[str, Any]:
    recent = rate if recent is None else recent
    return dict(
        arrivals=rate, recent=recent, last=recent, running=rate * 5, waiting=0, ready=5, kv=0.3,
        arrivals_trend=trend(rate),
    ) | more  # fmt: skip


def test_noise_in_the_last_seconds_buys_nothing() -> None:
    Timeline(POLICY).at("0s", **load(3.8, recent=5.2)).expect(need=4)  # 78 requests where 57 were expected: 2.6 sigma


def test_what_noise_cannot_explain_is_answered_at_once_at_the_rate_that_is_certain() -> None:
    # 105 where 57 were expected; of 7/s read over 15 s, 6.3/s are certain
    Timeline(POLICY).at("0s", **load(3.8, recent=7)).expect(need=7).because(Code.ARRIVALS)


def test_bursty_arrivals_need_more_news_to_be_news_and_more_replicas_on_an_even_day() -> None:
    bursty = trend(3.8, dispersion=16)
    Timeline(POLICY).at("0s", **load(3.8, recent=7, arrivals_trend=bursty)).expect(need=6)  # 3.8 + 1.28·3·√(3.8/15)


def test_a_rise_is_bought_for_a_cold_start_ahead() -> None:
    Timeline(POLICY).at("0s", **load(3.8, arrivals_trend=trend(3.8, slope=0.009))).expect(need=5)  # 3.8 + 1.08
    Timeline(POLICY).at("0s", **load(3.8, arrivals_trend=trend(3.8, slope=0.001))).expect(need=4)


def test_a_fall_is_not_foreseen() -> None:
    Timeline(POLICY).at("0s", **load(3.8, arrivals_trend=trend(3.8, slope=-0.02))).expect(need=4)


def test_at_most_twice_the_present_is_foreseen() -> None:
    Timeline(POLICY).at("0s", **load(3.8, arrivals_trend=trend(3.8, slope=1.0))).expect(need=8)


def test_without_a_trend_the_higher_of_window_and_last_seconds_counts() -> None:
    Timeline(POLICY).at("0s", **load(3.8, recent=5.2, arrivals_trend=None)).expect(need=6)


def test_chance_may_use_the_margin_and_the_mean_may_not() -> None:
    """L* is 10, so the objective just holds at 13 and a third."""
    even = load(3.0, running=24)
    timeline = Timeline(POLICY).at("0s", **even).at("10m").expect(need=3)
    timeline.at("10m5s", **(even | {"running": 39})).expect(need=3)  # a moment's 13 each
    timeline.at("10m10s", **(even | {"running": 42})).expect(need=4).because(Code.RUNNING)  # not a moment's 14
    timeline.at("10m15s", **(even | {"running": 36})).at("30m").expect(need=4).because(Code.RUNNING)  # nor 12 for long


def test_a_jump_buys_with_it_what_drains_the_queue_that_must_grow_while_replicas_load() -> None:
    policy = Policy(
        capacity=Capacity(requests_per_second=20, sequences=100),
        replicas=ReplicaRange(max=50, cold_start_seconds=60),
    )
    calm = load(0.0, running=0, ready=5, queueing_replicas=0)
    risen = dict(arrivals=17, recent=67, last=200, running=500, waiting=40, ready=5, queueing_replicas=5, kv=0.3)
    timeline = Timeline(policy).at("0s", **calm).at("5m")
    # 194/s are certain: 9.7 replicas; and (194 - 5·20)·60 requests will wait, which take 4.7 replicas a minute
    timeline.at("5m5s", **(risen | {"arrivals_trend": trend(0.0)})).expect(replicas=15).because(Code.JUMP)
    grown = risen | {"arrivals": 150, "recent": 200, "waiting": 5500, "arrivals_trend": trend(200.0)}
    timeline.at("6m5s", **grown).expect(replicas=15)  # when they are ready the queue is as long as foreseen: 10 + 4.6


def test_a_few_seconds_bunch_is_neither_news_nor_a_jump_though_fifteen_seconds_are_even() -> None:
    """38 requests in 5 s where 15 were expected, of arrivals that come in bunches every few seconds: φ of 15 s is 1."""
    bunch = load(3.0, recent=4.4, last=7.6, ready=3)
    timeline = Timeline(POLICY).at("0s", **load(3.0, ready=3)).at("1m").at("1m5s", **bunch).expect(need=3)
    assert Code.JUMP not in {reason.code for reason in timeline.decision.reasons}  # type: ignore[union-attr]
    timeline = Timeline(POLICY).at("0s", **load(3.0, ready=3)).at("1m")
    timeline.at("1m5s", **(bunch | {"last": 12.0})).because(Code.JUMP)  # 60 are no bunch any more


class TestADayThatGoesTheUsualWay:
    """The trend stands at 4/s, give or take a half; the season knows its own 4/s to 2 percent."""

    def rate(self, foreseen: Foreseen | None, *, slope: float = 0.0, recent: float = 4.0, sure: float = 0.25) -> float:
        found = ArrivalTrend(4.0 - slope * 150.0, 150.0, slope, sure, 0.0, 1.0)
        told = signals(0.0, **load(4.0, recent=recent, arrivals_trend=found))
        capacity = CapacityEstimate(10.0, 1.0, "declared")
        return expected_arrivals(
            POLICY, told, capacity, cold_start_seconds=120.0, elapsed_seconds=15.0, foreseen=foreseen
        ).rate

    def test_noise_is_not_bought(self) -> None:
        assert self.rate(Foreseen(3.3, 3.3, 0.02, 6000)) == pytest.approx(3.3, abs=0.05)

    def test_nor_a_rise_that_usually_is_not_there(self) -> None:
        assert self.rate(Foreseen(4.0, 4.0, 0.02, 6000), slope=0.005) == pytest.approx(4.0, abs=0.05)

    def test_a_rise_that_usually_is_there_is_bought_before_the_trend_can_see_it(self) -> None:
        assert self.rate(Foreseen(4.0, 4.6, 0.02, 6000)) == pytest.approx(4.6, abs=0.05)

    def test_a_fall_that_usually_is_there_takes_nothing_from_what_arrives_now(self) -> None:
        assert self.rate(Foreseen(4.0, 2.0, 0.02, 6000)) == pytest.approx(4.0, abs=0.05)

    @pytest.mark.parametrize("usual", [2.9, 5.1, 0.0, 40.0])
    def test_another_kind_of_day_is_the_trends_affair(self, usual: float) -> None:
        assert self.rate(Foreseen(usual, usual, 0.02, 6000)) == self.rate(None) == 4.0

    def test_who_knows_better_counts_more(self) -> None:
        vague, few = Foreseen(3.3, 3.3, 0.5, 6000), Foreseen(3.3, 3.3, 0.02, 10)
        assert self.rate(vague) > 3.8
        assert self.rate(few) > 3.55
        assert self.rate(Foreseen(3.3, 3.3, 0.02, 6000), sure=0.0001) == 4.0

    def test_what_noise_cannot_explain_is_answered_in_the_same_tick_all_the_same(self) -> None:
        assert self.rate(Foreseen(3.3, 3.3, 0.02, 6000), recent=8.0) == self.rate(None, recent=8.0) > 7.0

    @given(
        st.floats(0.0, 100.0), st.floats(0.0, 100.0), st.floats(0.0, 5.0), st.floats(0.1, 1e5), st.floats(-0.02, 0.02)
    )
    def test_it_lies_between_what_the_two_say(
        self, now: float, ahead: float, error: float, requests: float, slope: float
    ) -> None:
        found, trend_says = self.rate(Foreseen(now, ahead, error, requests), slope=slope), self.rate(None, slope=slope)
        assert found <= max(trend_says, now, min(ahead, 2.0 * max(4.0, now))) + 1e-9
        assert found >= min(4.0, now) - 1e-9

    @given(st.floats(0.0, 1.0), st.floats(0.0, 10.0))
    @example(0.0011111111111111111, 0.0011111111111111111)
    def test_where_nothing_is_usual_it_is_little_and_never_less_than_nothing(
        self, rate: float, variance: float
    ) -> None:
        trend = ArrivalTrend(rate, 150.0, 0.0, variance, 0.0, 1.0)
        told = signals(0.0, **load(rate, arrivals_trend=trend))
        found = expected_arrivals(
            POLICY, told, CapacityEstimate(10.0, 1.0, "declared"), cold_start_seconds=120.0, elapsed_seconds=15.0,
            foreseen=Foreseen(0.0, 0.0, 0.3, 10.0),
        )  # fmt: skip
        assert 0.0 <= found.rate <= rate
