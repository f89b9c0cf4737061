"""Capacity is learned from what replicas do, corrects what is declared, and never comes from a batch nobody applied."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import replace
from itertools import cycle
from statistics import fmean
from typing import Any

import pytest
from pydantic import TypeAdapter

from scaler.control.capacity import estimate_capacity, loaded
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.learned import Learned, Point, limit, with_point
from scaler.control.learned_window import BEGUN
from scaler.control.learning import learn
from scaler.control.model import Memory, Targets
from scaler.policy.model import Batch, Capacity, Objectives, Policy
from scaler.signals.model import Interval, Known, Latency, Signals, Unknown
from tests.control.timeline import signals

#: vLLM's bounds for the time per output token.
BOUNDS = (0.0, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, math.inf)
POLICY = Policy(objectives=Objectives(tpot_seconds=0.1, ttft_seconds=2.0), batch=Batch(max=256))
#: A replica whose tokens take 20 ms and 1.5 ms more for each sequence; the 95th percentile is 1.2 × the mean.
ALPHA, BETA, TAIL, ANSWER_TOKENS = 0.020, 0.0015, 1.2, 200
LIMIT = (0.1 / TAIL - ALPHA) / BETA
TICK = 5.0


def bucketed(p95: float, mean: float, samples: float = 60) -> Latency:
    """A latency as vLLM's buckets tell it."""
    index = bisect_left(BOUNDS, p95)
    interval = Interval(BOUNDS[index - 1], BOUNDS[index])
    return Latency(interval, interval, interval, mean, samples)


def serving(
    at: float, each: float, *, ran: float | None = None, ready: int = 2, identity: str | None = "one", **more: Any
) -> Signals:
    """``ready`` replicas that run ``each`` sequences, and ran ``ran`` over the window (None: the same)."""
    tpot = ALPHA + BETA * (each if ran is None else ran)
    residence = ANSWER_TOKENS * tpot
    found = signals(
        at,
        **(
            dict(
                running=each * ready,
                waiting=0,
                ready=ready,
                arrivals=each * ready / residence,
                tpot=bucketed(TAIL * tpot, tpot),
                ttft=bucketed(0.3, 0.2),
                e2e=bucketed(residence, residence),
                queue=bucketed(0.001, 0.0),
                busiest_running=each,
            )
            | more
        ),
    )
    return replace(found, identity=identity)


def after(memory: Memory, minutes: int, levels: tuple[float, ...], policy: Policy = POLICY, **more: Any) -> Memory:
    """The memory after so many minutes, in which what runs changes every ten."""
    at, each, last = 1000.0, cycle(levels), deque[float](maxlen=12)
    for minute in range(minutes):
        level = next(each) if minute % 10 == 0 else level  # noqa: F821
        for _ in range(12):
            last.append(level)
            seen = serving(at, level, ran=fmean(last), **more)
            memory = replace(memory, learned=learn(policy, memory, seen, TICK))
            at += TICK
    return memory


def estimate(memory: Memory, policy: Policy = POLICY, each: float = 10, **more: Any) -> CapacityEstimate:
    return estimate_capacity(policy, memory, serving(9e5, each, **more))


def declared(factor: float, **more: Any) -> Policy:
    """The true capacity, times a factor."""
    sequences = loaded(LIMIT, 0.75)
    rate = sequences / (ANSWER_TOKENS * (ALPHA + BETA * sequences))
    capacity = Capacity(sequences=factor * sequences, requests_per_second=factor * rate, **more)
    return POLICY.model_copy(update={"capacity": capacity})


TRUE = declared(1).capacity
LEVELS = (6.0, 14.0, 9.0, 20.0)


def test_windows_with_spread_find_the_concurrency_that_just_meets_the_objective() -> None:
    found = estimate(after(Memory(), 60, LEVELS))
    assert found.source == "learned"
    assert found.sequences == pytest.approx(TRUE.sequences, rel=0.1)
    assert found.requests_per_second == pytest.approx(TRUE.requests_per_second, rel=0.1)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.sequences <= found.high
    assert not found.assumed


def test_until_then_the_prior_stands() -> None:
    few = after(Memory(), 5, LEVELS)
    assert 0 < few.learned[0].windows < 5
    assert estimate(few).sequences == 32
    assert estimate(few).assumed
    assert estimate(few, declared(2)).sequences == 2 * TRUE.sequences


def test_windows_that_are_all_alike_show_no_line() -> None:
    alike = after(Memory(), 60, (12.0,))
    assert alike.learned[0].windows > 40
    assert estimate(alike).sequences == 32


@pytest.mark.parametrize(("factor", "least", "most"), [(2.0, 0.9, 1.1), (0.5, 0.75, 1.05), (1.0, 0.93, 1.0)])
def test_a_declared_capacity_stands_until_measurement_contradicts_it(factor: float, least: float, most: float) -> None:
    policy = declared(factor)
    found = estimate(after(Memory(), 80, LEVELS, policy), policy)
    assert least <= found.sequences / TRUE.sequences <= most
    assert least <= found.requests_per_second / TRUE.requests_per_second <= most  # type: ignore[operator]


def test_who_declares_little_is_raised_no_farther_than_a_quarter_above_what_met_every_objective() -> None:
    policy = declared(0.3)
    memory = after(Memory(), 60, (6.0, 14.0), policy)
    assert estimate(memory, POLICY).sequences > 25  # what the line says, for who declares nothing
    assert estimate(memory, policy).sequences == pytest.approx(1.25 * 14.0, rel=0.02)
    slow = after(Memory(), 60, (6.0, 14.0), policy, ttft=bucketed(3.0, 1.0))
    assert slow.learned[0].windows == memory.learned[0].windows
    assert estimate(slow, policy).sequences == policy.capacity.sequences


def test_one_window_that_met_the_objectives_may_be_the_odd_one() -> None:
    learned = Learned()
    for running, met in ((6.0, True), (30.0, True), (9.0, True), (40.0, False)):
        point = Point(running, running, bucketed(0.03, 0.02), 5.0, met=met, breached=False)
        learned = with_point(replace(learned, window=BEGUN), point)
    assert learned.met_at == 9.0
    point = Point(28.0, 28.0, bucketed(0.03, 0.02), 5.0, met=True, breached=False)
    assert with_point(learned, point).met_at == 28.0


@pytest.mark.parametrize("windows", [3, 4, 5])
def test_few_windows_lower_what_was_thought_and_raise_nothing(windows: int) -> None:
    learned = Learned()
    for each in (6.0, 14.0, 9.0, 20.0, 12.0)[:windows]:
        tpot = ALPHA + BETA * each
        point = Point(each, each, bucketed(TAIL * tpot, tpot), ANSWER_TOKENS * tpot, met=True, breached=False)
        learned = with_point(replace(learned, window=BEGUN), point)
    memory, low, high = Memory(learned=(learned,)), declared(0.3), declared(2.0)
    assert 0.9 <= estimate(memory, high).sequences / TRUE.sequences <= 1.1
    assert (estimate(memory, low).sequences > low.capacity.sequences) is (windows == 5)
    assert (estimate(memory, low).requests_per_second > low.capacity.requests_per_second) is (windows == 5)  # type: ignore[operator]


@pytest.mark.parametrize(("levels", "least", "most"), [((1.0, 2.0, 3.0), 0.3, 0.6), (LEVELS, 0.9, 1.0)])
def test_buckets_that_leave_room_above_the_mean_make_little_certain(
    levels: tuple[float, ...], least: float, most: float
) -> None:
    """With three running P95 is somewhere between 25 and 50 ms, the mean 24: of 100 ms that says hardly anything."""
    found = limit(after(Memory(), 60, levels).learned[0], 0.1)
    assert found is not None
    assert least <= found.certain / found.low <= most


def test_an_operator_may_forbid_the_correction() -> None:
    policy = declared(2.0, learn=False)
    assert estimate(after(Memory(), 60, LEVELS, policy), policy).sequences == 2 * TRUE.sequences


def test_broken_windows_without_a_queue_count_before_there_is_a_line() -> None:
    policy = declared(2.0)
    broken = after(Memory(), 8, (60.0,), policy)  # 110 ms per token; P95 lies in the bucket from 100 ms
    assert broken.learned[0].windows < 10
    assert estimate(broken, policy).sequences <= loaded(60.0, 0.75)
    queued = after(Memory(), 8, (60.0,), policy, waiting=5)
    assert estimate(queued, policy).sequences == 2 * TRUE.sequences


def test_a_broken_minute_puts_the_limit_below_what_ran_at_its_most() -> None:
    """Half a minute with 60, which broke the objective, and half a minute with 5, which did not."""
    policy, memory, mixed = declared(2.0), Memory(), ALPHA + BETA * 40
    for tick in range(5 * 12):
        each = 60.0 if tick % 12 < 6 else 5.0
        seen = serving(1e3 + tick * TICK, each, tpot=bucketed(0.11, mixed), e2e=bucketed(3.0, 3.0))
        memory = replace(memory, learned=learn(policy, memory, seen, TICK))
    assert 2 <= memory.learned[0].breaches < 5  # no line yet
    assert loaded(45.0, 0.75) <= estimate(memory, policy).sequences <= loaded(60.0, 0.75)


def test_short_requests_teach_although_what_runs_is_never_the_same() -> None:
    """Answers of half a second: what runs at the end of a window says nothing of those that finished in it."""
    memory, ran = Memory(), deque[float](maxlen=12)
    for tick in range(12 * 30):
        level = LEVELS[tick // 120 % 4]
        each = level * (0.4 if tick % 2 else 1.6)
        ran.append(level * 1.36)  # those that finish: four in five of them among 1.6 times as many
        seen = serving(1e3 + tick * TICK, each, ran=fmean(ran), e2e=bucketed(0.5, 0.5))
        memory = replace(memory, learned=learn(POLICY, memory, seen, TICK))
    assert memory.learned[0].windows >= 20
    assert estimate(memory).source == "learned"


@pytest.mark.parametrize(("applied", "taught"), [(None, True), (6, False)])
def test_a_batch_held_down_disturbs_only_where_it_is_applied(applied: int | None, taught: bool) -> None:
    held = replace(Memory(), targets=Targets(1, True, 6), batch_before_protection=64)
    told = {} if applied is None else {"applied_batch": applied}
    assert any(kind.windows for kind in after(held, 20, LEVELS, **told).learned) is taught


def test_what_was_learned_survives_a_restart_in_the_middle_of_a_window() -> None:
    kind = TypeAdapter(Memory)
    memory = after(Memory(), 60, LEVELS)
    for seconds in (30.0, 20.0):
        memory = replace(memory, learned=learn(POLICY, memory, serving(5e3, 20.0), seconds))
    again = kind.validate_json(kind.dump_json(memory))
    assert again == memory
    assert again.learned[0].window.seconds > 0
    assert estimate(again) == estimate(memory)


def test_a_rollout_starts_from_the_prior_again_and_a_rollback_finds_what_it_knew() -> None:
    memory = after(Memory(), 60, LEVELS)
    learned = estimate(memory).sequences
    both = after(memory, 3, LEVELS, identity=None)  # two kinds serve: nothing is learned of either
    assert both.learned[0].windows == memory.learned[0].windows
    rolled = after(both, 3, LEVELS, identity="other")
    assert estimate(rolled, identity="other").sequences == 32
    back = after(rolled, 1, LEVELS)
    assert estimate(back).sequences == pytest.approx(learned, rel=0.05)
    assert len(after(back, 1, LEVELS, identity="third").learned) == 2


def test_another_accelerator_is_another_kind_although_model_and_engine_are_the_same() -> None:
    memory = after(Memory(), 60, LEVELS, kv_capacity_tokens=400_000)
    other = after(memory, 1, LEVELS, kv_capacity_tokens=200_000)
    assert estimate(other).sequences == 32
    a_little_less = after(memory, 1, LEVELS, kv_capacity_tokens=396_000)
    assert estimate(a_little_less).source == "learned"


def test_a_published_batch_that_nobody_applies_says_nothing() -> None:
    memory = replace(after(Memory(), 60, LEVELS), targets=Targets(2, True, 4))
    assert estimate(memory).sequences == pytest.approx(TRUE.sequences, rel=0.1)
    assert estimate(memory, applied_batch=4).sequences == 4
    assert estimate(memory, applied_batch=4).source == "applied_batch"


#: A cache of ten sequences by their lengths.
TEN = dict(kv_capacity_tokens=10_000, prompt_tokens_mean=900, generation_tokens_mean=200)


def test_undeclared_no_more_run_than_the_kv_cache_holds_on_average() -> None:
    for memory in (Memory(), after(Memory(), 60, LEVELS, **TEN)):
        found = estimate(memory, **TEN)
        on_average = found.sequences / 0.75  # of which, come and gone by chance, 99 % of the time 9.5 are not exceeded
        assert on_average + 2.33 * math.sqrt(on_average) == pytest.approx(9.5)
        assert found.source == "kv_cache"
    assert found.high == found.sequences


def test_where_latency_says_nothing_against_it_what_the_cache_holds_is_not_halved() -> None:
    """A night of two each whose TPOT is the same at any number: that they were two says nothing of five."""
    memory = after(Memory(), 60, (1.0, 2.0, 1.5), tpot=bucketed(0.02, 0.015), **TEN)
    found = estimate(memory, **TEN)
    assert found.windows > 5
    assert found.sequences == estimate(Memory(), **TEN).sequences
    assert found.source == "kv_cache"


def test_who_declares_knows_the_lengths() -> None:
    declared_five = POLICY.model_copy(update={"capacity": Capacity(sequences=5)})
    assert estimate(Memory(), declared_five, **TEN).sequences == 5
    learned = after(Memory(), 60, LEVELS, declared_five, **TEN)
    assert estimate(learned, declared_five, **TEN).sequences == pytest.approx(loaded(9.5, 0.75))  # and no more


def test_prompts_that_begin_alike_take_less_of_the_kv_cache_than_their_lengths_say() -> None:
    """Ten run on average: by their lengths they fill a cache of which the engine says that a fifth is in use."""
    ten, fifth = (10.0, 8.0, 12.0), {"kv_use_mean_ratio": 0.2}
    said = after(Memory(), 30, ten, **TEN, **fifth)
    assert said.learned[0].held_share == pytest.approx(0.2, rel=0.05)
    fifty = estimate(said, **TEN, **fifth)
    assert fifty.sequences > 3 * estimate(after(Memory(), 30, ten, **TEN), **TEN).sequences
    assert estimate(after(Memory(), 2, ten, **TEN, **fifth), **TEN).sequences == estimate(Memory(), **TEN).sequences
    off = POLICY.model_copy(update={"capacity": Capacity(learn=False)})
    assert estimate(said, off, **TEN).sequences == estimate(Memory(), **TEN).sequences


def test_an_empty_cache_of_which_sequences_run_is_no_measurement() -> None:
    said = after(Memory(), 30, (10.0, 8.0, 12.0), **TEN, kv_use_mean_ratio=0.0)
    assert said.learned[0].held_share == 1.0


def test_a_line_is_not_followed_beyond_three_times_what_was_seen() -> None:
    found = estimate(after(Memory(), 60, (1.0, 2.0)))
    assert found.sequences <= 32 or found.sequences <= 3 * 2.0


def test_the_requests_that_finish_after_a_surge_teach_nothing() -> None:
    """They were slow in full replicas and end in empty ones."""
    memory = after(Memory(), 60, LEVELS)
    slow = bucketed(0.45, 0.35)
    surged = memory
    for minute in range(6):
        for _ in range(12):
            late = serving(2e5 + 60 * minute, 1.0, ready=6 - minute, tpot=slow, e2e=bucketed(80.0, 70.0))
            surged = replace(surged, learned=learn(POLICY, surged, late, TICK))
    assert surged.learned[0].windows == memory.learned[0].windows
    assert estimate(surged) == estimate(memory)


def test_lost_scrapes_only_make_a_window_longer() -> None:
    memory, last = Memory(), deque[float](maxlen=12)
    for tick in range(12 * 80):
        level = LEVELS[tick // 120 % len(LEVELS)]
        last.append(level)
        lost = {"running": Unknown("lost")} if tick % 5 == 0 else {}
        seen = serving(1e3 + tick * TICK, level, ran=fmean(last), **lost)
        memory = replace(memory, learned=learn(POLICY, memory, seen, TICK))
    assert estimate(memory).sequences == pytest.approx(TRUE.sequences, rel=0.1)


def test_small_batches_leave_more_room_for_chance() -> None:
    assert loaded(200.0, 0.75) == pytest.approx(150.0)
    assert loaded(20.0, 0.75) < 0.65 * 20
    assert loaded(1.0, 0.75) == 1.0
    assert loaded(200.0, 0.5) == pytest.approx(100.0)


def test_without_a_tpot_objective_the_critical_e2e_leaves_one() -> None:
    policy = Policy(objectives=Objectives(e2e_critical_seconds=20.2), batch=Batch(max=256))
    first = {"ttft": bucketed(0.3, 0.2), "generation_tokens_mean": Known(200.0, 0.0)}
    found = estimate(after(Memory(), 60, LEVELS, policy, **first), policy, **first)
    assert found.source == "learned"
    assert found.sequences == pytest.approx(TRUE.sequences, rel=0.1)
