"""Who rules: advisory changes nothing, paused holds, an override rules until its time; and what is left behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from scaler.control.decide import decide
from scaler.control.guard import guard
from scaler.control.model import Admission, Code, LoadState, Memory, Mode, Now, Override, Target
from scaler.policy.model import Batch, Policy, ReplicaRange
from scaler.signals.model import Known, NotApplicable, Signals, Stale, Unknown
from tests.control.test_invariants import some_policy, some_signals
from tests.control.timeline import MIDNIGHT, Timeline, gone, quiet, seconds

BUSY = dict(arrivals=20, running=60, waiting=0, ready=2, kv=0.5, asked_replicas=2)
LOADED = Policy(batch=Batch(max=32), replicas=ReplicaRange(max=9))


def under(mode: str, policy: Policy = LOADED) -> Policy:
    return policy.model_copy(update={"mode": mode})


def overridden(timeline: Timeline, lasting: str, **what: Any) -> Timeline:
    """As when an operator says so right after the last tick."""
    until = timeline.start + timedelta(seconds=timeline._elapsed + seconds(lasting))
    timeline.memory = replace(
        timeline.memory, override=Override(what.get("replicas"), what.get("batch"), until, by="ana")
    )
    return timeline


class TestAdvisory:
    def test_keda_is_told_what_is_asked_for_and_engines_keep_their_own(self) -> None:
        timeline = Timeline(under("advisory"))
        timeline.at("0s", **BUSY | {"running": 200, "waiting": 50})
        timeline.expect(replicas=2, active=True, batch=None, token_budget=None, available=True, mode=Mode.ADVISORY)
        timeline.because(Code.ADVISORY).held_back(Code.ADVISORY)
        assert timeline.decision is not None
        assert timeline.decision.advised is not None
        assert timeline.decision.advised.replicas == 8
        assert timeline.decision.advised.batch == 32

    def test_whatever_the_cluster_does_is_what_stands(self) -> None:
        timeline = Timeline(under("advisory"))
        for mark, asked in (("0s", 2), ("5s", 7), ("10s", 1), ("15s", 0), ("20s", 3)):
            timeline.at(mark, **BUSY | {"asked_replicas": asked}).expect(replicas=asked, active=asked > 0)
            timeline.because(Code.ADVISORY)

    def test_a_memory_emergency_is_said_and_nothing_is_held(self) -> None:
        timeline = Timeline(under("advisory")).at("0s", **BUSY)
        timeline.at("10s", **BUSY | {"kv": 0.97})
        timeline.expect(batch=None, admission=Admission.OPEN, state=LoadState.CRITICAL)
        assert timeline.decision is not None
        assert timeline.decision.advised is not None
        assert timeline.decision.advised.admission is Admission.HOLD
        # Nobody obeyed, so each tick's advice is the first step again, not one step further down.
        advised = timeline.decision.advised.batch
        timeline.at("2m")
        assert timeline.decision.advised.batch == advised == 26  # 30 x 0.85/0.97

    def test_a_count_held_for_a_moment_is_told_and_an_unknown_one_is_not(self) -> None:
        timeline = Timeline(under("advisory")).at("0s", **BUSY)
        held: Any = Stale(2.0, 0.0)
        timeline.at("5s", **BUSY | {"asked_replicas": held}).expect(available=True, replicas=2)
        nobody: Any = Unknown("no target is declared")
        timeline.at("10s", **BUSY | {"asked_replicas": nobody}).expect(available=False).because(Code.ASKED_UNKNOWN)

    def test_the_pace_of_the_advice_goes_on_though_nothing_follows_it(self) -> None:
        timeline = Timeline(under("advisory"))
        timeline.at("0s", **BUSY | {"asked_replicas": 8, "ready": 8})
        timeline.at("5s", arrivals=1, running=3, waiting=0, ready=8, asked_replicas=8).at("20m").expect(replicas=8)
        assert timeline.decision is not None
        assert timeline.decision.advised is not None
        assert timeline.decision.advised.replicas == 1

    def test_becoming_active_takes_over_what_runs(self) -> None:
        """The advice of one replica is not carried out in one step: eight run, and a whole down window is awaited."""
        timeline = Timeline(under("advisory"))
        light = dict(arrivals=1, running=3, waiting=0, ready=8, asked_replicas=8)
        timeline.at("0s", **light).at("20m")
        timeline.policy = LOADED
        timeline.at("20m5s", **light).expect(replicas=8, batch=32, mode=Mode.ACTIVE)
        timeline.at("24m").expect(replicas=8).held_back(Code.DOWN_WINDOW)
        timeline.at("25m10s").expect(replicas=4)

    def test_a_load_nobody_started_is_no_failed_load(self) -> None:
        timeline = Timeline(under("advisory", Policy(push={"enabled": True}, replicas=ReplicaRange(max=3))))
        asleep: dict[str, Any] = gone() | {"asked_replicas": 0, "pending": 5, "wake_demand": 0}
        timeline.at("0s", **asleep).at("30m")
        timeline.expect(replicas=0, active=False, available=True)
        assert timeline.memory.failed_loads == 0


class TestPaused:
    def test_the_last_targets_stand_whatever_comes(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY).expect(replicas=2, batch=32)
        timeline.policy = under("paused")
        timeline.at("5s", **BUSY | {"running": 400, "waiting": 100, "kv": 0.99})
        timeline.expect(replicas=2, batch=32, admission=Admission.OPEN, state=LoadState.CRITICAL, mode=Mode.PAUSED)
        timeline.because(Code.PAUSED).held_back(Code.PAUSED)
        timeline.at("10m", **gone()).expect(replicas=2, batch=32, available=True)
        timeline.at("90m", **quiet()).expect(replicas=2, active=True)

    def test_afterwards_the_laws_go_on_from_there(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY)
        timeline.policy = under("paused")
        timeline.at("10m", **BUSY | {"kv": 0.99})
        timeline.policy = LOADED
        # What was not done in the pause left no trace: the shrink is the first, 30 x 0.85/0.99, and at once.
        timeline.at("10m5s").expect(batch=25, admission=Admission.HOLD).because(Code.MEMORY_PRESSURE)

    def test_with_nothing_to_hold_what_is_there_stays(self) -> None:
        timeline = Timeline(under("paused")).at("0s", **BUSY | {"asked_replicas": 5})
        timeline.expect(replicas=5, batch=None, available=True)
        timeline.at("5s", **BUSY | {"asked_replicas": 6}).expect(replicas=5)

    def test_with_nothing_to_hold_and_nobody_counting_keda_gets_no_number(self) -> None:
        nobody: Any = Unknown("no target is declared")
        timeline = Timeline(under("paused")).at("0s", **BUSY | {"asked_replicas": nobody})
        timeline.expect(available=False).because(Code.ASKED_UNKNOWN)
        assert timeline.memory.targets is None

    def test_at_zero_it_stays_at_zero(self) -> None:
        timeline = Timeline(Policy(push={"enabled": True}), memory=Memory())
        timeline.at("0s", **quiet()).at("31m", pending=0, wake_demand=0).expect(active=False)
        timeline.policy = under("paused", timeline.policy)
        asleep: dict[str, Any] = gone() | {"pending": 5, "wake_demand": 1}
        timeline.at("32m", **asleep).at("60m").expect(active=False, replicas=0)
        assert timeline.memory.failed_loads == 0


class TestOverride:
    def test_it_rules_what_it_names_until_its_time(self) -> None:
        timeline = overridden(Timeline(LOADED).at("0s", **BUSY), "30m", replicas=6, batch=16)
        timeline.at("5s", **BUSY).expect(replicas=6, batch=16, mode=Mode.OVERRIDE).because(Code.OVERRIDE)
        assert timeline.decision is not None
        said = next(reason for reason in timeline.decision.reasons if reason.code is Code.OVERRIDE)
        assert (said.signal, said.value) == ("ana", (MIDNIGHT + timedelta(minutes=30)).timestamp())
        timeline.at("29m55s", ready=6, asked_replicas=6, **{k: BUSY[k] for k in ("arrivals", "running", "waiting")})
        timeline.expect(replicas=6, batch=16)
        timeline.at("30m").expect(batch=32, mode=Mode.ACTIVE).because(Code.OVERRIDE_ENDED)
        assert timeline.memory.override is None

    def test_the_rest_is_decided_as_ever(self) -> None:
        timeline = overridden(Timeline(LOADED).at("0s", **BUSY), "1h", replicas=6)
        timeline.at("5s", **BUSY | {"kv": 0.97}).expect(replicas=6, batch=26, admission=Admission.HOLD)

    def test_a_batch_somebody_holds_is_not_shrunk_and_admission_still_protects(self) -> None:
        timeline = overridden(Timeline(LOADED).at("0s", **BUSY), "1h", batch=24)
        timeline.at("5s", **BUSY | {"kv": 0.97}).expect(batch=24, admission=Admission.HOLD)
        assert guard(timeline.policy, timeline.memory, Signals(kv_use_ratio=Known(0.99, 0)), now(timeline)).batch == 24

    def test_back_from_more_replicas_the_way_down_is_paced(self) -> None:
        timeline = overridden(Timeline(LOADED).at("0s", **BUSY), "10m", replicas=8)
        timeline.at("10m", **BUSY | {"ready": 8}).expect(replicas=4).at("11m").expect(replicas=4)
        timeline.at("12m5s").expect(replicas=2)

    def test_zero_needs_no_proof_and_demand_is_seen_afterwards(self) -> None:
        policy = Policy(push={"enabled": True}, replicas=ReplicaRange(max=9))
        timeline = overridden(Timeline(policy).at("0s", pending=0, wake_demand=0, **BUSY), "10m", replicas=0)
        timeline.at("5s").expect(replicas=0, active=False)
        at_zero: dict[str, Any] = gone() | {"pending": 3, "wake_demand": 0, "asked_replicas": 0}
        timeline.at("9m", **at_zero).expect(active=False).at("10m").expect(active=True).because(Code.DEMAND_FROM_ZERO)

    def test_it_wakes_a_sleeping_workload_and_waits_for_it_to_load(self) -> None:
        timeline = Timeline(Policy(push={"enabled": True}), memory=Memory())
        timeline.at("0s", **quiet()).at("31m", pending=0, wake_demand=0).expect(active=False)
        overridden(timeline, "1h", replicas=2)
        loading: dict[str, Any] = gone() | {"pending": 0, "wake_demand": 0}
        timeline.at("31m5s", **loading).expect(replicas=2, active=True, available=True)
        timeline.at("35m").expect(replicas=2).because(Code.LOADING)

    def test_ceiling_and_range_bound_it(self) -> None:
        timeline = overridden(Timeline(LOADED).at("0s", **BUSY), "1h", replicas=50, batch=500)
        timeline.at("5s", **BUSY).expect(replicas=9, batch=32)

    def test_it_answers_though_signals_are_lost(self) -> None:
        timeline = overridden(Timeline(LOADED).at("0s", **BUSY), "1h", replicas=5)
        timeline.at("30m", **gone()).expect(replicas=5, available=True)
        assert timeline.decision is not None
        assert Code.SIGNAL_LOST_TOO_LONG not in {reason.code for reason in timeline.decision.reasons}

    def test_in_a_pause_it_is_the_exception_and_the_pause_returns(self) -> None:
        timeline = Timeline(LOADED).at("0s", **BUSY)
        timeline.policy = under("paused")
        overridden(timeline.at("5s", **BUSY), "10m", replicas=7, batch=8)
        timeline.at("10s").expect(replicas=7, batch=8).at("11m").expect(replicas=2, batch=32, mode=Mode.PAUSED)

    def test_in_advisory_mode_it_acts_on_what_it_names_alone(self) -> None:
        timeline = overridden(Timeline(under("advisory")).at("0s", **BUSY), "10m", replicas=4)
        timeline.at("5s", **BUSY).expect(replicas=4, batch=None)
        timeline.at("11m", **BUSY | {"asked_replicas": 4}).expect(replicas=4, batch=None, mode=Mode.ADVISORY)

    def test_a_restart_neither_ends_nor_prolongs_it(self) -> None:
        timeline = overridden(Timeline(LOADED).at("0s", **BUSY), "30m", replicas=6)
        timeline.at("5s", **BUSY).restarted()
        timeline.memory = MEMORY_JSON.validate_json(MEMORY_JSON.dump_json(timeline.memory))
        timeline.tick(seconds("20m"), **BUSY)
        timeline.expect(replicas=6)
        timeline.restarted().tick(seconds("31m"), **BUSY)
        timeline.expect(mode=Mode.ACTIVE)


MEMORY_JSON = TypeAdapter(Memory)


def now(timeline: Timeline) -> Now:
    elapsed = timeline._elapsed
    return Now(timeline.start + timedelta(seconds=elapsed), timeline.mono + elapsed)


def some_override(chance: Random, utc: Any) -> Override | None:
    if chance.random() < 0.6:
        return None
    replicas, batch = chance.choice(((3, None), (None, 16), (0, 4), (90, 900)))
    return Override(replicas, batch, utc + timedelta(seconds=chance.choice((1, 20, 4000))), "ana")


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_properties_of_every_mode(seed: int) -> None:
    chance = Random(seed)
    policy, memory, mono = some_policy(chance), Memory(), 1000.0
    for _ in range(chance.randint(1, 20)):
        if chance.random() < 0.3:
            policy = under(chance.choice(("active", "advisory", "paused")), policy)
        mono += chance.choice((5.0, 5.0, 61.0, 1900.0))
        at = Now(MIDNIGHT + timedelta(seconds=mono), mono)
        if chance.random() < 0.2:
            memory = replace(memory, override=some_override(chance, at.utc))
        signals = some_signals(chance, mono)
        decision = decide(policy, memory, signals, at)
        assert MEMORY_JSON.validate_json(MEMORY_JSON.dump_json(decision.next_memory)) == decision.next_memory
        assert decide(policy, MEMORY_JSON.validate_json(MEMORY_JSON.dump_json(memory)), signals, at) == decision
        targets, before = decision.targets, memory.targets
        assert targets.active == (targets.replicas > 0)
        override = decision.next_memory.override
        assert (decision.mode is Mode.OVERRIDE) == (override is not None)
        asked = signals.asked_replicas
        if decision.mode is Mode.ADVISORY:
            assert (targets.batch, targets.token_budget, targets.admission) == (None, None, Admission.OPEN)
            assert decision.available == isinstance(asked, Known | Stale)
            if isinstance(asked, Known | Stale):
                assert targets.replicas == int(asked.value)
        if decision.mode is Mode.PAUSED and memory.mode is Mode.PAUSED and before is not None:
            assert targets == before
        if override is not None and override.replicas is not None:
            ceiling = decision.ceiling if decision.ceiling is not None else override.replicas
            assert decision.available
            assert targets.replicas == min(override.replicas, ceiling)
        if before is not None:
            said = {reason.target for reason in decision.reasons}
            for target in (Target.REPLICAS, Target.BATCH, Target.TOKEN_BUDGET, Target.ADMISSION):
                if getattr(before, target) != getattr(targets, target):
                    assert target in said or (target is Target.REPLICAS and Target.ACTIVE in said), (target, decision)
        if decision.mode is not Mode.ACTIVE and not isinstance(asked, NotApplicable) and targets.batch is not None:
            held = guard(policy, replace(memory, targets=targets, override=override), signals, at)
            assert held.batch is None or held.batch <= targets.batch
        memory = decision.next_memory
