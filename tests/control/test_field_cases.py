"""Incidents of others as timelines: what the laws do where somebody else's controller went wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scaler.control.model import Code, LoadState
from scaler.policy.jump import Jump, JumpRow
from scaler.policy.model import Batch, Capacity, Idle, Objectives, Policy, Push, ReplicaRange
from scaler.signals.model import Stale
from tests.control.timeline import Timeline, quiet


class TestG505ACooldownBlocksNothingUrgent:
    """A step down has just been made and the batch has just been changed: what is urgent waits for neither."""

    POLICY = Policy(
        batch=Batch(max=64, cooldown_seconds=60),
        capacity=Capacity(requests_per_second=5, sequences=32),
        replicas=ReplicaRange(max=8, down_window_seconds=10, down_step_seconds=300),
        jump=Jump(rows=(JumpRow(rate_at_least=50, batch=32, replicas=8),)),
        objectives=Objectives(),
    )

    def down(self) -> Timeline:
        timeline = Timeline(self.POLICY).at("0s", arrivals=18, running=40, waiting=0, ready=4, kv=0.4)
        timeline.at("5s", arrivals=8, running=20, waiting=0, ready=4, kv=0.4).at("20s")
        return timeline.expect(replicas=2)

    def test_up_is_at_once_though_down_has_to_wait(self) -> None:
        timeline = self.down()
        timeline.at("40s", arrivals=9, recent=60, last=80, running=64, waiting=220, ready=2, kv=0.4)
        timeline.expect(replicas=8, batch=64)
        # And from here the way down waits anew.
        timeline.at("45s", arrivals=8, running=20, waiting=0, ready=8, kv=0.4).at("2m").expect(replicas=8)

    def test_a_preemption_storm_shrinks_within_the_cooldown(self) -> None:
        timeline = self.down()
        timeline.at("25s", arrivals=8, running=20, waiting=0, ready=2, kv=0.97).expect(batch=8)  # 10 x 0.85/0.97
        timeline.at("30s", arrivals=8, running=10, waiting=10, ready=2, kv=0.4)
        timeline.at("87s").expect(batch=16)  # a growth: cooldown
        timeline.at("90s", arrivals=8, running=20, waiting=0, ready=2, kv=0.9, preempted=50)
        timeline.expect(batch=9).because(Code.MEMORY_PRESSURE)  # nine tenths of the 10 that run

    def test_what_is_held_back_is_said(self) -> None:
        timeline = Timeline(self.POLICY).at("0s", arrivals=18, running=40, waiting=0, ready=4, kv=0.4)
        timeline.at("5s", arrivals=8, running=20, waiting=0, ready=4, kv=0.4).held_back(Code.DOWN_WINDOW)
        timeline.at("25s", arrivals=2, running=4, waiting=0, ready=2, kv=0.4).at("60s").held_back(Code.DOWN_STEP)


def test_g5_06_b_nothing_goes_whose_load_the_rest_could_not_take() -> None:
    """Two replicas at 6 each, 7 the most for one: the average is low enough, the sum is not."""
    policy = Policy(capacity=Capacity(sequences=7, requests_per_second=7), replicas=ReplicaRange(max=4))
    timeline = Timeline(policy).at("0s", arrivals=12, running=12, waiting=0, ready=2, kv=0.2)
    timeline.at("30m").expect(replicas=2, state=LoadState.NORMAL)


class TestG508ClocksThatAreSet:
    """The idle timer runs on a clock that nobody sets; windows and overrides go by the time of day."""

    @pytest.mark.parametrize("hours", [-2, 2])
    def test_idleness_ends_when_it_would_have(self, hours: int) -> None:
        policy = Policy(push=Push(enabled=True), idle=Idle(timeout_seconds=300))
        timeline = Timeline(policy).at("0s", **quiet(), pending=0, wake_demand=0).at("100s").expect(active=True)
        timeline.start += timedelta(hours=hours)
        timeline.at("295s").expect(active=True).at("300s").expect(active=False)


DONE: dict[str, Any] = dict(arrivals=0, waiting=0, ready=5, pending=0, wake_demand=0)


class TestG509NoZeroWithStreamsRunning:
    """KEDA takes an inactive workload to zero from any count, past the HPA: activity has to last as work does."""

    POLICY = Policy(push=Push(enabled=True), replicas=ReplicaRange(max=8), idle=Idle(timeout_seconds=300))

    def test_the_idle_clock_starts_when_the_last_stream_ends(self) -> None:
        timeline = Timeline(self.POLICY).at("0s", **DONE, running=3).at("8m").expect(active=True)
        timeline.at("8m5s", **DONE, running=0).at("12m55s").expect(active=True).at("13m").expect(active=False)

    def test_a_replica_that_is_not_heard_is_not_idle(self) -> None:
        unheard: Any = Stale(0.0, 0.0)
        timeline = Timeline(self.POLICY).at("0s", **DONE, running=0).at("10s", **DONE, running=unheard)
        timeline.at("2m").expect(active=True).held_back(Code.IDLE_UNPROVEN)
        timeline.at("60m").expect(active=True)
