"""How many sequences fit: the plain bound where lengths do not vary, and what their spread takes from it."""

from __future__ import annotations

from random import Random

import pytest

from scaler.control.kv_bound import fitting_sequences, lasting_sequences
from scaler.signals.model import Known, Signals, Unknown


def signals(tokens: float = 100_000, prompt_mean: float = 800, answer: float = 400, **spread: float) -> Signals:
    values = dict(kv_capacity_tokens=tokens, prompt_tokens_mean=prompt_mean, generation_tokens_mean=answer) | {
        f"{name}_tokens_deviation": value for name, value in spread.items()
    }
    return Signals(**{name: Known(float(value), 0.0) for name, value in values.items()})


def test_without_any_spread_it_is_the_cache_over_the_prompt_and_half_the_answer() -> None:
    assert fitting_sequences(signals()) == pytest.approx(100)
    assert fitting_sequences(signals(prompt_mean=0, answer=0)) is None
    assert fitting_sequences(Signals(kv_capacity_tokens=Unknown("not told"))) is None


def test_spread_takes_from_it_and_never_gives() -> None:
    plain = fitting_sequences(signals())
    assert plain is not None
    for spread in ({"prompt": 400}, {"generation": 200}, {"generation": 400}, {"prompt": 400, "generation": 400}):
        bound = fitting_sequences(signals(**spread))
        assert bound is not None
        assert bound < plain


@pytest.mark.parametrize("answer", [100.0, 400.0, 900.0])
def test_exponential_answers_fill_the_cache_and_rarely_more(answer: float) -> None:
    """Answers whose lengths vary by their mean, as conversations' do. Of those that run at one moment the mean length
    is twice that of those that finish, so that the plain bound would be exceeded nearly always.
    """
    chance, tokens = Random(7), 200_000.0
    bound = fitting_sequences(signals(tokens, 500, answer, generation=answer))
    assert bound is not None
    exceeded = 0
    for _ in range(400):
        held = sum(500 + chance.random() * chance.gammavariate(2.0, answer) for _ in range(int(bound)))
        exceeded += held > tokens
    assert exceeded / 400 < 0.10
    assert held > 0.75 * tokens


@pytest.mark.parametrize("answer", [100.0, 400.0, 900.0])
def test_as_many_on_average_as_hardly_ever_overfill_the_cache(answer: float) -> None:
    """Their number varies too: so many that come and go by chance are more than that now and then."""
    chance, tokens = Random(7), 200_000.0
    lengths = signals(tokens, 500, answer, generation=answer)
    mean, at_one_moment = lasting_sequences(lengths), fitting_sequences(lengths)
    assert mean is not None
    assert at_one_moment is not None
    assert 0.7 * at_one_moment < mean < at_one_moment
    overfilled = 0
    for _ in range(600):
        running = sum(chance.random() < mean / 10_000 for _ in range(10_000))
        held = sum(500 + chance.random() * chance.gammavariate(2.0, answer) for _ in range(running))
        overfilled += held > tokens
    assert overfilled / 600 < 0.03


def test_sequences_that_hold_half_fit_twice() -> None:
    spread = {"prompt": 400.0, "generation": 400.0}
    shared = lasting_sequences(signals(**spread), held_share=0.5)
    assert shared == pytest.approx(lasting_sequences(signals(200_000, **spread)))
    assert lasting_sequences(signals(prompt_mean=0, answer=0)) is None
    assert lasting_sequences(Signals(kv_capacity_tokens=Unknown("not told"))) is None
