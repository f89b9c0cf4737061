"""How many sequences a replica's KV cache holds, by the lengths that requests really have.

A running sequence holds its prompt and what it has written so far. Of the answers that *run* at one moment long ones
are overrepresented, in proportion to their length, and each is on average half written: with answers of mean ``a`` and
``c`` the square of their deviation over it, that is ``a/2 · (1 + c)`` tokens, twice as many for lengths that vary by
their own mean. The variance of it is ``a² · (1 + c) · (1 + 5c) / 12``, lengths being taken for gamma distributed (equal
ones have c = 0, exponential ones c = 1). And n sequences do not hold n times the mean at every moment: the bound leaves
room for :data:`DEVIATIONS` deviations of their sum,

    n · mean + DEVIATIONS · √n · deviation = tokens

Where the spread is not known nothing is taken for it: then the bound is tokens / (prompt + half the answer).
"""

from __future__ import annotations

import math

from scaler.signals.model import Signals, known_value

#: One in twenty moments may exceed the bound.
DEVIATIONS = 1.64


def fitting_sequences(signals: Signals) -> float | None:
    """Sequences whose tokens fit the KV cache of one replica; None where the cache or a mean length is not known."""
    tokens = known_value(signals.kv_capacity_tokens)
    prompt, answer = known_value(signals.prompt_tokens_mean), known_value(signals.generation_tokens_mean)
    if tokens is None or prompt is None or answer is None:
        return None
    prompt_deviation = known_value(signals.prompt_tokens_deviation) or 0.0
    answer_deviation = known_value(signals.generation_tokens_deviation)
    c = (answer_deviation / answer) ** 2 if answer_deviation is not None and answer > 0 else 0.0
    mean = prompt + answer * (1.0 + c) / 2
    if mean < 1.0:
        return None
    written = answer * math.sqrt((1.0 + c) * (1.0 + 5.0 * c) / 12) if answer_deviation is not None else 0.0
    spread = DEVIATIONS * math.hypot(prompt_deviation, written)
    root = (math.sqrt(spread * spread + 4.0 * mean * tokens) - spread) / (2.0 * mean)
    return root * root
