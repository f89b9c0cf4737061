"""The engine model beside measurements of real engines, and its four constants fitted to them.

What is compared is the time per output token in a closed loop: so many requests of equal length are always in flight.
On average a step then has, with n requests of p prompt and o output tokens,

    n sequences,  n · (p + o/2) context tokens,  n · p/o prefill tokens

which is linear in the constants; :func:`fit` is least squares on it, of relative errors. Whether the constants are
right is not judged by that formula but by the engine itself (:func:`modelled_tpot_seconds`).
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from statistics import fmean, median

from scaler.lab.engine import Engine
from scaler.lab.hardware import Hardware, StepCost
from scaler.lab.sequence import Sequence
from scaler.lab.static_batching import StaticEngine
from scaler.value import frozen

#: A closed loop is played until every place in it was filled so often; the first time is not judged.
ROUNDS = 6


@frozen
class Measured:
    """One measurement: ``concurrency`` requests of equal lengths in flight, and the mean time per output token.

    ``together``: they were all begun at once and nobody followed, so that no prompt disturbed the decoding.
    """

    hardware: str
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    tpot_seconds: float
    together: bool = False


def modelled_tpot_seconds(hardware: Hardware, measured: Measured) -> float:
    """What the engine model makes of the same measurement: the mean time per output token after the first."""
    sequences = (_together if measured.together else _closed_loop)(hardware, measured)
    following = measured.output_tokens - 1
    return fmean(
        (sequence.finished_at - sequence.first_token_at) / following
        for sequence in sequences
        if sequence.finished_at is not None and sequence.first_token_at is not None
    )


def _together(hardware: Hardware, measured: Measured) -> list[Sequence]:
    engine = StaticEngine(hardware, measured.concurrency, fill_seconds=0.0)
    sequences = [
        engine.submit(measured.prompt_tokens, measured.output_tokens, 0.0) for _ in range(measured.concurrency)
    ]
    while engine.step() is not None:
        pass
    return sequences


def _closed_loop(hardware: Hardware, measured: Measured) -> list[Sequence]:
    engine = Engine(hardware, measured.concurrency, coast=True)
    prompt, output, count = measured.prompt_tokens, measured.output_tokens, measured.concurrency
    for place in range(count):  # of different lengths at first, or all would end and begin in the same step
        engine.submit(prompt, max(1, output * (place + 1) // count), 0.0)
    judged: list[Sequence] = []
    while len(judged) < ROUNDS * count:
        step = engine.step()
        assert step is not None  # one is submitted for each that ends
        judged += [sequence for sequence in step.finished if sequence.output_tokens == output]
        for _ in step.finished:
            engine.submit(prompt, output, engine.now)
    return judged[count:]


def errors(hardware: Hardware, rows: ListOf[Measured]) -> list[float]:
    """Of every measurement, by which share the model's TPOT lies above (+) or below (-) it."""
    return [modelled_tpot_seconds(hardware, row) / row.tpot_seconds - 1.0 for row in rows]


def median_error(found: ListOf[float]) -> float:
    """The median of the errors' sizes."""
    return median(abs(error) for error in found)


def fit(rows: ListOf[Measured]) -> StepCost:
    """The constants that fit ``rows`` best, none below 0. Raises ``ValueError`` where the rows do not tell them apart:
    they need several concurrencies, prompt and output lengths. Rows measured ``together`` alone say nothing of prefill,
    which is then 0.
    """
    terms = [0, 1, 2] if all(row.together for row in rows) else [0, 1, 2, 3]
    while True:
        found = dict(zip(terms, _least_squares([_row(row, terms) for row in rows]), strict=True))
        negative = [term for term in terms if found[term] < 0]
        if not negative:
            return StepCost(*(found.get(term, 0.0) * 1000.0 for term in range(4)))
        terms.remove(min(negative, key=lambda term: found[term]))


def _row(measured: Measured, terms: ListOf[int]) -> tuple[float, ...]:
    """The terms of one step of this loop, as shares of the measured step."""
    count, prompt, output = measured.concurrency, measured.prompt_tokens, measured.output_tokens
    prefill = 0.0 if measured.together else count * prompt / output
    every = (1.0, float(count), count * (prompt + output / 2), prefill)
    return tuple(every[term] / measured.tpot_seconds for term in terms)


def _least_squares(rows: ListOf[tuple[float, ...]]) -> list[float]:
    """x with A·x as near to 1 as may be: the normal equations, solved by elimination with scaled columns."""
    size = len(rows[0])
    scale = [max(abs(row[column]) for row in rows) or 1.0 for column in range(size)]
    scaled = [[row[column] / scale[column] for column in range(size)] for row in rows]
    system = [
        [sum(row[i] * row[j] for row in scaled) for j in range(size)] + [sum(row[i] for row in scaled)]
        for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda index: abs(system[index][column]))
        if abs(system[pivot][column]) < 1e-9:
            raise ValueError("the measurements do not tell the constants apart: vary concurrency and both lengths")
        system[column], system[pivot] = system[pivot], system[column]
        for index in range(size):
            if index != column:
                factor = system[index][column] / system[column][column]
                system[index] = [a - factor * b for a, b in zip(system[index], system[column], strict=True)]
    return [system[index][size] / system[index][index] / scale[index] for index in range(size)]
