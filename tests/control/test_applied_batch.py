"""Replicas are computed from the batch that engines really run, never from one that was only published."""

from __future__ import annotations

from typing import Any

import pytest

from scaler.control.model import Cause, Code
from scaler.policy.model import Batch, Capacity, Objectives, Policy, ReplicaRange
from scaler.signals.model import Applied
from tests.control.timeline import Timeline, latency

POLICY = Policy(capacity=Capacity(sequences=64), batch=Batch(max=64), replicas=ReplicaRange(max=20))
FULL = dict(running=64, waiting=0, ready=1, busiest_running=64)


def sequences(timeline: Timeline) -> tuple[float, str]:
    assert timeline.decision is not None
    return timeline.decision.capacity.sequences, timeline.decision.capacity.source


def test_a_published_batch_counts_only_once_it_is_applied() -> None:
    pressed = FULL | dict(kv=0.97)
    timeline = Timeline(POLICY).at("0s", **FULL, kv=0.5, applied_batch=64).at("5s", **pressed, applied_batch=64)
    timeline.expect(batch=56, replicas=1).because(Code.MEMORY_PRESSURE)  # 64 x 0.85/0.97
    assert sequences(timeline) == (64.0, "declared")  # the engine still runs what it ran
    timeline.at("10s", **FULL | dict(running=56, busiest_running=56, waiting=8), kv=0.6, applied_batch=56)
    assert sequences(timeline) == (56.0, "applied_batch")
    timeline.expect(replicas=2)  # 64 in flight over 56


def test_what_protection_cut_counts_while_it_is_applied_and_leaves_no_trace() -> None:
    """Queueing behind our own cap shows no cap of the engine's: with the cut the lower capacity ends too."""
    queued = dict(running=56, waiting=8, ready=1, busiest_running=56, queueing_replicas=1, saturated_sequences=56)
    timeline = Timeline(POLICY).at("0s", **FULL, kv=0.5, applied_batch=64)
    timeline.at("5s", **FULL, kv=0.97, applied_batch=64).expect(batch=56)
    timeline.at("10s", **queued, kv=0.6, applied_batch=56).at("15s", **queued, kv=0.6, applied_batch=56)
    assert sequences(timeline) == (56.0, "applied_batch")
    assert timeline.decision is not None
    assert timeline.decision.next_memory.batch_before_protection is not None
    timeline.at("20s", **FULL | dict(running=40, busiest_running=40), kv=0.6, applied_batch=64)
    assert sequences(timeline) == (64.0, "declared")


def test_an_engine_that_does_not_report_is_judged_by_what_is_declared() -> None:
    timeline = Timeline(POLICY).at("0s", **FULL, kv=0.5)
    assert sequences(timeline) == (64.0, "declared")


def test_an_engine_that_runs_more_than_declared_is_not_believed_to_serve_more() -> None:
    timeline = Timeline(POLICY).at("0s", **FULL, kv=0.5, applied_batch=256)
    assert sequences(timeline) == (64.0, "declared")


class TestNobodyFollows:
    """What is published then says nothing, and is not lowered again and again for a cause that it does not cure."""

    SLOW = Policy(batch=Batch(max=64), replicas=ReplicaRange(max=1), objectives=Objectives(tpot_seconds=0.05))

    @staticmethod
    def slow(running: float = 60, **more: Any) -> dict[str, Any]:
        return FULL | dict(running=running, busiest_running=running, kv=0.5, tpot=latency(0.1, p50=0.09), **more)

    def test_slow_steps_at_the_ceiling(self) -> None:
        timeline = Timeline(self.SLOW).at("0s", **self.slow()).at("5s").expect(batch=45, cause=Cause.STEP)
        timeline.at("10m").expect(batch=45).held_back(Code.NOT_APPLIED)
        # It was on its way after all, or somebody lets it follow now.
        timeline.at("10m5s", **self.slow(45)).expect(batch=33)

    def test_memory(self) -> None:
        timeline = Timeline(POLICY).at("0s", **FULL, kv=0.5).at("5s", **FULL, kv=0.97).expect(batch=56)
        timeline.at("10m").expect(batch=56).held_back(Code.NOT_APPLIED)

    def test_the_latency_strategy(self) -> None:
        policy = self.SLOW.model_copy(update={"strategy": "latency"})
        timeline = Timeline(policy).at("0s", **self.slow()).at("5s").expect(batch=8)
        timeline.at("10m").expect(batch=8).held_back(Code.NOT_APPLIED)

    @pytest.mark.parametrize(
        ("told", "further"),
        [((45, 45), True), ((45,), False), ((45, 64), False), ((45, None), False)],
        ids=["all follow", "one of two tells", "one runs its own", "one does not say"],
    )
    def test_who_says_that_it_follows_is_believed_while_others_still_drain(
        self, told: tuple[int | None, ...], further: bool
    ) -> None:
        applied = tuple(Applied(f"chat-{number}", 1.0, size) for number, size in enumerate(told))
        two = self.slow(ready=2)
        timeline = Timeline(self.SLOW).at("0s", **two).at("5s", **two, applied=applied).expect(batch=45)
        timeline.at("20s").expect(batch=33 if further else 45)

    def test_the_token_budget(self) -> None:
        policy = self.SLOW.model_copy(update={"batch": Batch(max=64, token_budget=4096)})
        prompts = FULL | dict(
            kv=0.5,
            tpot=latency(0.1, p50=0.04),
            prompt_tokens_per_second=9000,
            generation_tokens_per_second=1000,
        )
        timeline = Timeline(policy).at("0s", **prompts).at("5s").expect(token_budget=2048, cause=Cause.PREFILL)
        timeline.at("10m").expect(token_budget=2048).held_back(Code.NOT_APPLIED)
        timeline.at("10m5s", **prompts, applied=(Applied("chat-0", 1.0, 64, 2048),)).expect(token_budget=1024)
