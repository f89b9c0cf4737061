"""Where the arrivals have settled, the noise of the last minutes holds no replica, and each is loaded further."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.model import Code
from scaler.policy.model import Batch, Capacity, Jump, Objectives, Policy, ReplicaRange
from scaler.signals.model import ArrivalTrend
from tests.control.timeline import Timeline, latency

#: A request stays 100 s; half an hour of 0.4/s is 720 requests: a deviation of 0.015/s.
POLICY = Policy(
    objectives=Objectives(tpot_seconds=0.05),
    capacity=Capacity(requests_per_second=0.1, sequences=10, learn=False),
    batch=Batch(max=64),
    replicas=ReplicaRange(max=50, cold_start_seconds=60),
)
LONG, DEVIATION = 900.0, 0.015


def load(
    rate: float, *, slope: float = 0.0, centre: float = LONG, dispersion: float | None = 1.0, **more: Any
) -> dict[str, Any]:
    trend = ArrivalTrend(rate - slope * centre, centre, slope, DEVIATION**2, 0.0, dispersion)
    readings = dict(arrivals=rate, recent=rate, last=rate, arrivals_trend=trend)
    # So full a KV cache that no replica is loaded further.
    return readings | dict(running=20, waiting=0, ready=5, kv=0.81) | more


def roomy(rate: float, **more: Any) -> dict[str, Any]:
    """The same, and the KV cache has room."""
    return load(rate, **{"kv": 0.8} | more)


def after_a_need_of_five(policy: Policy = POLICY, **more: Any) -> Timeline:
    """Half an hour at a need of four, and one tick of noise that needs five."""
    return Timeline(policy).at("0s", **load(0.38, **more)).at("30m", **load(0.42, **more)).expect(replicas=5)


def test_one_noisy_tick_holds_no_replica_for_five_minutes() -> None:
    after_a_need_of_five().at("30m5s", **load(0.38)).expect(need=4, replicas=4)


@pytest.mark.parametrize("unsettled", [{"centre": 590.0}, {"dispersion": None}, {"arrivals_trend": None}])
def test_it_does_while_no_long_line_explains_the_arrivals(unsettled: dict[str, Any]) -> None:
    held = after_a_need_of_five(**unsettled).at("30m5s", **load(0.38, **unsettled))
    held.expect(need=4, replicas=5).held_back(Code.DOWN_WINDOW)
    held.at("34m55s").expect(replicas=5).at("35m5s").expect(replicas=4)


def test_a_replica_is_given_back_with_a_deviation_to_spare() -> None:
    """What is asked for at 0.4/s is given back at 0.385: nothing goes to and fro between."""
    near = after_a_need_of_five().at("30m5s", **load(0.39)).expect(need=4, replicas=5).held_back(Code.DOWN_WINDOW)
    (held,) = (each for each in near.decision.suppressed if each.code is Code.DOWN_WINDOW)  # type: ignore[union-attr]
    assert (held.kept, held.value, held.remaining_seconds) == (5, 5.0, pytest.approx(295.0))
    near.at("32m", **load(0.384)).expect(replicas=4)


def test_what_a_falling_line_says_of_the_last_minutes_is_no_noise() -> None:
    """0.44/s five minutes ago were five replicas; four minutes on, the line never needed more than four."""
    falling = Timeline(POLICY).at("0s", **load(0.44)).at("30m", **load(0.38, slope=-0.0002)).expect(need=4, replicas=5)
    falling.at("34m", **load(0.32, slope=-0.0002)).expect(need=4, replicas=4)


@given(st.floats(0.2, 0.6), st.floats(0.2, 0.6), st.floats(-0.0005, 0.0005))
def test_down_never_goes_below_the_need_nor_stays_above_what_the_window_holds(
    before: float, after: float, slope: float
) -> None:
    more = load(after, slope=slope)
    settled = Timeline(POLICY).at("0s", **load(before)).at("5m", **more)
    held = Timeline(POLICY).at("0s", **load(before)).at("5m", **more | {"arrivals_trend": None})
    assert settled.decision is not None
    assert held.decision is not None
    assert settled.decision.targets.replicas >= (settled.decision.need or 0)
    if slope == 0.0 and after <= before:
        assert settled.decision.targets.replicas <= held.decision.targets.replicas


def test_short_requests_come_in_bunches_that_the_counts_do_not_show() -> None:
    short = POLICY.model_copy(update={"capacity": Capacity(requests_per_second=0.1, sequences=1.4, learn=False)})
    quick = {"running": 2}
    after_a_need_of_five(short, **quick).at("30m5s", **load(0.38, **quick)).expect(need=4, replicas=5)


def test_news_holds_what_it_bought() -> None:
    """Forty requests in the last 15 s where 6 were expected."""
    jump = POLICY.model_copy(update={"jump": Jump(hold_seconds=60.0)})
    newest = dict(recent=40 / 15, last=40 / 15)
    seen = Timeline(jump).at("0s", **load(0.38)).at("30m", **load(0.38) | newest)
    assert seen.decision is not None
    bought = seen.decision.targets.replicas
    assert bought > 10
    seen.at("30m30s", **load(0.38)).expect(need=bought, replicas=bought)  # the jump's hold


def test_the_cure_of_a_latency_is_kept_for_its_cold_start() -> None:
    slow = load(0.38, ready=4, tpot=latency(0.06))
    cured = Timeline(POLICY).at("0s", **load(0.38, ready=4)).at("30m", **slow).expect(replicas=5)
    cured.because(Code.LATENCY_STEP).at("30m5s", **load(0.38)).expect(replicas=5).at("30m55s").expect(replicas=5)
    cured.at("31m10s").expect(replicas=4)


def test_doubt_lowers_nothing_however_settled() -> None:
    unknown = load(0.38) | {"arrivals": None}
    del unknown["arrivals"]
    after_a_need_of_five().at("30m5s", **unknown).expect(replicas=5).held_back(Code.SIGNAL_LOST)


def test_what_runs_at_a_moment_counts_as_far_as_it_is_certain() -> None:
    """L° is 13.3: 56 are more than four replicas hold, and what is certain of them, 48.5, is not; of 66 it is."""
    Timeline(POLICY).at("0s", **load(0.38, running=38)).once("30m", **load(0.38, running=56)).expect(need=4)
    Timeline(POLICY).at("0s", **load(0.38, running=38)).once("30m", **load(0.38, running=66)).expect(need=5)


def test_a_replica_is_loaded_further() -> None:
    """μ* is 0.1/s at three quarters of L°, 0.12/s at nine tenths."""
    steady = Timeline(POLICY).at("0s", **roomy(0.47)).at("30m", **roomy(0.47)).expect(need=4, load_share=0.9)
    steady.at("31m", **roomy(0.51)).expect(need=5)


@pytest.mark.parametrize(
    "unsettled",
    [
        {"centre": 590.0},
        {"dispersion": None},
        {"slope": 0.0003},  # 0.018/s a cold start ahead; a deviation is 0.015/s
        {"kv": 0.81},
        {"kv": None},
        {"last": 1.5, "recent": 1.5},
    ],
)
def test_not_where_what_comes_is_not_known_or_the_cache_is_full(unsettled: dict[str, Any]) -> None:
    seen = Timeline(POLICY).at("0s", **roomy(0.47, **unsettled)).at("30m", **roomy(0.47, **unsettled))
    seen.expect(load_share=0.75)
    assert seen.decision is not None
    assert (seen.decision.need or 0) >= 5


@pytest.mark.parametrize("slope", [0.0002, -0.01])
def test_a_rise_within_what_is_unknown_and_a_fall_are_settled(slope: float) -> None:
    Timeline(POLICY).at("0s", **roomy(0.47)).at("30m", **roomy(0.47, slope=slope)).expect(load_share=0.9)


def test_a_breached_objective_takes_the_room_back_at_once() -> None:
    steady = Timeline(POLICY).at("0s", **roomy(0.47, ready=4)).at("30m", **roomy(0.47, ready=4)).expect(replicas=4)
    slow = steady.at("30m5s", **roomy(0.47, ready=4, tpot=latency(0.06)))
    slow.expect(load_share=0.75, replicas=5).at("30m10s").expect(load_share=0.75, replicas=5)
    slow.at("30m15s", **roomy(0.47, ready=4)).expect(load_share=0.75, replicas=5)  # while the cure lasts


@pytest.mark.parametrize(
    "capacity",
    [
        Capacity(),  # a guess
        Capacity(requests_per_second=0.1, sequences=10, learn=False, load_share=0.95),
        Capacity(requests_per_second=0.1, sequences=10, learn=False, settled_load_share=0.75),
    ],
)
def test_never_by_a_guess_nor_beyond_what_the_policy_says(capacity: Capacity) -> None:
    policy = POLICY.model_copy(update={"capacity": capacity})
    at_ease = Timeline(policy).at("0s", **roomy(0.47)).at("30m", **roomy(0.47))
    at_ease.expect(load_share=capacity.load_share)


def test_a_cap_leaves_no_room_above_it() -> None:
    capped = POLICY.model_copy(update={"batch": Batch(max=8)})
    Timeline(capped).at("0s", **roomy(0.47)).at("30m", **roomy(0.47)).expect(load_share=0.75)
