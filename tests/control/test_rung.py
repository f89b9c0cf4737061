"""The rung between warm and zero: asleep on proof, awake at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.decide import decide
from scaler.control.model import Code, LoadState, Memory, Mode, Now, Override, Rung, Target
from scaler.policy.model import Batch, Idle, Policy, Push, ReplicaRange
from scaler.policy.windows import Warm, Window
from scaler.signals.model import NotApplicable, Stale, Unknown, at_least
from tests.control.test_invariants import MEMORY_JSON, some_policy, some_signals
from tests.control.timeline import MIDNIGHT, Timeline, gone, quiet
from tests.control.timeline import signals as made

SLEEPY = Policy(
    push=Push(enabled=True),
    replicas=ReplicaRange(max=8),
    batch=Batch(max=64),
    idle=Idle(timeout_seconds=1800, sleep_after_seconds=300),
)


def nobody(ready: float = 1, asleep: float = 0, **more: object) -> dict[str, object]:
    return quiet(ready) | {"asleep_replicas": asleep, "pending": 0, "wake_demand": 0} | more


def traffic(ready: float = 1) -> dict[str, object]:
    return dict(
        arrivals=2, recent=2, last=2, running=3, waiting=0, ready=ready, asleep_replicas=0, pending=0, wake_demand=0
    )


def sleeping(policy: Policy = SLEEPY) -> Timeline:
    """Asleep since 5 min, at 6 min, as its page says."""
    timeline = Timeline(policy).at("0s", **traffic()).at("5s", **nobody()).at("5m").expect(rung=Rung.ASLEEP)
    return timeline.at("5m5s", **nobody(asleep=1)).at("6m")


def test_warm_then_asleep_then_zero_by_declared_times() -> None:
    timeline = Timeline(SLEEPY).at("0s", **traffic()).at("5s", **nobody())
    timeline.at("4m59s").expect(rung=Rung.AWAKE, active=True)
    timeline.at("5m").expect(rung=Rung.ASLEEP, active=True, replicas=1, state=LoadState.IDLE)
    timeline.because(Code.IDLE_PROVEN)
    timeline.at("5m5s", **nobody(asleep=1)).at("29m59s").expect(rung=Rung.ASLEEP, replicas=1)
    timeline.at("30m").expect(active=False, replicas=0)


def test_undeclared_nothing_ever_sleeps() -> None:
    policy = SLEEPY.model_copy(update={"idle": Idle()})
    timeline = Timeline(policy).at("0s", **traffic()).at("5s", **nobody()).at("35m")
    assert all(decision.targets.rung is Rung.AWAKE for decision in timeline.history)


@pytest.mark.parametrize("demand", [{"pending": 1}, {"wake_demand": 1}, {"waiting": 1}, {"counters_moved": True}])
def test_any_demand_wakes_in_that_very_tick(demand: dict[str, object]) -> None:
    timeline = sleeping().at("6m1s", **nobody(asleep=1) | demand)
    timeline.expect(rung=Rung.AWAKE, active=True, replicas=1).because(Code.TRAFFIC)


def test_a_wake_is_not_delayed_by_a_sleep_that_has_just_begun() -> None:
    timeline = Timeline(SLEEPY).at("0s", **traffic()).at("5s", **nobody()).at("5m").expect(rung=Rung.ASLEEP)
    timeline.tick(300.2, **nobody(pending=1))
    timeline.expect(rung=Rung.AWAKE)


def test_what_sleeps_is_a_replica_and_no_capacity() -> None:
    timeline = sleeping().expect(ready=0, asleep=1, replicas=1)
    timeline.at("6m5s", **nobody(asleep=1, pending=3)).expect(ready=0, asleep=1, state=LoadState.HIGH)
    timeline.expect(replicas=1)  # the one that wakes serves them: none is bought beside it
    timeline.at("6m15s", **nobody(asleep=0, pending=3)).expect(ready=1, asleep=0)


def test_the_wake_is_measured_until_no_replica_sleeps_and_kept() -> None:
    timeline = sleeping().at("6m5s", **nobody(asleep=1, pending=1)).expect(rung=Rung.AWAKE)
    timeline.at("6m10s").because(Code.WAKING).at("6m25s", **traffic())
    assert timeline.memory.woken_seconds == 20.0
    assert timeline.memory.waking_seconds is None
    timeline.at("10m").restarted().at("10m5s")
    assert timeline.memory.woken_seconds == 20.0


def test_a_load_from_zero_is_measured_beside_it() -> None:
    timeline = sleeping().at("31m").expect(active=False)
    timeline.at("32m", **gone(), pending=1, wake_demand=0).expect(active=True, rung=Rung.AWAKE)
    timeline.at("34m20s", **traffic())
    assert timeline.memory.loaded_seconds == 140.0
    assert timeline.memory.woken_seconds is None


def test_a_wake_that_never_comes_is_said() -> None:
    timeline = sleeping().at("6m5s", **nobody(asleep=1, pending=1)).at("21m").because(Code.WAKING)
    timeline.at("21m5s").because(Code.WAKE_FAILED).expect(rung=Rung.AWAKE, active=True)


def test_without_a_wake_source_nothing_sleeps_and_it_says_why() -> None:
    policy = SLEEPY.model_copy(update={"push": Push(), "replicas": ReplicaRange(min=1, max=8)})
    timeline = Timeline(policy).at("0s", **traffic()).at("5s", **quiet(), asleep_replicas=0).at("20m")
    timeline.expect(rung=Rung.AWAKE).held_back(Code.NO_WAKE_SOURCE)


def test_an_engine_without_sleep_is_not_asked_to() -> None:
    none = NotApplicable("engine sglang: it does not tell of any sleep")
    timeline = Timeline(SLEEPY).at("0s", **traffic()).at("5s", **nobody(asleep_replicas=none)).at("20m")
    timeline.expect(rung=Rung.AWAKE).held_back(Code.CANNOT_SLEEP)


def test_a_version_that_does_not_tell_its_sleep_may_sleep() -> None:
    silent = nobody(asleep_replicas=Unknown("no endpoint reports awake_engines"))
    Timeline(SLEEPY).at("0s", **traffic()).at("5s", **silent).at("5m").expect(rung=Rung.ASLEEP)


@pytest.mark.parametrize("name", ["running", "waiting", "ready", "arrivals", "pending"])
def test_one_unknown_signal_and_it_does_not_fall_asleep(name: str) -> None:
    lost = nobody() | {name: Unknown("timed out")}
    timeline = Timeline(SLEEPY).at("0s", **traffic()).at("5s", **lost).at("20m")
    timeline.expect(rung=Rung.AWAKE).held_back(Code.IDLE_UNPROVEN)


def test_engines_that_cannot_be_read_in_their_sleep_stay_asleep_as_long_as_somebody_could_wake_them() -> None:
    timeline = sleeping().at("6m5s", **nobody() | gone() | {"asleep_replicas": Unknown("refused")}).at("8m")
    timeline.expect(rung=Rung.ASLEEP)
    stale = {name: Stale(0.0, 1000.0) for name in ("running", "waiting", "arrivals", "ready", "asleep_replicas")}
    sleeping().at("6m5s", **nobody() | stale).expect(rung=Rung.ASLEEP)


@pytest.mark.parametrize("name", ["pending", "wake_demand"])
def test_a_wake_source_that_is_lost_wakes(name: str) -> None:
    timeline = sleeping().at("6m5s", **nobody(asleep=1) | {name: Unknown("the gateway is silent")})
    timeline.expect(rung=Rung.AWAKE).because(Code.WAKE_SOURCE_LOST)


def test_a_keep_warm_window_wakes_and_keeps_awake() -> None:
    window = Window(start="08:00", end="20:00", zone="Europe/Berlin")
    policy = SLEEPY.model_copy(
        update={"warm": Warm(windows=(window,)), "idle": Idle(timeout_seconds=36000, sleep_after_seconds=300)}
    )
    timeline = Timeline(policy, start=datetime(2026, 6, 3, 5, 30, tzinfo=UTC))  # 07:30 in Berlin
    timeline.at("0s", **traffic()).at("5s", **nobody()).at("10m").expect(rung=Rung.ASLEEP)
    timeline.at("10m5s", **nobody(asleep=1)).at("29m55s").expect(rung=Rung.ASLEEP)
    timeline.at("30m").expect(rung=Rung.AWAKE).because(Code.FLOOR)
    timeline.at("2h").expect(rung=Rung.AWAKE).held_back(Code.FLOOR)


@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25)])
def test_g5_08_the_window_that_wakes_opens_at_its_wall_time_on_days_of_23_and_25_hours(
    day: tuple[int, int, int],
) -> None:
    window = Window(start="08:00", end="20:00", zone="Europe/Berlin")
    policy = SLEEPY.model_copy(
        update={"warm": Warm(windows=(window,)), "idle": Idle(timeout_seconds=86400, sleep_after_seconds=300)}
    )
    opens = datetime(*day, 8 - (2 if day[1] == 3 else 1), tzinfo=UTC)  # summer time on the first, winter on the second
    timeline = Timeline(policy, start=opens - timedelta(minutes=10))
    timeline.at("0s", **nobody()).at("9m55s").expect(rung=Rung.ASLEEP).at("10m").expect(rung=Rung.AWAKE)


def test_replicas_that_are_only_held_at_a_minimum_may_sleep() -> None:
    policy = SLEEPY.model_copy(update={"replicas": ReplicaRange(min=2, max=8)})
    timeline = Timeline(policy).at("0s", **traffic(2)).at("5s", **nobody(2)).at("5m")
    timeline.expect(rung=Rung.ASLEEP, replicas=2).at("2h", **nobody(2, asleep=2)).expect(rung=Rung.ASLEEP, replicas=2)


def test_a_policy_that_no_longer_wants_it_wakes() -> None:
    timeline = sleeping()
    timeline.policy = SLEEPY.model_copy(update={"idle": Idle()})
    timeline.at("6m5s").expect(rung=Rung.AWAKE).because(Code.SLEEP_UNDECLARED)


def test_a_restart_in_its_sleep_keeps_the_rung_and_the_time_to_zero() -> None:
    timeline = sleeping().restarted().at("6m5s").expect(rung=Rung.ASLEEP)
    timeline.at("30m").expect(rung=Rung.ASLEEP, active=True).at("30m5s").expect(active=False)


def test_a_scaler_that_never_knew_it_takes_over_awake_and_with_every_replica() -> None:
    Timeline(SLEEPY).at("0s", **nobody(3, asleep=3)).expect(rung=Rung.AWAKE, replicas=3)


def test_one_stalled_among_those_asleep_wakes_them() -> None:
    policy = SLEEPY.model_copy(update={"replicas": ReplicaRange(min=2, max=8)})
    timeline = Timeline(policy).at("0s", **traffic(2)).at("5s", **nobody(2)).at("5m5s", **nobody(2, asleep=2))
    timeline.at("5m10s", **nobody(1, asleep=1, stalled=1)).expect(rung=Rung.AWAKE).because(Code.STALLED)


def test_an_override_of_replicas_means_replicas_that_serve() -> None:
    timeline = sleeping()
    override = Override(2, None, timeline.start + timedelta(hours=1), "anna")
    timeline.memory = replace(timeline.memory, override=override)
    timeline.at("6m5s").expect(rung=Rung.AWAKE, replicas=2, mode=Mode.OVERRIDE)
    assert timeline.memory.asleep_seconds is None


def test_advice_puts_nothing_to_sleep() -> None:
    policy = SLEEPY.model_copy(update={"mode": "advisory"})
    timeline = Timeline(policy).at("0s", **traffic(), asked_replicas=1).at("5s", **nobody(), asked_replicas=1).at("10m")
    timeline.expect(rung=Rung.AWAKE)
    assert timeline.decision is not None
    assert timeline.decision.advised is not None
    assert timeline.decision.advised.rung is Rung.ASLEEP


@given(st.integers(0, 2**32))
def test_whatever_happens_sleep_is_proven_demand_wakes_and_each_change_has_a_reason(seed: int) -> None:
    chance = Random(seed)
    policy = some_policy(chance).model_copy(update={"idle": Idle(timeout_seconds=600, sleep_after_seconds=60)})
    memory, mono = Memory(), 1000.0
    for _ in range(24):
        mono += chance.choice((5.0, 5.0, 61.0, 200.0))
        calm = nobody(chance.choice((1.0, 2.0)), chance.choice((0.0, 1.0)))
        signals = some_signals(chance, mono) if chance.random() < 0.25 else made(mono, **calm)
        decision = decide(policy, memory, signals, Now(MIDNIGHT + timedelta(seconds=mono), mono))
        before, after = memory.targets, decision.targets
        if after.rung is Rung.ASLEEP and after.active:
            assert policy.can_wake
            assert not signals.counters_moved
            assert not any(
                at_least(getattr(signals, name)) for name in ("pending", "wake_demand", "running", "waiting")
            )
            assert decision.next_memory.idle_seconds >= 60
        if before is not None and before.rung is not after.rung:
            assert Target.RUNG in {reason.target for reason in decision.reasons}
        memory = decision.next_memory
        assert MEMORY_JSON.validate_json(MEMORY_JSON.dump_json(memory)) == memory
