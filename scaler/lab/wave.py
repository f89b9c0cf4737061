"""A repeating wave of requests: Poisson arrivals whose rate rises, jumps, settles and ebbs, with chat-like lengths.

Pure and seedable: the same seed gives the same arrivals. The default wave is laid around what the stand-in engine
serves (about 4.6 requests per second with 16 sequences at once): the ramp stays below it, the jump far above, so a
queue forms; the plateau and the ebb let it drain.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from math import log

from scaler.value import frozen


@frozen
class Phase:
    """A stretch of the wave: for ``seconds`` the rate moves evenly between two rates, requests per second."""

    name: str
    seconds: float
    start_rate: float
    end_rate: float


#: 160 s in all. Mean 2.4 requests per second.
DEFAULT_WAVE = (
    Phase("quiet", 20, 0.0, 0.0),
    Phase("ramp", 40, 0.2, 3.5),
    Phase("jump", 25, 8.0, 8.0),
    Phase("plateau", 30, 3.0, 3.0),
    Phase("ebb", 45, 1.0, 0.0),
)


def phase_at(wave: tuple[Phase, ...], at: float) -> tuple[Phase, float]:
    """The phase at ``at`` seconds after the first wave's beginning, and the rate there (requests per second)."""
    ends = list(accumulate(phase.seconds for phase in wave))
    within = at % ends[-1]
    for phase, end in zip(wave, ends, strict=True):
        if within < end:
            share = 1.0 - (end - within) / phase.seconds
            return phase, phase.start_rate + share * (phase.end_rate - phase.start_rate)
    return wave[-1], wave[-1].end_rate  # `within` was rounded up to the wave's whole length


@frozen
class Lengths:
    """Token counts, log-normal and cut off: medians, spreads (standard deviation of the logarithm), longest.

    The defaults follow the conversations of Azure's public trace of 2023 (AzurePublicDataset,
    AzureLLMInferenceTrace_conv, 19,366 requests): its medians (1020, 129), means (1155, 211) and longest.
    """

    prompt_median: float = 1020.0
    prompt_spread: float = 0.5
    prompt_longest: int = 14_050
    output_median: float = 129.0
    output_spread: float = 1.03
    output_longest: int = 1000

    def draw(self, source: random.Random) -> tuple[int, int]:
        """(prompt tokens, output tokens) of one request."""
        prompt = source.lognormvariate(log(self.prompt_median), self.prompt_spread)
        output = source.lognormvariate(log(self.output_median), self.output_spread)
        return min(max(round(prompt), 1), self.prompt_longest), min(max(round(output), 1), self.output_longest)


@frozen
class Arrival:
    """One request: when (seconds after the first wave's beginning) and how long."""

    at: float
    prompt_tokens: int
    output_tokens: int


def arrivals(seed: int, wave: tuple[Phase, ...] = DEFAULT_WAVE, lengths: Lengths | None = None) -> Iterator[Arrival]:
    """The wave's requests in order of time, for ever.

    A Poisson process of changing rate by thinning (Lewis and Shedler 1979): candidates come at the highest rate, each
    is kept with the probability rate / highest rate. Raises ``ValueError`` for a wave that never has any request.
    """
    source = random.Random(seed)
    lengths = lengths or Lengths()
    highest = max(max(phase.start_rate, phase.end_rate) for phase in wave)
    if highest <= 0:
        raise ValueError("every rate of the wave is 0; there would never be a request")
    at = 0.0
    while True:
        at += source.expovariate(highest)
        _, rate = phase_at(wave, at)
        if source.random() * highest < rate:
            yield Arrival(at, *lengths.draw(source))
