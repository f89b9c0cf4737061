"""The strategies beside ``adaptive``, and static batching: what each does over time, and what none of them does."""

from __future__ import annotations

from typing import Any

import pytest

from scaler.control.model import Admission, Cause, Code, LoadState
from scaler.policy.model import Batch, Objectives, Policy, QueueTarget, ReplicaRange
from scaler.signals.model import NotApplicable
from tests.control.timeline import Timeline, latency


#: The queue of a replica, which neither rates nor latencies explain away.
def waiting(requests: float, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict(arrivals=3, running=8, ready=1, kv=0.3, waiting=requests, gpu_busy=0.5)
    return values | more


QUEUE = Policy(strategy="queue", replicas=ReplicaRange(max=1), objectives=Objectives())
#: A triton-like engine: e2e is its one latency, and nothing is known of a KV cache.
STATIC = Policy(
    engine="triton",
    batch=Batch(batching="static"),
    replicas=ReplicaRange(max=4),
    objectives=Objectives(e2e_seconds=2.0, e2e_critical_seconds=5.0),
)


class TestQueue:
    def test_the_worked_example(self) -> None:
        """Default 8, backlog 5 to 30: batch 16, for the ratio is clamped at twice; at 12 it stays; without one, 8."""
        timeline = Timeline(QUEUE).at("0s", **waiting(5, gpu_busy=0.35)).expect(batch=8)
        timeline.at("2m", **waiting(30, gpu_busy=0.7)).expect(batch=16).because(Code.QUEUE_LONG)
        timeline.at("2m5s", **waiting(12, gpu_busy=0.7)).at("10m").expect(batch=16)
        timeline.at("10m5s", **waiting(0)).expect(batch=8).because(Code.QUEUE_SHORT)
        timeline.at("30m").expect(batch=8)  # never below the value it started from

    def test_in_proportion_within_the_clamp(self) -> None:
        timeline = (
            Timeline(QUEUE).at("0s", **waiting(10)).at("1m", **waiting(17)).expect(batch=14)
        )  # 8 x 1.7, rounded up
        timeline.at("1m5s", **waiting(5.9)).at("2m").expect(batch=8)

    def test_the_dead_zone_moves_nothing(self) -> None:
        timeline = Timeline(QUEUE).at("0s", **waiting(10))
        for minute, queue in enumerate((6, 15, 6, 15, 10), start=1):
            timeline.at(f"{minute}m", **waiting(queue)).expect(batch=8, suppressed=())

    def test_per_ready_replica(self) -> None:
        timeline = Timeline(QUEUE).at("0s", **waiting(40, ready=4)).at("2m").expect(batch=8)
        timeline.at("3m", **waiting(64, ready=4)).expect(batch=13)

    def test_the_cooldown_and_the_top_of_the_range(self) -> None:
        timeline = Timeline(QUEUE).at("0s", **waiting(10)).at("5s", **waiting(200)).expect(batch=16)
        timeline.at("10s").expect(batch=16).held_back(Code.COOLDOWN)
        timeline.at("65s").expect(batch=32).at("2m5s").expect(batch=64).at("10m").expect(batch=64)

    def test_no_growth_without_room_or_where_steps_are_slow(self) -> None:
        timeline = Timeline(QUEUE).at("0s", **waiting(10)).at("5s", **waiting(60, kv=0.9)).expect(batch=8)
        timeline.held_back(Code.KV_ROOM)
        objectives = Objectives(tpot_seconds=0.05)
        slow = Timeline(QUEUE.model_copy(update={"objectives": objectives})).at("0s", **waiting(0))
        prompts = dict(prompt_tokens_per_second=900, generation_tokens_per_second=100)
        slow.at("5s", **waiting(60, tpot=latency(0.2, p50=0.03), **prompts)).expect(batch=8, cause=Cause.PREFILL)
        slow.held_back(Code.SLOW_STEPS)

    def test_what_protection_took_is_given_back_first(self) -> None:
        timeline = Timeline(QUEUE).at("0s", **waiting(10)).at("5s", **waiting(10, kv=0.97)).expect(batch=7)
        timeline.at("10s", **waiting(0)).at("15s").expect(batch=7).at("20s").expect(batch=8).because(Code.RECOVERY)

    def test_an_unknown_queue_moves_nothing(self) -> None:
        timeline = Timeline(QUEUE).at("0s", **waiting(30)).at("5s").expect(batch=16)
        lost: Any = NotApplicable("it does not tell")
        timeline.at("10s", **waiting(0) | {"waiting": lost}).at("5m").expect(batch=16)

    def test_an_oscillation_parts_the_ends_of_the_dead_zone(self) -> None:
        quick = QUEUE.model_copy(update={"batch": Batch(cooldown_seconds=0, max=64)})
        timeline = Timeline(quick).at("0s", **waiting(10))
        for turn in range(6):
            timeline.at(f"{10 + 20 * turn}s", **waiting(16 if turn % 2 == 0 else 4))
        assert timeline.memory.batch_swing.widening > 1
        batch = timeline.memory.targets.batch if timeline.memory.targets else None
        timeline.at("3m", **waiting(16)).expect(batch=batch).held_back(Code.OSCILLATION)

    @pytest.mark.parametrize("wrong", [{"low": 10}, {"high": 10}, {"target": 20}])
    def test_ends_that_do_not_enclose_the_target_are_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="between low and high"):
            QueueTarget(**wrong)


LATENCY = Policy(strategy="latency", replicas=ReplicaRange(max=1), objectives=Objectives(tpot_seconds=0.05))


def paced(p95: float, mean: float, running: float = 8, queue: float = 0, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict(
        arrivals=3, running=running, ready=1, kv=0.3, waiting=queue, tpot=latency(p95, p50=mean, mean=mean)
    )
    return values | more


class TestLatency:
    def test_up_by_two_where_far_by_one_where_near_and_never_beyond(self) -> None:
        timeline = Timeline(LATENCY).at("0s", **paced(0.02, 0.010)).expect(batch=8)
        timeline.at("30s").expect(batch=8)  # a window against the one before, not two samples
        timeline.at("60s").expect(batch=10).because(Code.LATENCY_ROOM)
        timeline.at("65s", **paced(0.03, 0.010, running=10)).at("115s").expect(batch=10)
        timeline.at("2m").expect(batch=11)
        timeline.at("2m5s", **paced(0.045, 0.010, running=11)).at("10m").expect(batch=11)

    def test_down_when_p95_rises_towards_its_bound(self) -> None:
        timeline = Timeline(LATENCY).at("0s", **paced(0.04, 0.020))
        timeline.at("5s", **paced(0.045, 0.022)).at("60s").expect(batch=7).because(Code.LATENCY_RISES)
        timeline.at("2m").expect(batch=7)  # near, and not rising any more

    def test_the_bound_is_hard(self) -> None:
        timeline = Timeline(LATENCY).at("0s", **paced(0.03, 0.02)).at("5s", **paced(0.06, 0.03))
        timeline.expect(batch=6).at("10s", **paced(0.06, 0.03, running=6)).at("15s").expect(batch=6)
        timeline.held_back(Code.SETTLING).at("20s").expect(batch=4)
        timeline.at("30s", **paced(0.06, 0.03, running=4)).at("35s").expect(batch=2).at("5m").expect(batch=2)
        timeline.at("5m5s", **paced(0.02, 0.01, running=8)).at("10m")
        assert timeline.decision is not None
        assert (timeline.decision.targets.batch or 0) >= 8

    def test_a_limit_not_in_use_says_nothing(self) -> None:
        Timeline(LATENCY).at("0s", **paced(0.02, 0.01, running=2)).at("10m").expect(batch=8)

    def test_few_samples_say_nothing(self) -> None:
        few = paced(0.9, 0.5) | {"tpot": latency(0.9, samples=19)}
        Timeline(LATENCY).at("0s", **few).at("5m").expect(batch=8)

    def test_no_room_in_memory_no_growth(self) -> None:
        timeline = Timeline(LATENCY).at("0s", **paced(0.02, 0.01, kv=0.9)).at("60s").expect(batch=8)
        timeline.held_back(Code.KV_ROOM)

    def test_waiting_time_shrinks_nothing(self) -> None:
        by_e2e = LATENCY.model_copy(update={"objectives": Objectives(e2e_seconds=2.0)})
        late = paced(0.02, 0.01, queue=50) | {"e2e": latency(60.0), "tpot": latency(0.02)}
        timeline = Timeline(by_e2e).at("0s", **late).at("5m").expect(batch=8, cause=Cause.QUEUEING)
        timeline.held_back(Code.QUEUEING_KEEPS_BATCH)


class TestStatic:
    def quiet(self, e2e: float, queue: float = 0, arrivals: float = 20) -> dict[str, Any]:
        none: Any = NotApplicable("it has no such cache")
        values: dict[str, Any] = dict(arrivals=arrivals, running=8, ready=1, waiting=queue, e2e=latency(e2e))
        return values | {"kv_use_ratio": none, "tpot_seconds": none, "ttft_seconds": none, "queue_seconds": none}

    def test_it_starts_from_eight_and_follows_the_queue(self) -> None:
        timeline = Timeline(STATIC).at("0s", **self.quiet(0.5)).expect(batch=8)
        timeline.at("1m", **self.quiet(0.5, queue=40)).expect(batch=16)
        timeline.at("1m5s", **self.quiet(0.5)).at("2m").expect(batch=8)

    def test_a_slow_batch_without_a_queue_gets_smaller(self) -> None:
        timeline = Timeline(STATIC).at("0s", **self.quiet(0.5)).at("5s", **self.quiet(3.0))
        timeline.expect(batch=6, cause=Cause.STEP).at("20s").expect(batch=4).at("5m").expect(batch=2)
        # As small as may be, and still late: that is how long such requests take.
        timeline.expect(cause=Cause.INHERENT).because(Code.OBJECTIVE_UNREACHABLE)
        # The way back is measured too: a step or two per window while P95 is far from its bound.
        timeline.at("5m5s", **self.quiet(0.5)).at("8m").expect(batch=8).at("20m").expect(batch=8)

    def test_a_slow_batch_with_a_queue_does_not(self) -> None:
        timeline = Timeline(STATIC).at("0s", **self.quiet(0.5)).at("5s", **self.quiet(9.0, queue=40))
        timeline.expect(batch=16, cause=Cause.QUEUEING)

    def test_it_is_judged_by_rate(self) -> None:
        timeline = Timeline(STATIC).at("0s", **self.quiet(0.5, arrivals=49)).expect(state=LoadState.NORMAL)
        timeline.at("5s", **self.quiet(0.5, arrivals=50)).expect(state=LoadState.HIGH)

    def test_continuous_batching_knows_none_of_it(self) -> None:
        policy = STATIC.model_copy(update={"batch": Batch(batching="continuous", max=64)})
        timeline = Timeline(policy).at("0s", **self.quiet(0.5)).expect(batch=64)
        timeline.at("5s", **self.quiet(3.0)).at("5m").expect(batch=64, cause=Cause.INHERENT)
        timeline.at("6m", **self.quiet(0.5, arrivals=50)).at("7m").expect(batch=64, admission=Admission.OPEN)
