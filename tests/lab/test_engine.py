"""The pure engine model: what every run of it keeps, and the page that tells of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from scaler.lab.engine import Engine
from scaler.lab.hardware import HARDWARE, Hardware, StepCost
from scaler.lab.meters import one_two_five
from scaler.lab.sequence import Sequence, Step
from scaler.lab.vllm_page import VllmPage
from scaler.lab.wave import DEFAULT_WAVE, Phase, arrivals, phase_at

H100_8B = HARDWARE["llama-3.1-8b-h100"]
COST = StepCost(base_ms=10.0, per_sequence_ms=1.0, per_context_token_ms=0.01, per_prefill_token_ms=0.1)


def loaded(engine: Engine, *, seed: int, requests: int, rate: float, watch: Callable[[Step], None]) -> list[Sequence]:
    """Poisson arrivals of random lengths, run until the last has finished."""
    source, at, sequences = random.Random(seed), 0.0, []
    for _ in range(requests):
        at += source.expovariate(rate)
        for ended in engine.advance(at):
            watch(ended)
        sequences.append(engine.submit(source.randint(1, 900), source.randint(1, 300), at))
    while (step := engine.step()) is not None:
        watch(step)
    return sequences


def test_a_step_takes_what_the_formula_says() -> None:
    engine = Engine(Hardware(COST, 10_000), max_num_seqs=4)
    engine.submit(100, 3, 0.0)
    engine.submit(200, 2, 0.0)
    prefill, decode, last = engine.step(), engine.step(), engine.step()
    assert prefill is not None
    assert decode is not None
    assert last is not None
    assert prefill.seconds == pytest.approx((10 + 2 * 1 + 0 + 300 * 0.1) / 1000)  # nothing is in the cache yet
    assert decode.seconds == pytest.approx((10 + 2 * 1 + 300 * 0.01) / 1000)
    assert last.seconds == pytest.approx((10 + 1 + 101 * 0.01) / 1000)  # the second has left
    assert engine.step() is None


def test_an_idle_8b_on_h100_generates_at_its_measured_pace() -> None:
    """1024 in, 128 out at batch 8: 7.94 ms per token were measured (the fit's own source)."""
    engine = Engine(H100_8B, max_num_seqs=8)
    sequences = [engine.submit(1024, 128, 0.0) for _ in range(8)]
    while engine.step():
        pass
    first, finished = sequences[-1].first_token_at, sequences[-1].finished_at
    assert first is not None
    assert finished is not None
    assert (finished - first) / 127 == pytest.approx(0.00794, rel=0.15)


def test_long_prompts_are_prefilled_in_chunks_of_the_token_budget() -> None:
    engine = Engine(Hardware(COST, 10_000), max_num_seqs=4, max_num_batched_tokens=100)
    engine.submit(250, 1, 0.0)
    steps = [engine.step() for _ in range(3)]
    assert [step.prefill_tokens for step in steps if step] == [100, 100, 50]
    assert engine.idle


def test_the_queue_is_first_come_first_served_and_the_cap_is_kept() -> None:
    engine = Engine(H100_8B, max_num_seqs=3)
    sequences = loaded(engine, seed=1, requests=100, rate=50.0, watch=lambda _: None)
    admissions = [sequence.admitted_at for sequence in sequences]
    assert None not in admissions
    assert admissions == sorted(admissions, key=lambda at: at or 0.0)
    most = 0
    for sequence in [engine.submit(10, 50, engine.now) for _ in range(10)]:
        assert sequence.admitted_at is None
    while engine.step():
        most = max(most, engine.running)
    assert most == 3


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    kv_tokens=st.integers(1_200, 5_000),
    cap=st.integers(1, 20),
    budget=st.integers(20, 3_000),
    rate=st.floats(0.5, 50.0),
)
def test_whatever_the_load_every_request_finishes_and_memory_is_never_exceeded(
    seed: int, kv_tokens: int, cap: int, budget: int, rate: float
) -> None:
    engine = Engine(Hardware(COST, kv_tokens), max_num_seqs=cap, max_num_batched_tokens=budget)
    finished: list[Sequence] = []
    generated = preempted = 0

    def watch(step: Step) -> None:
        nonlocal generated, preempted
        finished.extend(step.finished)
        generated += step.generated_tokens
        preempted += step.preempted
        assert 0 <= engine.kv_used_tokens <= kv_tokens
        assert engine.running <= cap

    sequences = loaded(engine, seed=seed, requests=60, rate=rate, watch=watch)
    assert len(finished) == 60
    assert set(map(id, finished)) == set(map(id, sequences))
    assert generated == sum(sequence.output_tokens for sequence in sequences)
    assert preempted == sum(sequence.preemptions for sequence in sequences)
    assert engine.idle
    assert engine.kv_used_tokens == 0
    for sequence in sequences:
        times = (sequence.arrived_at, sequence.admitted_at, sequence.first_token_at, sequence.finished_at)
        assert None not in times
        assert list(times) == sorted(time for time in times if time is not None)


def test_a_full_cache_preempts_the_last_admitted_and_it_still_finishes() -> None:
    engine = Engine(Hardware(COST, 250), max_num_seqs=2)
    first, second = engine.submit(100, 100, 0.0), engine.submit(100, 100, 0.0)
    steps = []
    while (step := engine.step()) is not None:
        steps.append(step)
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert sum(step.preempted for step in steps) == 1
    assert first.finished_at is not None
    assert second.finished_at is not None
    assert first.finished_at < second.finished_at
    # Its reader waited from the preemption until the prompt and the answer so far were computed again.
    longest = max(seconds for step in steps for seconds, _ in step.intervals)
    assert longest > 10 * (COST.seconds(2, 250, 0))


def test_the_same_submissions_give_the_same_steps_however_finely_time_is_cut() -> None:
    def run(slice_seconds: float) -> list[Step]:
        engine, steps = Engine(Hardware(COST, 4_000), max_num_seqs=4), []
        source, at = random.Random(7), 0.0
        for _ in range(50):
            arrival = at + source.expovariate(5.0)
            while at + slice_seconds < arrival:
                at += slice_seconds
                steps += engine.advance(at)
            at = arrival
            steps += engine.advance(at)
            engine.submit(source.randint(1, 500), source.randint(1, 100), at)
        return steps + engine.advance(at + 1e6)

    def told(steps: list[Step]) -> list[tuple[float, int, int]]:
        return [(step.ended_at, step.prefill_tokens, len(step.finished)) for step in steps]

    assert told(run(0.003)) == told(run(1e9))


def test_steps_that_are_not_told_are_taken_all_the_same() -> None:
    def run(*, every: bool) -> tuple[Engine, list[Step]]:
        engine, steps = Engine(Hardware(COST, 1_500), max_num_seqs=8, coast=True), []
        source, at = random.Random(7), 0.0
        for _ in range(50):
            at += source.expovariate(5.0)
            steps += engine.advance(at, every=every)
            engine.submit(source.randint(1, 500), source.randint(1, 100), at)
        return engine, steps + engine.advance(at + 1e6, every=every)

    def told(steps: list[Step]) -> list[tuple[float, int, int, int]]:
        found = [(step.ended_at, len(step.started), len(step.finished), step.preempted) for step in steps]
        return [each for each in found if any(each[1:])]

    (watched, all_steps), (alone, some) = run(every=True), run(every=False)
    assert told(all_steps) == told(some)
    assert len(told(some)) == len(some) < len(all_steps)
    assert any(step.preempted for step in some)
    assert watched.generated_tokens == alone.generated_tokens == sum(step.generated_tokens for step in all_steps)


@pytest.mark.parametrize(
    ("prompt", "output", "at", "says"),
    [(0, 5, 1.0, "needs tokens"), (5, 0, 1.0, "needs tokens"), (60, 41, 1.0, "exceed the KV"), (5, 5, 0.5, "before")],
)
def test_a_request_that_cannot_be_served_is_refused(prompt: int, output: int, at: float, says: str) -> None:
    engine = Engine(Hardware(COST, 100), max_num_seqs=2)
    engine.advance(1.0)
    with pytest.raises(ValueError, match=says):
        engine.submit(prompt, output, at)


def test_a_batch_larger_than_the_token_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="max_num_batched_tokens"):
        Engine(H100_8B, max_num_seqs=65, max_num_batched_tokens=64)


def read(page: VllmPage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.text().decode())
        for sample in family.samples
    }


def is_counter(name: str) -> bool:
    return name.endswith(("_total", "_bucket", "_count", "_sum"))


def test_the_page_parses_its_counters_only_rise_and_they_add_up() -> None:
    engine = Engine(Hardware(COST, 3_000), max_num_seqs=6)
    page = VllmPage(engine, model_name="tiny", max_model_len=1024, process_start_seconds=1.7e9)
    before = read(page)
    waited = False

    def watch(step: Step) -> None:
        nonlocal before, waited
        page.book(step)
        if engine.steps % 50 == 0:
            now = read(page)
            assert now.keys() == before.keys()
            assert all(now[key] >= before[key] for key in now if is_counter(key[0]))
            waited |= now["vllm:num_requests_waiting", labels] > 0
            before = now

    labels = (("engine", "0"), ("model_name", "tiny"))
    sequences = loaded(engine, seed=3, requests=200, rate=20.0, watch=watch)
    after = read(page)
    assert waited
    assert after["vllm:request_success_total", (labels[0], ("finished_reason", "length"), labels[1])] == 200
    assert after["vllm:prompt_tokens_total", labels] == sum(sequence.prompt_tokens for sequence in sequences)
    answers = sum(sequence.output_tokens for sequence in sequences)
    assert after["vllm:generation_tokens_total", labels] == answers
    assert after["vllm:inter_token_latency_seconds_count", labels] == answers - 200
    assert after["vllm:num_preemptions_total", labels] == sum(sequence.preemptions for sequence in sequences) > 0
    whole = after["vllm:e2e_request_latency_seconds_sum", labels]
    parts = ("request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds")
    assert whole == pytest.approx(sum(after[f"vllm:{part}_sum", labels] for part in parts))
    assert after["process_start_time_seconds", ()] == 1.7e9
    assert after["vllm:num_requests_running", labels] == after["vllm:kv_cache_usage_perc", labels] == 0


def test_histogram_values_fall_into_the_bucket_whose_bound_they_reach() -> None:
    engine = Engine(Hardware(StepCost(25.0, 0, 0, 0), 1_000), max_num_seqs=1)
    page = VllmPage(engine, model_name="tiny", max_model_len=1024, process_start_seconds=0.0)
    engine.submit(10, 5, 0.0)
    while (step := engine.step()) is not None:
        page.book(step)
    gaps = {
        dict(labels)["le"]: value
        for (name, labels), value in read(page).items()
        if name == "vllm:inter_token_latency_seconds_bucket"
    }
    assert (gaps["0.01"], gaps["0.025"], gaps["0.05"], gaps["+Inf"]) == (0, 4, 4, 4)


def test_token_buckets_follow_the_model_length_as_vllms_do() -> None:
    assert one_two_five(1024) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert one_two_five(50) == (1, 2, 5, 10, 20, 50)


def test_the_wave_repeats_and_its_arrivals_depend_on_the_seed_alone() -> None:
    def first(seed: int) -> list[float]:
        source = arrivals(seed)
        return [next(source).at for _ in range(200)]

    assert first(1) == first(1)
    assert first(1) != first(2)
    length = sum(phase.seconds for phase in DEFAULT_WAVE)
    assert phase_at(DEFAULT_WAVE, 61.0) == phase_at(DEFAULT_WAVE, 61.0 + 5 * length)
    assert phase_at(DEFAULT_WAVE, 40.0)[1] == pytest.approx(1.85)  # the ramp's middle
    with pytest.raises(ValueError, match="every rate"):
        next(arrivals(1, (Phase("nothing", 10, 0, 0),)))


def test_the_wave_arrives_at_the_rates_it_declares() -> None:
    """Over 40 waves; five standard deviations of a Poisson count are allowed."""
    length = sum(phase.seconds for phase in DEFAULT_WAVE)
    source, counted = arrivals(5), 0
    expected = 40 * sum(phase.seconds * (phase.start_rate + phase.end_rate) / 2 for phase in DEFAULT_WAVE)
    while next(source).at < 40 * length:
        counted += 1
    assert counted == pytest.approx(expected, abs=5 * math.sqrt(expected))


def test_the_default_wave_overloads_the_default_stand_in_and_lets_it_recover() -> None:
    """What `make run` shows: a queue after the jump, none at the wave's end."""
    engine = Engine(HARDWARE["llama-3.1-70b-fp8-4xh100"], max_num_seqs=16)
    deepest = 0
    for arrival in arrivals(1):
        if arrival.at > 160:
            break
        engine.advance(arrival.at)
        deepest = max(deepest, len(engine.waiting))
        engine.submit(arrival.prompt_tokens, arrival.output_tokens, arrival.at)
    engine.advance(160.0)
    assert deepest > 50
    assert not engine.waiting
