"""How many sequences a replica's KV cache holds, by the lengths that requests really have.

A running sequence holds its prompt and what it has written so far. Of the answers that *run* at one moment long ones
are overrepresented, in proportion to their length, and each is on average half written: with answers of mean ``a`` and
``c`` the square of their deviation over it, that is ``a/2 · (1 + c)`` tokens, twice as many for lengths that vary by
their own mean. The variance of it is ``a² · (1 + c) · (1 + 5c) / 12``, lengths being taken for gamma distributed (equal
ones have c = 0, exponential ones c = 1).

How many fit *at one moment*: n sequences do not hold n times the mean, so room is left for :data:`DEVIATIONS`
deviations of their sum,

    n · mean + DEVIATIONS · √n · deviation = tokens

How many may run *on average* is fewer: they come and go by chance, so that their number varies as well (Poisson), and
the variance of the sum is n · (mean² + deviation²). Room is left for :data:`LASTING_DEVIATIONS` of these deviations, of
:data:`FULL_RATIO` of the cache. (Lab, capacity undeclared: by tokens / (prompt + half the answer) instead L* was 1.4 to
1.9 times what an 8B replica sustains, and ``ramp-llm-d`` kept 71 % of its promises instead of 99.6.)

Where the spread is not known nothing is taken for it: then the first bound is tokens / (prompt + half the answer).
"""

from __future__ import annotations

import math

from scaler.signals.model import Signals, known_value
from scaler.value import frozen

#: One in twenty moments may exceed the bound.
DEVIATIONS = 1.64
#: And one in a hundred that of what runs on average.
LASTING_DEVIATIONS = 2.33
#: No more of the cache is counted on for long.
FULL_RATIO = 0.95


@frozen
class Held:
    """Tokens of the KV cache that a running sequence holds, by its lengths: the mean, and the deviation from it."""

    mean: float
    deviation: float


def held_tokens(signals: Signals) -> Held | None:
    """What a running sequence holds, by what is known of the lengths; None where a mean is not known, or zero."""
    prompt, answer = known_value(signals.prompt_tokens_mean), known_value(signals.generation_tokens_mean)
    if prompt is None or answer is None:
        return None
    prompt_deviation = known_value(signals.prompt_tokens_deviation) or 0.0
    answer_deviation = known_value(signals.generation_tokens_deviation)
    c = (answer_deviation / answer) ** 2 if answer_deviation is not None and answer > 0 else 0.0
    mean = prompt + answer * (1.0 + c) / 2
    if mean < 1.0:
        return None
    written = answer * math.sqrt((1.0 + c) * (1.0 + 5.0 * c) / 12) if answer_deviation is not None else 0.0
    return Held(mean, math.hypot(prompt_deviation, written))


def fitting_sequences(signals: Signals) -> float | None:
    """Sequences whose tokens fit the KV cache of one replica; None where the cache or a mean length is not known."""
    tokens, held = known_value(signals.kv_capacity_tokens), held_tokens(signals)
    if tokens is None or held is None:
        return None
    return _most(tokens, held.mean, DEVIATIONS * held.deviation)


def lasting_sequences(signals: Signals, held_share: float = 1.0) -> float | None:
    """Sequences that may run in one replica on average; None as above. ``held_share``: what a sequence really holds of
    what its lengths say, less than 1 where prompts begin alike and share what the cache has of it.
    """
    tokens, held = known_value(signals.kv_capacity_tokens), held_tokens(signals)
    if tokens is None or held is None:
        return None
    spread = LASTING_DEVIATIONS * math.hypot(held.mean, held.deviation)
    return _most(FULL_RATIO * tokens / held_share, held.mean, spread)


def _most(tokens: float, mean: float, spread: float) -> float:
    """n, where n · mean + √n · spread = tokens."""
    root = (math.sqrt(spread * spread + 4.0 * mean * tokens) - spread) / (2.0 * mean)
    return root * root
