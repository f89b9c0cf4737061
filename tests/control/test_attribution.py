"""A breach is attributed before it is acted on."""

import pytest

from scaler.control.model import Admission, Cause, Code, LoadState
from scaler.policy.model import Batch, Capacity, Objectives, Policy, ReplicaRange
from tests.control.timeline import Timeline, latency

POLICY = Policy(
    objectives=Objectives(
        ttft_seconds=1, ttft_critical_seconds=5, tpot_seconds=0.05, tpot_critical_seconds=0.1, e2e_seconds=10
    ),
    batch=Batch(max=64),
    capacity=Capacity(sequences=32),
    replicas=ReplicaRange(max=8),
)


def serving(**more: object) -> dict[str, object]:
    """Two replicas that serve well."""
    return (
        dict(
            arrivals=4,
            recent=4,
            last=4,
            running=20,
            waiting=0,
            ready=2,
            kv=0.4,
            preempted=0,
            ttft=latency(0.3),
            tpot=latency(0.02),
            e2e=latency(4),
            queue=latency(0.01),
        )
        | more
    )


def queued() -> dict[str, object]:
    return serving(running=128, waiting=60, ttft=latency(7), queue=latency(6), e2e=latency(13))


def settled() -> Timeline:
    return Timeline(POLICY).at("0s", **serving()).at("6m").expect(batch=64, state=LoadState.LOW)


def test_queueing_leaves_the_batch_alone_and_raises_the_replicas() -> None:
    timeline = settled()
    before = timeline.decision.targets.replicas  # type: ignore[union-attr]
    timeline.at("6m5s", **queued()).expect(cause=Cause.QUEUEING, batch=64, state=LoadState.CRITICAL)
    assert timeline.decision.targets.replicas > before  # type: ignore[union-attr]
    timeline.at("30m").expect(batch=64)
    assert all(decision.targets.batch == 64 for decision in timeline.history)


def test_queueing_with_room_grows_a_batch_that_binds() -> None:
    policy = POLICY.model_copy(update={"batch": Batch(start=16, max=64)})
    timeline = Timeline(policy).at("0s", **serving(running=32)).at("55s")
    timeline.at("1m5s", **serving(running=32, waiting=60, ttft=latency(7), queue=latency(6)))
    timeline.expect(cause=Cause.QUEUEING, batch=32)
    timeline.at("2m5s", **serving(running=64, waiting=60, ttft=latency(7), queue=latency(6))).expect(batch=64)
    assert [d.targets.batch for d in timeline.history if d.targets.batch != 16][:1] == [32]


def test_memory_pressure_shrinks_what_runs_at_once_although_a_cooldown_has_just_begun() -> None:
    policy = POLICY.model_copy(update={"batch": Batch(start=32, max=64)})
    timeline = Timeline(policy).at("0s", **serving(running=60)).at("1m").expect(batch=64)  # grown just now
    timeline.at("1m5s", **serving(running=100, kv=0.97, preempted=14, waiting=9))
    timeline.expect(cause=Cause.MEMORY, batch=43, admission=Admission.HOLD, state=LoadState.CRITICAL)
    timeline.because(Code.MEMORY_PRESSURE)  # from the 50 of a replica, not from 64: 50 x 0.85/0.97


def test_after_a_shrink_its_effect_is_awaited_before_the_next() -> None:
    timeline = settled().at("6m5s", **serving(running=100, kv=0.97)).expect(batch=43)
    timeline.at("6m10s", **serving(running=100, kv=0.97, applied_batch=43))
    timeline.at("6m15s").expect(batch=43).held_back(Code.SETTLING).at("6m20s").expect(batch=37)  # 43 x 0.85/0.97


def test_a_batch_shrunk_for_memory_comes_back_one_step_per_cooldown() -> None:
    timeline = settled().at("6m5s", **serving(running=100, gpu_memory_free_ratio=0.05)).expect(batch=25)
    timeline.at("6m10s", **serving(running=20, gpu_memory_free_ratio=0.3)).expect(batch=25, admission=Admission.OPEN)
    timeline.held_back(Code.COOLDOWN).at("7m5s").expect(batch=50).because(Code.RECOVERY)
    timeline.at("8m5s").expect(batch=64).at("20m").expect(batch=64)


def test_a_batch_that_was_the_engines_own_goes_back_to_being_so() -> None:
    policy = POLICY.model_copy(update={"batch": Batch()})
    timeline = Timeline(policy).at("0s", **serving()).expect(batch=None)
    timeline.at("5s", **serving(running=100, gpu_memory_free_ratio=0.05)).expect(batch=25)
    timeline.at("10s", **serving(running=30, gpu_memory_free_ratio=0.3))
    timeline.at("65s").expect(batch=50).at("2m5s").expect(batch=None)


def test_g4_01_a_full_card_is_not_pressure_for_an_engine_that_preallocates() -> None:
    from scaler.signals.model import NotApplicable

    full = NotApplicable("the engine preallocates device memory")
    timeline = settled().at("7m", **serving(running=3, kv=0.12, gpu_memory_free_ratio=full)).at("67m")
    timeline.expect(batch=64, cause=None, admission=Admission.OPEN)


def test_free_memory_counts_where_the_engine_does_not_preallocate() -> None:
    settled().at("7m", **serving(running=100, gpu_memory_free_ratio=0.05)).expect(cause=Cause.MEMORY, batch=25)


def test_long_answers_without_a_queue_buy_nothing_and_say_so() -> None:
    timeline = settled()
    before = timeline.decision.targets  # type: ignore[union-attr]
    timeline.at("6m5s", **serving(arrivals=0.5, recent=0.5, last=0.5, e2e=latency(40))).expect(
        cause=Cause.INHERENT, replicas=before.replicas, batch=64
    )
    timeline.because(Code.OBJECTIVE_UNREACHABLE).at("20m").expect(replicas=before.replicas, batch=64)


def test_slow_steps_without_a_queue_ask_for_replicas_and_not_for_a_smaller_batch() -> None:
    timeline = settled().at("6m5s", **serving(running=60, tpot=latency(0.07), e2e=latency(12)))
    timeline.expect(cause=Cause.STEP, replicas=3)
    assert timeline.decision.targets.batch == 64  # type: ignore[union-attr]  # though a third replica is still pending
    at_ceiling = POLICY.model_copy(update={"replicas": ReplicaRange(max=2)})
    slow = serving(running=60, tpot=latency(0.07), e2e=latency(12))
    timeline = Timeline(at_ceiling).at("0s", **serving()).at("5s", **slow)
    timeline.expect(replicas=2, batch=22, admission=Admission.HOLD)
    # Seen on a real engine: the last slow request has left, its tokens stay in the window for a minute, and requests
    # that came then were held back from an engine that ran nothing.
    timeline.at("10s", **slow | dict(running=0, busiest_running=0)).expect(admission=Admission.OPEN)
    timeline.at("65s").expect(admission=Admission.OPEN)


def test_slow_steps_hold_nobody_back_once_no_more_run_than_the_batch_allows() -> None:
    """Seen on a real engine: at a batch that could go no lower, admission was held for 4 s every 70 s, for nothing."""
    at_ceiling = POLICY.model_copy(update={"replicas": ReplicaRange(max=2), "batch": Batch(min=22, max=64)})
    slow = serving(running=60, tpot=latency(0.07), e2e=latency(12))
    timeline = Timeline(at_ceiling).at("0s", **serving()).at("5s", **slow)
    timeline.expect(cause=Cause.STEP, batch=22, admission=Admission.HOLD)
    drained = slow | dict(running=44, busiest_running=22)
    timeline.at("10s", **drained).expect(cause=Cause.STEP, batch=22, admission=Admission.OPEN)  # within settle_seconds
    for after in ("15s", "30s", "60s", "2m", "5m"):
        timeline.at(after, **drained).expect(cause=Cause.STEP, batch=22, admission=Admission.OPEN)
    timeline.at("6m", **slow | dict(running=44, busiest_running=30)).expect(admission=Admission.HOLD)


def test_prompts_crowding_out_answers_cut_the_token_budget_and_not_the_batch() -> None:
    policy = POLICY.model_copy(update={"batch": Batch(max=64, token_budget=8192)})
    crowded = serving(tpot=latency(0.08, p50=0.02), prompt_tokens_per_second=20_000, generation_tokens_per_second=300)
    timeline = Timeline(policy).at("0s", **serving()).at("6m").at("6m5s", **crowded)
    timeline.expect(cause=Cause.PREFILL, token_budget=4096, batch=64)
    timeline.at("6m10s", **serving()).at("7m5s").expect(token_budget=8192).because(Code.RECOVERY)


def test_too_few_samples_breach_nothing() -> None:
    settled().at("6m5s", **serving(ttft=latency(30, samples=19))).expect(cause=None, state=LoadState.LOW)


def test_a_latency_step_is_taken_once_per_cold_start_and_only_while_it_helps() -> None:
    slow = dict(running=40, waiting=12, queue=latency(2))
    timeline = settled().at("6m5s", **serving(**slow, ttft=latency(3))).expect(replicas=3)
    timeline.because(Code.LATENCY_STEP).at("8m", **serving(**slow, ttft=latency(3))).expect(replicas=3)
    arrived = serving(**slow, ttft=latency(3)) | {"ready": 3}
    timeline.at("8m5s", **arrived).at("30m").expect(replicas=3)  # it did not help: latency is not the replicas' to mend
    helped = settled().at("6m5s", **serving(**slow, ttft=latency(3)))
    helped.at("8m5s", **serving(**slow, ttft=latency(2)) | {"ready": 3}).expect(replicas=4)


@pytest.mark.parametrize("cap", [4, 8, 64])
def test_the_death_spiral_does_not_start(cap: int) -> None:
    """LAWS section 2: e2e explodes while TPOT falls; the halving rule is at batch 1 after a quarter of an hour."""
    policy = POLICY.model_copy(update={"batch": Batch(max=cap), "replicas": ReplicaRange(max=1)})
    timeline = Timeline(policy).at("0s", **serving(running=cap, ready=1))
    for minute in range(1, 16):
        waiting = 60.0 * minute
        spiral = serving(
            running=cap,
            ready=1,
            waiting=waiting,
            ttft=latency(waiting / 5),
            queue=latency(waiting / 5.2),
            e2e=latency(waiting / 5 + 4),
            tpot=latency(0.0079 - 0.0001 * minute),
        )
        timeline.at(f"{minute}m", **spiral).expect(batch=cap, cause=Cause.QUEUEING)


def test_a_breach_that_load_explains_is_never_called_low() -> None:
    timeline = settled().at("6m5s", **serving(ttft=latency(3), queue=latency(2), waiting=3))
    timeline.expect(cause=Cause.QUEUEING, state=LoadState.HIGH)


def test_prompts_that_crowd_out_answers_while_requests_queue_never_shrink_the_batch() -> None:
    catching_up = serving(
        running=128,
        waiting=900,
        ttft=latency(8),
        queue=latency(7),
        tpot=latency(0.12, p50=0.03),
        prompt_tokens_per_second=20_000,
        generation_tokens_per_second=300,
    )
    timeline = settled().at("6m5s", **catching_up).expect(cause=Cause.PREFILL, batch=64).at("20m").expect(batch=64)
    assert timeline.decision.targets.replicas == 8  # type: ignore[union-attr]


def test_empty_replicas_beside_a_full_one_do_not_deepen_a_shrink() -> None:
    one_full = serving(running=60, busiest_running=60, ready=12, kv=0.97)
    settled().at("6m5s", **one_full).expect(cause=Cause.MEMORY, batch=52)  # 60 x 0.85/0.97
