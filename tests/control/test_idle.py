"""Zero needs proof; waking does not."""

from datetime import UTC, datetime, timedelta

import pytest

from scaler.control.model import Code, LoadState
from scaler.policy.model import Batch, Capacity, Idle, Policy, Push, ReplicaRange
from scaler.policy.windows import Warm, Window
from scaler.signals.model import Known, Stale, Unknown
from tests.control.timeline import Timeline, gone, quiet

WAKEABLE = Policy(push=Push(enabled=True), replicas=ReplicaRange(max=8), batch=Batch(max=64))


def nobody(ready: float = 1, **more: object) -> dict[str, object]:
    return quiet(ready) | {"pending": 0, "wake_demand": 0} | more


def traffic(ready: float = 1) -> dict[str, object]:
    return dict(arrivals=2, recent=2, last=2, running=3, waiting=0, ready=ready, pending=0, wake_demand=0)


def asleep() -> Timeline:
    return Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody()).at("31m", **nobody()).expect(active=False)


def test_active_for_30_minutes_without_traffic_and_not_a_second_longer() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody())
    timeline.at("29m59s").expect(active=True, replicas=1, state=LoadState.IDLE)
    timeline.at("30m").expect(active=False, replicas=0).because(Code.IDLE_PROVEN)


def test_one_request_starts_the_half_hour_anew() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody())
    timeline.once("20m", **traffic()).at("49m55s").expect(active=True).at("50m").expect(active=False)


def test_a_counter_that_moved_between_two_quiet_gauges_restarts_the_timer() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody())
    timeline.once("20m", **nobody(counters_moved=True)).at("49m55s").expect(active=True)
    timeline.at("50m").expect(active=False)


def test_one_unknown_reading_freezes_the_timer_for_that_long() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody())
    timeline.once("20m", **nobody(running=Unknown("timed out"))).held_back(Code.IDLE_UNPROVEN)
    timeline.at("30m").expect(active=True).at("30m5s").expect(active=False)


def test_ten_lost_minutes_are_not_idle_minutes() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody()).at("10m")
    timeline.at("10m5s", **nobody() | gone()).at("20m").at("20m5s", **nobody())
    timeline.at("39m55s").expect(active=True).at("40m5s").expect(active=False)


def test_a_silent_wake_source_keeps_the_workload_from_zero() -> None:
    lost = nobody(pending=Unknown("the gateway has not reported for 70 s"))
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **lost).at("2h")
    timeline.expect(active=True, replicas=1).held_back(Code.IDLE_UNPROVEN)


def test_zero_is_never_decided_on_a_remembered_reading() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody()).at("29m55s")
    old = Known(0.0, timeline.mono + 29 * 60 + 50)  # the read of two ticks ago, still within its time
    timeline.at("30m", **nobody(running=old)).expect(active=True)
    timeline.at("30m5s", **nobody()).expect(active=False)


def test_a_restart_after_20_idle_minutes_goes_on_from_there() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody()).at("20m")
    timeline.restarted().at("20m5s", **nobody()).at("30m").expect(active=True)
    timeline.at("30m5s").expect(active=False)  # the tick after the restart counts no time


@pytest.mark.parametrize("hours", [-2, 2])
def test_g5_08_a_wall_clock_that_is_set_moves_no_timer(hours: int) -> None:
    policy = WAKEABLE.model_copy(update={"idle": Idle(timeout_seconds=300)})
    timeline = Timeline(policy).at("0s", **traffic()).at("5s", **nobody()).at("1m40s")
    timeline.start += timedelta(hours=hours)
    timeline.at("1m45s").at("4m55s").expect(active=True).at("5m").expect(active=False).because(Code.IDLE_PROVEN)


@pytest.mark.parametrize("hours", [-2, 2])
def test_g5_08_a_set_clock_moves_no_cooldown_either(hours: int) -> None:
    busy = dict(arrivals=30, recent=30, last=30, running=24, waiting=0, kv=0.2, pending=0, wake_demand=0)
    policy = Policy(capacity=Capacity(requests_per_second=10, sequences=100), replicas=ReplicaRange(max=8))
    timeline = Timeline(policy).at("0s", **busy, ready=3).at("6m")
    timeline.at("6m5s", **busy | dict(arrivals=10, recent=10, last=10, running=8), ready=3).at("8m")
    timeline.start += timedelta(hours=hours)
    timeline.at("11m").expect(replicas=3).held_back(Code.DOWN_WINDOW).at("11m5s").expect(replicas=2)


def test_g5_09_while_anything_runs_it_is_active_and_the_idle_time_begins_when_the_last_stream_ends() -> None:
    policy = WAKEABLE.model_copy(update={"idle": Idle(timeout_seconds=300)})
    streams = nobody(ready=5) | dict(running=3)
    timeline = Timeline(policy).at("0s", **traffic(ready=5)).at("5s", **streams).at("8m").expect(active=True)
    assert all(decision.targets.replicas >= 1 for decision in timeline.history)
    timeline.at("8m5s", **nobody(ready=5)).at("12m55s").expect(active=True)
    timeline.at("13m").expect(active=False).because(Code.IDLE_PROVEN)


def test_g5_09_a_replica_that_tells_nothing_may_still_have_streams() -> None:
    policy = WAKEABLE.model_copy(update={"idle": Idle(timeout_seconds=300)})
    incomplete = nobody(ready=5) | dict(running=Stale(0.0, 1000.0))
    timeline = Timeline(policy).at("0s", **traffic(ready=5)).at("5s", **incomplete).at("60m")
    timeline.expect(active=True).held_back(Code.IDLE_UNPROVEN)


def test_without_a_wake_source_the_floor_is_one_for_ever() -> None:
    timeline = Timeline(Policy(replicas=ReplicaRange(max=8))).at("0s", **quiet()).at("3h")
    timeline.expect(active=True, replicas=1, floor=1, state=LoadState.IDLE).held_back(Code.FLOOR)


def test_an_open_keep_warm_window_is_a_floor_of_one_instead_of_zero() -> None:
    window = Window(days="mon-fri", start="08:00", end="20:00", zone="Europe/Berlin")
    policy = WAKEABLE.model_copy(update={"warm": Warm(windows=(window,))})
    inside = Timeline(policy, start=datetime(2026, 6, 3, 7, tzinfo=UTC))  # 09:00 in Berlin
    inside.at("0s", **traffic()).at("5s", **nobody()).at("45m").expect(active=True, replicas=1, floor=1)
    outside = Timeline(policy, start=datetime(2026, 6, 3, 19, tzinfo=UTC))
    outside.at("0s", **traffic()).at("5s", **nobody()).at("45m").expect(active=False, floor=0)


def test_when_the_window_closes_the_ordinary_idle_rule_applies_and_running_work_goes_on() -> None:
    window = Window(start="08:00", end="20:00", zone="Europe/Berlin")
    policy = WAKEABLE.model_copy(update={"warm": Warm(windows=(window,))})
    timeline = Timeline(policy, start=datetime(2026, 6, 3, 17, 55, tzinfo=UTC)).at("0s", **traffic())
    timeline.at("10m").expect(active=True, floor=0, replicas=1)


def test_a_window_that_opens_brings_a_sleeping_workload_up() -> None:
    window = Window(start="08:00", end="20:00", zone="Europe/Berlin", replicas=2)
    policy = WAKEABLE.model_copy(update={"warm": Warm(windows=(window,))})
    timeline = Timeline(policy, start=datetime(2026, 6, 3, 5, 0, tzinfo=UTC)).at("0s", **traffic())
    timeline.at("5s", **nobody()).at("31m").expect(active=False)
    timeline.at("59m55s", **gone()).expect(active=False).at("60m").expect(active=True, replicas=2)


def test_woken_from_zero_at_once_by_a_wake() -> None:
    asleep().at("40m", **gone(), pending=0, wake_demand=1).expect(active=True, replicas=1, state=LoadState.HIGH)


def test_at_zero_an_engine_that_does_not_answer_is_no_error() -> None:
    asleep().at("40m", **gone(), pending=0, wake_demand=0).expect(active=False, replicas=0, available=True)


def test_g2_03_demand_at_the_gateway_wakes_and_a_lost_gateway_is_not_quiet() -> None:
    asleep().at("40m", **gone(), pending=3, wake_demand=0).expect(active=True, available=True)
    lost = asleep().at("40m", **gone(), pending=Unknown("router down"), wake_demand=0)
    lost.expect(active=False)  # it cannot wake; nothing proves that it should


def test_g2_05_loading_counts_as_busy_until_ready_and_the_idle_time_follows() -> None:
    policy = WAKEABLE.model_copy(update={"idle": Idle(timeout_seconds=60)})
    timeline = Timeline(policy).at("0s", **traffic()).at("5s", **nobody()).at("65s").expect(active=False)
    timeline.at("2m", **gone(), pending=1, wake_demand=0).expect(active=True, replicas=1)
    timeline.at("3m30s", **gone(), pending=0, wake_demand=0).expect(active=True, replicas=1, available=True)
    timeline.because(Code.LOADING).at("6m").expect(active=True, replicas=1)
    timeline.at("6m5s", **nobody()).at("7m", **nobody()).expect(active=True).at("7m5s").expect(active=False)


def test_g2_05_a_long_load_never_asks_for_a_second_replica_by_itself() -> None:
    timeline = asleep()
    for minute in range(32, 45):
        timeline.at(f"{minute}m", **gone(), pending=1, wake_demand=0).expect(active=True, replicas=1)


def test_g2_05_a_load_that_never_ends_is_given_up_and_the_next_wake_waits() -> None:
    timeline = asleep().at("32m", **gone(), pending=1, wake_demand=0).expect(active=True)
    timeline.at("46m55s").expect(active=True).at("47m").expect(active=False).because(Code.LOAD_FAILED)
    timeline.at("47m5s").expect(active=False).held_back(Code.WAKE_BACKOFF)
    timeline.at("48m5s").expect(active=True)
    timeline.at("63m5s").expect(active=False).at("64m5s").expect(active=False).at("65m10s").expect(active=True)


def test_a_floor_is_asked_for_again_after_a_failed_load() -> None:
    policy = WAKEABLE.model_copy(update={"replicas": ReplicaRange(min=1, max=8)})
    timeline = Timeline(policy).at("0s", **gone(), pending=1, wake_demand=0).expect(active=True)
    timeline.at("15m").expect(active=True, replicas=1).because(Code.LOAD_FAILED)


def test_a_workload_never_seen_is_just_active() -> None:
    Timeline(WAKEABLE).at("0s", **nobody()).expect(active=True, replicas=1)


def test_a_workload_never_seen_and_out_of_reach_is_unavailable_until_someone_asks_for_it() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **gone(), pending=0, wake_demand=0).expect(available=False)
    timeline.at("5s", **gone(), pending=2, wake_demand=0).expect(available=True, active=True, replicas=1)


def test_wake_takes_the_activation_size() -> None:
    policy = WAKEABLE.model_copy(update={"replicas": ReplicaRange(max=8, activation=3)})
    timeline = Timeline(policy).at("0s", **traffic()).at("5s", **nobody()).at("31m").expect(active=False)
    timeline.at("32m", **gone(), pending=1, wake_demand=0).expect(replicas=3).at("35m").expect(replicas=3)


def test_stalled_work_is_neither_traffic_nor_quiet() -> None:
    timeline = Timeline(WAKEABLE).at("0s", **traffic()).at("5s", **nobody(0, stalled=1)).at("2h")
    timeline.expect(active=True, replicas=1, state=LoadState.STALLED)
