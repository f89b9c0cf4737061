"""Where arrivals stand and where they are going: the longest stretch up to now that one straight line explains.

The rate of a short window is mostly noise where a replica serves few requests (0.5 req/s over a minute: 30 ± 5.5), that
of a long one is old. So lines are fitted to the last 15, 30, 60, ... 1800 seconds of 15 s counts, and the longest
stretch is taken whose line still explains the counts of every shorter one: while nothing changes the estimate gets
ever better, and a change that noise can't explain cuts the past off at once. What noise explains: a count C against
an expected E differ by chance as 2·√(C/φ + 3/8) - 2·√(E/φ + 3/8), which is standard normal to a good approximation
even for few counts (Anscombe 1948; φ as in quasi-Poisson regression).

φ is taken from the differences of neighbouring counts, Σ(cᵢ₊₁ - cᵢ)²/(2(n-1)·mean), one step left out: variance/mean
over half an hour would call a day's slope, or one step, dispersion, and then nothing would be news any more.

A line's slope is drawn towards 0 by how little it is known (ridge): over short stretches it is all noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from operator import mul, sub

from scaler.signals.model import ArrivalTrend

#: Stretches looked at, in counts.
STRETCHES = (1, 2, 4, 8, 16, 32, 64, 120)
#: A line explains a count that is so many standard deviations off at most. (2.5: 4 % more GPU-hours, 0.02 points more
#: attainment; lab, as above.)
NOISE_DEVIATIONS = 3.0
#: How fast loads change of which nothing is known yet, as a share of their rate: the spread slopes are drawn towards 0
#: with. A line much steeper than that is no line but a step. (Lab, the tuned half, seeds 3 and 4: 1/600 missed the
#: first rise of a sawtooth that began with the history, 95.9 against 100 % there; 614 GPU-hours against 625 in all.)
SLOPE_SPREAD_PER_SECOND = 1.0 / 150.0
#: Counts needed for φ; with fewer arrivals are taken to be Poisson here.
COUNTS_FOR_NOISE = 8
#: Among so many the second half of a step is little, and leaving a second difference out of bursts takes them for level
#: (lab, bursts of CV 4 on 70B: 16 % more GPU-hours; kept in among fewer, a jump 0 to 200 ended at 32 replicas for 21).
COUNTS_THAT_HIDE_A_STEP = 24
#: In stretches of up to so many each single count is looked at; longer ones show a step in their sums.
EACH_COUNT_SEEN = 8
_POSITIONS = tuple(float(index) for index in range(STRETCHES[-1]))
_LEVELLED = 0.375


def noise_dispersion(counts: Sequence[float]) -> float | None:
    """φ >= 1 from neighbouring counts' differences, without the largest; of few without the larger one beside it too: a
    step lies within a count, and so in two differences. None with too few counts to tell, or nothing counted.
    """
    number, total = len(counts), sum(counts)
    if number < COUNTS_FOR_NOISE or total <= 0:
        return None
    differences = list(map(sub, counts[1:], counts))
    squares: list[float] = list(map(mul, differences, differences))
    left_out = [max(squares)]
    if number < COUNTS_THAT_HIDE_A_STEP:
        step = squares.index(left_out[0])
        left_out.append(max(squares[step - 1 : step] + squares[step + 1 : step + 2]))
    return max(1.0, (sum(squares) - sum(left_out)) / (2 * (number - 1 - len(left_out))) / (total / number))


def fit_trend(counts: Sequence[float], slot_seconds: float, age_seconds: float) -> ArrivalTrend | None:
    """The trend by ``counts``, oldest first, of ``slot_seconds`` each; the last one ended ``age_seconds`` ago."""
    if not counts:
        return None
    told = noise_dispersion(counts)
    phi = 1.0 if told is None else told
    found: _Line | None = None
    allowed: list[tuple[float, float, float]] = []  # by each shorter stretch: lowest and highest rate at its centre
    for stretch in STRETCHES:
        if stretch > len(counts) and stretch // 2 >= len(counts):
            break
        part = counts[-stretch:]
        total = sum(part)
        line = _line(part, total, slot_seconds, phi)
        if line is None or not _explains(line, allowed):
            break
        if stretch <= EACH_COUNT_SEEN and not _fits(line, part, slot_seconds, phi):
            break
        found = line
        allowed.append((*_rates_allowed(total, len(part) * slot_seconds, phi), line[1]))
    if found is None:
        return None
    rate, centre, slope, variance, slope_variance = found
    return ArrivalTrend(rate, centre + age_seconds, slope, variance, slope_variance, told)


#: Rate (1/s), how long ago its centre is (seconds before the last count's end), slope (1/s²), their variances.
_Line = tuple[float, float, float, float, float]


def _line(counts: Sequence[float], total: float, slot_seconds: float, phi: float) -> _Line | None:
    number = len(counts)
    seconds = number * slot_seconds
    rate = total / seconds
    # Of no arrival at all, one is the least that could be missed.
    variance = phi * max(rate, 1.0 / seconds) / seconds
    centre = seconds / 2
    if number < 2 or total <= 0:
        return rate, centre, 0.0, variance, 0.0
    middle = (number - 1) / 2
    spread = number * (number * number - 1) / 12.0
    slope = (sum(map(mul, counts, _POSITIONS)) - middle * total) / spread / slot_seconds**2
    slope_variance = phi * rate / slot_seconds / (spread * slot_seconds**2)
    prior = (rate * SLOPE_SPREAD_PER_SECOND) ** 2
    if slope * slope > NOISE_DEVIATIONS**2 * (prior + slope_variance):
        return None  # no load rises like that for long: a step, not a slope
    known = prior / (prior + slope_variance)
    return rate, centre, slope * known, variance, slope_variance * known


def _fits(line: _Line, counts: Sequence[float], slot_seconds: float, phi: float) -> bool:
    """Whether the line explains each count: their squared distances, which by chance add up to about their number
    (χ²). The shorter stretches alone do not show a step that began within the oldest count.
    """
    free = len(counts) - 2
    if free <= 0:
        return True
    rate, centre, slope, _, _ = line
    newest = rate + slope * (centre - slot_seconds / 2)
    distance = 0.0
    for position, count in enumerate(reversed(counts)):
        expected = max(newest - slope * slot_seconds * position, 0.0) * slot_seconds
        distance += (count - expected) ** 2 / (phi * max(expected, 1.0))
    return distance <= free + NOISE_DEVIATIONS * sqrt(2.0 * free) + NOISE_DEVIATIONS


def _rates_allowed(total: float, seconds: float, phi: float) -> tuple[float, float]:
    """Between what a rate lies that explains ``total`` arrivals in ``seconds``: the count it expects, levelled, is
    within the noise of theirs.
    """
    levelled, noise = sqrt(total / phi + _LEVELLED), NOISE_DEVIATIONS / 2
    lowest = phi * ((levelled - noise) ** 2 - _LEVELLED) / seconds if levelled > noise else 0.0
    return max(0.0, lowest), phi * ((levelled + noise) ** 2 - _LEVELLED) / seconds


def _explains(line: _Line, allowed: Sequence[tuple[float, float, float]]) -> bool:
    """Whether the line explains what was counted in each of the shorter stretches."""
    rate, middle, slope, _, _ = line
    for lowest, highest, centre in allowed:
        expected = rate + slope * (middle - centre)
        if expected > highest or (expected < lowest and lowest > 0.0):
            return False
    return True
