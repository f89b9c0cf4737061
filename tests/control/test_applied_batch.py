"""Replicas are computed from the batch that engines really run, never from one that was only published."""

from __future__ import annotations

from scaler.control.model import Code
from scaler.policy.model import Batch, Capacity, Policy, ReplicaRange
from tests.control.timeline import Timeline

POLICY = Policy(capacity=Capacity(sequences=64), batch=Batch(max=64), replicas=ReplicaRange(max=20))
FULL = dict(running=64, waiting=0, ready=1, busiest_running=64)


def sequences(timeline: Timeline) -> tuple[float, str]:
    assert timeline.decision is not None
    return timeline.decision.capacity.sequences, timeline.decision.capacity.source


def test_a_published_batch_counts_only_once_it_is_applied() -> None:
    pressed = FULL | dict(kv=0.97)
    timeline = Timeline(POLICY).at("0s", **FULL, kv=0.5, applied_batch=64).at("5s", **pressed, applied_batch=64)
    timeline.expect(batch=32, replicas=1).because(Code.MEMORY_PRESSURE)
    assert sequences(timeline) == (64.0, "declared")  # the engine still runs what it ran
    timeline.at("10s", **FULL | dict(running=32, busiest_running=32, waiting=32), kv=0.6, applied_batch=32)
    assert sequences(timeline) == (32.0, "applied_batch")
    timeline.expect(replicas=2)  # 64 in flight over 32


def test_what_protection_cut_counts_while_it_is_applied_and_leaves_no_trace() -> None:
    """Queueing behind our own cap shows no cap of the engine's: with the cut the lower capacity ends too."""
    queued = dict(running=32, waiting=32, ready=1, busiest_running=32, queueing_replicas=1, saturated_sequences=32)
    timeline = Timeline(POLICY).at("0s", **FULL, kv=0.5, applied_batch=64)
    timeline.at("5s", **FULL, kv=0.97, applied_batch=64).expect(batch=32)
    timeline.at("10s", **queued, kv=0.6, applied_batch=32).at("15s", **queued, kv=0.6, applied_batch=32)
    assert sequences(timeline) == (32.0, "applied_batch")
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
