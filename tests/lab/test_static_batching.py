"""Static batching: a batch waits to fill, runs to its end, and lets nobody in."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.lab.engine import Engine
from scaler.lab.hardware import Hardware, StepCost
from scaler.lab.meters import Meters
from scaler.lab.sequence import Sequence, Step
from scaler.lab.static_batching import AnyEngine, StaticEngine

COST = StepCost(base_ms=10.0, per_sequence_ms=1.0, per_context_token_ms=0.01, per_prefill_token_ms=0.1)
HARDWARE = Hardware(COST, 10_000)


def ended(engine: AnyEngine) -> list[Step]:
    steps = []
    while (step := engine.step()) is not None:
        steps.append(step)
    return steps


def test_a_batch_begins_when_it_is_full() -> None:
    engine = StaticEngine(HARDWARE, max_num_seqs=3, fill_seconds=60.0)
    first, second = engine.submit(10, 5, 0.0), engine.submit(10, 5, 1.0)
    assert engine.advance(5.0) == []
    assert (engine.running, len(engine.waiting)) == (0, 2)
    third = engine.submit(10, 5, 5.0)
    engine.advance(30.0)
    assert first.admitted_at == second.admitted_at == third.admitted_at == 5.0
    assert engine.idle


def test_or_when_the_first_has_waited_long_enough() -> None:
    engine = StaticEngine(HARDWARE, max_num_seqs=3, fill_seconds=2.0)
    first = engine.submit(10, 5, 1.0)
    engine.advance(2.5)
    second = engine.submit(10, 5, 2.5)
    engine.advance(10.0)
    assert first.admitted_at == second.admitted_at == 3.0


def test_nobody_gets_in_while_a_batch_runs_and_its_answers_come_together() -> None:
    engine = StaticEngine(HARDWARE, max_num_seqs=2, fill_seconds=0.0)
    short, long = engine.submit(10, 5, 0.0), engine.submit(10, 100, 0.0)
    engine.advance(0.5)
    late = engine.submit(10, 5, 0.5)
    assert (engine.running, len(engine.waiting)) == (2, 1)
    ended(engine)
    assert short.finished_at == long.finished_at == late.admitted_at
    # With continuous batching the short one is long gone and the late one has its place.
    continuous = Engine(HARDWARE, max_num_seqs=2)
    short, long = continuous.submit(10, 5, 0.0), continuous.submit(10, 100, 0.0)
    continuous.advance(0.5)
    late = continuous.submit(10, 5, 0.5)
    ended(continuous)
    assert short.finished_at is not None
    assert late.finished_at is not None
    assert long.finished_at is not None
    assert short.finished_at < late.finished_at < long.finished_at


def test_steps_take_what_the_formula_says_padding_included() -> None:
    engine = StaticEngine(HARDWARE, max_num_seqs=2, fill_seconds=0.0)
    engine.submit(100, 3, 0.0)
    engine.submit(200, 2, 0.0)
    prefill, decode = ended(engine)
    assert prefill.seconds == pytest.approx((10 + 2 * 1 + 2 * 200 * 0.1) / 1000)
    # Two steps for the answer of three tokens, both of them for two sequences of 200 tokens and more.
    steps = [(10 + 2 * 1 + 2 * (200 + given) * 0.01) / 1000 for given in (0, 1)]
    assert decode.steps * decode.seconds == pytest.approx(sum(steps))
    assert (prefill.generated_tokens, decode.generated_tokens) == (2, 3)
    assert engine.busy_seconds == pytest.approx(prefill.seconds + sum(steps))


def test_a_batch_takes_no_more_than_memory_holds_of_the_longest() -> None:
    engine = StaticEngine(Hardware(COST, 1_000), max_num_seqs=8, fill_seconds=0.0)
    for prompt in (100, 400, 100):
        engine.submit(prompt, 50, 0.0)
    engine.advance(0.05)
    # Two of up to 450 tokens fit; the third, though short, would be padded to as much.
    assert (engine.running, len(engine.waiting), engine.kv_used_tokens) == (2, 1, 900)


def test_a_change_of_the_batch_counts_from_the_next_one_on() -> None:
    engine = StaticEngine(HARDWARE, max_num_seqs=2, fill_seconds=5.0)
    sequences = [engine.submit(10, 50, 0.0) for _ in range(6)]
    engine.advance(0.1)
    engine.max_num_seqs = 4
    assert engine.running == 2
    ended(engine)
    assert len({sequence.admitted_at for sequence in sequences[2:]}) == 1


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    kv_tokens=st.integers(1_200, 20_000),
    batch=st.integers(1, 20),
    fill_seconds=st.floats(0.0, 3.0),
    rate=st.floats(0.5, 50.0),
)
def test_every_request_finishes_memory_holds_and_counters_add_up(
    seed: int, kv_tokens: int, batch: int, fill_seconds: float, rate: float
) -> None:
    engine = StaticEngine(Hardware(COST, kv_tokens), batch, fill_seconds)
    meters = Meters(engine, max_model_len=2000)
    source, at, sequences = random.Random(seed), 0.0, []
    for _ in range(60):
        at += source.expovariate(rate)
        for step in engine.advance(at):
            meters.book([step])
            assert engine.running <= batch
            assert engine.kv_used_tokens <= kv_tokens
        sequences.append(engine.submit(source.randint(1, 900), source.randint(1, 300), at))
    for step in ended(engine):
        meters.book([step])
    assert engine.idle
    assert meters.generation_tokens == sum(sequence.output_tokens for sequence in sequences)
    assert meters.prompt_tokens == sum(sequence.prompt_tokens for sequence in sequences)
    assert sum(meters.finished.values()) == len(sequences)
    for sequence in sequences:
        times = (sequence.arrived_at, sequence.admitted_at, sequence.first_token_at, sequence.finished_at)
        assert None not in times
        assert list(times) == sorted(time for time in times if time is not None)
        assert sequence.generated == sequence.output_tokens


def times(sequences: list[Sequence]) -> list[tuple[float | None, float | None, float | None]]:
    return [(each.admitted_at, each.first_token_at, each.finished_at) for each in sequences]


def test_the_same_submissions_give_the_same_times_however_finely_time_is_cut() -> None:
    def run(slice_seconds: float) -> list[Sequence]:
        engine = StaticEngine(HARDWARE, max_num_seqs=4, fill_seconds=1.0)
        source, at, sequences = random.Random(7), 0.0, []
        for _ in range(40):
            arrival = at + source.expovariate(2.0)
            while at + slice_seconds < arrival:
                at += slice_seconds
                engine.advance(at)
            at = arrival
            engine.advance(at)
            sequences.append(engine.submit(source.randint(1, 500), source.randint(1, 100), at))
        engine.advance(at + 1e6)
        return sequences

    for fine, coarse in zip(times(run(0.003)), times(run(1e9)), strict=True):
        assert fine == pytest.approx(coarse, abs=1e-6)


def test_until_it_is_quiet_nothing_that_was_asked_for_changes() -> None:
    """The fleet leaves an engine alone until then."""
    engine, source, at = StaticEngine(HARDWARE, 4, 1.0), random.Random(3), 0.0
    for _ in range(200):
        at += source.expovariate(3.0)
        engine.advance(at)
        engine.submit(source.randint(1, 300), source.randint(1, 60), at)
        before, quiet_until = engine.outstanding, engine.quiet_until
        engine.advance(min(quiet_until, at + 100.0) - 1e-6)
        assert engine.outstanding == before
        at = engine.now


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: StaticEngine(HARDWARE, 0, 1.0), "at least 1"),
        (lambda: StaticEngine(HARDWARE, 1, -1.0), "not below 0"),
        (lambda: StaticEngine(HARDWARE, 1, 1.0).submit(0, 1, 0.0), "needs tokens"),
        (lambda: StaticEngine(HARDWARE, 1, 1.0).submit(9_000, 1_001, 0.0), "exceed the KV"),
        (lambda: StaticEngine(HARDWARE, 1, 1.0, now=5.0).submit(1, 1, 4.0), "before"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()
