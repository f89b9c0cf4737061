"""Demand is a flow, a backlog is a stock."""

import pytest

from scaler.control.model import Code, LoadState
from scaler.policy.model import Batch, Capacity, Objectives, Policy, ReplicaRange
from scaler.signals.model import Interval, Latency, NotApplicable, Unknown
from tests.control.timeline import Timeline, latency

POLICY = Policy(
    capacity=Capacity(requests_per_second=10, sequences=20), batch=Batch(max=32), replicas=ReplicaRange(max=50)
)


def load(rate: float, **more: object) -> dict[str, object]:
    return dict(arrivals=rate, recent=rate, last=rate, running=rate, waiting=0, ready=1, kv=0.3) | more


def test_replicas_for_the_flow() -> None:
    Timeline(POLICY).at("0s", **load(35)).expect(replicas=4).because(Code.ARRIVALS)


def test_a_backlog_buys_what_drains_it_in_a_minute_and_no_more() -> None:
    # 35/10 + 1200/(60·10) = 5.5; taken for steady demand it would have asked for more than sixty
    Timeline(POLICY).at("0s", **load(35, waiting=1200)).expect(replicas=6)


def test_running_sequences_guard_where_rates_say_little() -> None:
    Timeline(POLICY).at("0s", **load(1, running=90)).expect(replicas=5).because(Code.RUNNING)


def test_before_any_rate_is_known_what_is_in_flight_stands_in() -> None:
    policy = Policy(capacity=Capacity(sequences=8), replicas=ReplicaRange(max=50))
    Timeline(policy).at("0s", running=8, waiting=16, ready=1).expect(replicas=3).because(Code.IN_FLIGHT)


def test_littles_law_gives_the_rate_of_a_replica_from_the_measured_residence() -> None:
    policy = Policy(objectives=Objectives(), capacity=Capacity(sequences=8))
    measured = load(9, running=8, e2e=latency(4, mean=2.5), queue=latency(1, mean=0.5))
    timeline = Timeline(policy).at("0s", **measured)
    assert timeline.decision is not None
    assert timeline.decision.capacity.requests_per_second == 4.0  # 8 sequences / (2.5 s - 0.5 s)
    timeline.expect(replicas=3)


def test_a_replica_that_queues_shows_its_own_cap() -> None:
    timeline = Timeline(Policy()).at("0s", running=8, waiting=20, ready=1, saturated_sequences=8)
    timeline.at("5s", running=8, waiting=20, ready=1, saturated_sequences=8)
    timeline.expect(replicas=4)  # 28 in flight over 8, not over the prior of 32


def test_g5_01_one_shortage_is_answered_once_while_pods_load() -> None:
    policy = Policy(capacity=Capacity(requests_per_second=1, sequences=10), replicas=ReplicaRange(max=16))
    shortage = dict(arrivals=3.3, recent=3.3, last=3.3, running=20, waiting=40, ready=2, kv=0.2)
    timeline = Timeline(policy).at("0s", **shortage).at("5m")
    assert {decision.targets.replicas for decision in timeline.history} == {4}


def test_up_is_immediate_and_down_waits_for_the_highest_need_of_five_minutes() -> None:
    timeline = Timeline(POLICY).at("0s", **load(30, ready=3)).at("6m").at("6m5s", **load(80, ready=3))
    timeline.expect(replicas=8).at("7m", **load(30, ready=8)).expect(replicas=8).held_back(Code.DOWN_WINDOW)
    timeline.at("11m50s").expect(replicas=8).at("12m").expect(replicas=4).at("13m55s").expect(replicas=4)
    timeline.at("14m").expect(replicas=3)


def guessed(**more: object) -> Timeline:
    """Eight replicas of unknown capacity with twelve sequences each, which 32 at once would be three replicas for."""
    objectives = Objectives(tpot_seconds=0.1, ttft_seconds=1.0 if "ttft" in more else None)
    policy = Policy(objectives=objectives, replicas=ReplicaRange(max=50), batch=Batch(max=64))
    return Timeline(policy).at("0s", **busy(**more))


def busy(**more: object) -> dict[str, object]:
    """Their signals."""
    known = dict(e2e=latency(16, mean=16), queue=latency(0.1, mean=0), tpot=latency(0.05), identity="a model")
    return load(6, running=96, ready=8) | known | more


def test_a_guess_takes_no_replica_away_of_which_more_is_asked_than_any_has_shown() -> None:
    """Nobody knows that a replica can run 32, and twelve it runs well: fifteen each are tried, not 24 and then 32."""
    timeline = guessed().at("8m").expect(need=3, replicas=7).held_back(Code.UNPROVEN)
    assert timeline.decision is not None
    assert timeline.decision.capacity.assumed
    assert {decision.targets.replicas for decision in timeline.history} == {8, 7}
    timeline.at("20m").expect(replicas=7)


def test_a_guess_that_nothing_will_test_is_as_good_as_it_gets() -> None:
    guessed(tpot=NotApplicable("not told")).at("8m").expect(need=3, replicas=3)
    guessed(identity=None).at("8m").expect(need=3, replicas=3)


@pytest.mark.parametrize(
    "unjudged",
    [
        {"tpot": latency(0.05, samples=10)},  # too few finish in a minute
        {"tpot": Latency(Interval(0.02, 0.05), Interval(0.05, 0.11), Interval(0.1, 0.15), 0.05, 100)},  # its bucket
        {"tpot": Unknown("not in the metrics")},
        {"e2e": NotApplicable("llama.cpp measures no whole requests")},
    ],
)
def test_what_no_window_can_judge_is_tried_one_by_one(unjudged: dict[str, object]) -> None:
    timeline = guessed(**unjudged).at("29m").expect(replicas=8).at("31m").expect(replicas=7)
    timeline.at("65m").expect(replicas=7)  # the eighth is still there: what seven do is not seen
    timeline.at("66m", **busy(**unjudged | {"ready": 7})).at("95m").expect(replicas=7).at("97m").expect(replicas=6)


def test_of_few_replicas_one_may_go_though_it_is_more_than_a_quarter() -> None:
    """Of two one can never go by quarters, and a load that stays the same teaches no line."""
    two = load(1.2, running=20, ready=2)
    timeline = guessed(**two, tpot=latency(0.045)).at("29m").expect(need=1, replicas=2).held_back(Code.UNPROVEN)
    timeline.at("31m").expect(replicas=1)
    slow = guessed(**two, tpot=latency(0.06))  # 120 ms, were it all due to what runs
    slow.at("2h").expect(replicas=2).held_back(Code.UNPROVEN)


def test_an_engine_that_measures_no_ttft_shows_what_it_serves() -> None:
    guessed(ttft=NotApplicable("TGI measures none")).at("8m").expect(replicas=7)


def test_what_is_idle_goes_though_nothing_was_shown() -> None:
    few = load(0.1, running=2, ready=8, e2e=latency(16, mean=16), queue=latency(0.1, mean=0), tpot=latency(0.02))
    guessed().at("5s", **few, identity="a model").at("15m").expect(replicas=1)


def test_floor_and_ceiling_bound_everything() -> None:
    policy = POLICY.model_copy(update={"replicas": ReplicaRange(min=2, max=5)})
    Timeline(policy).at("0s", **load(0.1)).expect(replicas=2).because(Code.FLOOR)
    Timeline(policy).at("0s", **load(500)).expect(replicas=5, need=50).held_back(Code.CEILING)


def test_g5_05_a_scale_down_just_done_does_not_delay_the_next_scale_up() -> None:
    timeline = Timeline(POLICY).at("0s", **load(40, ready=4)).at("1m").at("1m5s", **load(15, ready=4))
    timeline.at("6m5s").expect(replicas=2).at("6m25s", **load(15, ready=2, waiting=4200)).expect(replicas=9)


def test_states_have_hysteresis() -> None:
    timeline = Timeline(POLICY).at("0s", **load(10, ready=1)).expect(state=LoadState.HIGH)
    timeline.at("5s", **load(9, ready=1)).expect(state=LoadState.HIGH)  # 0.9: entered at 1.0, left below 0.85
    timeline.at("10s", **load(8, ready=1)).expect(state=LoadState.HIGH)  # it lasts 15 s at least
    timeline.at("15s", **load(8, ready=1)).expect(state=LoadState.NORMAL)
    timeline.at("20s", **load(9, ready=1)).expect(state=LoadState.NORMAL)
    timeline.at("25s", **load(5, ready=1)).expect(state=LoadState.NORMAL)
    timeline.at("2m20s").expect(state=LoadState.NORMAL).at("2m25s").expect(state=LoadState.LOW)
    timeline.at("2m30s", **load(6, ready=1)).expect(state=LoadState.LOW)  # 0.6: entered at 0.55, left above 0.65
    timeline.at("2m35s", **load(7, ready=1)).expect(state=LoadState.NORMAL)


def test_a_busy_gpu_is_not_low_unless_its_sms_idle() -> None:
    lazy = load(1, running=1)
    Timeline(POLICY).at("0s", **lazy, gpu_busy=0.9).at("10m").expect(state=LoadState.NORMAL)
    Timeline(POLICY).at("0s", **lazy, gpu_busy=0.9, sm_active_ratio=0.1).at("10m").expect(state=LoadState.LOW)


def test_a_busy_gpu_with_a_growing_queue_is_high() -> None:
    timeline = Timeline(POLICY).at("0s", **load(3, waiting=1), gpu_busy=0.9).expect(state=LoadState.NORMAL)
    timeline.at("5s", **load(3, waiting=2), gpu_busy=0.9).expect(state=LoadState.HIGH)


def test_the_reason_is_the_queue_where_the_queue_asks_for_the_last_replica() -> None:
    Timeline(POLICY).at("0s", **load(9, waiting=0)).expect(replicas=1).because(Code.ARRIVALS)
    Timeline(POLICY).at("0s", **load(9, waiting=120)).expect(replicas=2).because(Code.BACKLOG)


def test_a_tenth_of_a_replica_buys_none_and_what_there_is_is_not_given_back_for_it() -> None:
    one = Timeline(POLICY).at("0s", **load(10.9)).expect(need=1, replicas=1).held_back(Code.TRIFLE)
    one.at("10m").expect(replicas=1).at("10m5s", **load(11.2)).expect(need=2, replicas=2)
    there = Timeline(POLICY).at("0s", **load(30.9, ready=4)).at("10m").expect(need=4, replicas=4)
    there.at("10m5s", **load(30, ready=4)).at("15m10s").expect(replicas=3)
    Timeline(POLICY).at("0s", **load(30.9, ready=3)).expect(need=3, replicas=3)


def test_a_queue_is_no_trifle() -> None:
    Timeline(POLICY).at("0s", **load(9, waiting=120)).expect(need=2)  # 0.9 + 0.2: without that queue one would do
    Timeline(POLICY).at("0s", **load(9, waiting=50)).expect(need=1)
    Timeline(POLICY).at("0s", **load(9.6, waiting=30)).expect(need=1).held_back(Code.TRIFLE)
    # Nor where a little more runs, so that what runs asks louder than arrivals and queue together.
    Timeline(POLICY).at("0s", **load(8, running=18, waiting=174)).expect(need=2)
    Timeline(POLICY).at("0s", **load(8, running=22, waiting=174)).expect(need=2)


def test_at_one_replica_nothing_is_held_back() -> None:
    timeline = Timeline(Policy(replicas=ReplicaRange(max=4))).at("0s", **load(0, running=0)).at("20m")
    assert {held.target.value for held in timeline.decision.suppressed} <= {"active"}  # type: ignore[union-attr]


def test_a_queue_inside_one_engine_takes_up_that_engine_and_no_more() -> None:
    # 12,000 requests wait in the one replica that was there before the jump: new replicas can't take them from it
    stuck = load(100, waiting=12_000, queueing_replicas=1, ready=1)
    Timeline(POLICY).at("0s", **stuck).expect(replicas=11)
    Timeline(POLICY).at("0s", **load(100, ready=1), pending=1200).expect(replicas=12)  # the gateway's anyone can take


def test_the_old_queue_of_one_engine_asks_for_nothing_again_once_the_others_are_there() -> None:
    stuck = load(100, waiting=12_000, queueing_replicas=1, ready=1)
    came = load(100, waiting=12_000, queueing_replicas=1, ready=11)
    Timeline(POLICY).at("0s", **stuck).expect(replicas=11).at("1m", **came).expect(need=11, replicas=11)
