"""Requests drawn from one client of ServeGen's published data (alibaba/ServeGen, ``data/*/MODEL/chunk-N-trace.csv``).

The trace file has a row per window of ten minutes, without a head: its beginning (s), requests per second, their
coefficient of variation, and a fitted distribution that is not needed here. Beside it ``chunk-N-dataset.json`` has the
lengths of every quarter of a day, as shares by token count. Arrivals are gamma-distributed with the window's variation.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

from scaler.value import frozen

#: ``chunk-49-trace.csv``
TRACE_NAME = re.compile(r"chunk-(\d+)-trace\.csv")
#: Burstier than this is not told from an outage within ten minutes, and takes for ever to draw.
MOST_CV = 20.0


class ServeGenError(ValueError):
    """A file that is not one of ServeGen's; the text names file, line and what was expected."""


@frozen
class Shares:
    """A distribution of token counts, to be drawn from."""

    tokens: tuple[int, ...]
    reached: tuple[float, ...]

    def draw(self, source: Random) -> int:
        """One token count, 1 at least."""
        found = bisect_right(self.reached, source.random() * self.reached[-1])
        return max(1, self.tokens[min(found, len(self.tokens) - 1)])


@frozen
class Window:
    """``rate`` requests per second from ``start`` on (seconds), with the coefficient of variation of their gaps."""

    start: float
    rate: float
    cv: float


@frozen
class Client:
    """What one client did: its windows, each ``width_seconds`` long, and its lengths from a time on."""

    windows: tuple[Window, ...]
    width_seconds: float
    lengths: tuple[tuple[float, Shares, Shares], ...]

    def draw(self, seed: int, start: float, seconds: float, most: int | None) -> list[tuple[float, int, int]]:
        """(seconds from ``start``, prompt tokens, output tokens) of its requests, about ``most`` at the most."""
        chosen = [window for window in self.windows if start <= window.start < start + seconds]
        expected = sum(window.rate for window in chosen) * self.width_seconds
        share = 1.0 if most is None or expected <= most else most / expected
        source, drawn = Random(seed), []
        for window in chosen:
            if not window.rate:
                continue
            shape = 1.0 / min(max(window.cv, 0.1), MOST_CV) ** 2
            scale = 1.0 / (shape * window.rate * share)
            # Half of the first gap lies before the window: it began at no request's arrival.
            at = window.start + source.gammavariate(shape, scale) * source.random()
            while at < window.start + self.width_seconds:
                drawn.append((at - start, *self._lengths_at(at, source)))
                at += source.gammavariate(shape, scale)
        return drawn

    def _lengths_at(self, at: float, source: Random) -> tuple[int, int]:
        index = bisect_right(self.lengths, at, key=lambda each: each[0]) - 1
        _, prompt, output = self.lengths[max(index, 0)]
        return prompt.draw(source), output.draw(source)


def read_client(path: Path) -> Client:
    """The client of a ``chunk-N-trace.csv`` and the ``chunk-N-dataset.json`` beside it. Raises :class:`ServeGenError`,
    OSError.
    """
    windows = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                start, rate, cv, *_ = line.strip().split(",")
                windows.append(Window(float(start), float(rate), float(cv)))
            except ValueError as error:
                raise ServeGenError(f"{path}:{number}: {line.strip()!r} is no window of ServeGen: {error}") from error
    if len(windows) < 2:
        raise ServeGenError(f"{path}: needs at least two windows")
    width = min(later.start - earlier.start for earlier, later in pairwise(windows))
    return Client(tuple(windows), width, _read_lengths(path.with_name(path.name.replace("trace.csv", "dataset.json"))))


def _read_lengths(path: Path) -> tuple[tuple[float, Shares, Shares], ...]:
    found: list[tuple[float, Shares, Shares]] = []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        for start, fields in document.items():
            prompt, output = (_shares(ast.literal_eval(fields[name])) for name in ("input_tokens", "output_tokens"))
            if prompt.tokens and output.tokens:
                found.append((float(start), prompt, output))
    except (ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
        raise ServeGenError(f"{path}: no lengths of ServeGen (input_tokens, output_tokens by time): {error}") from error
    if not found:
        raise ServeGenError(f"{path}: no lengths in it")
    return tuple(sorted(found, key=lambda each: each[0]))


def _shares(by_tokens: dict[int, float]) -> Shares:
    tokens: Sequence[int] = sorted(by_tokens)
    return Shares(tuple(tokens), tuple(accumulate(by_tokens[each] for each in tokens)))
