"""λ⁺, the arrivals to buy replicas for: what is expected when a replica asked for now would serve.

    λ⁺ = r + max(0, s)·cold start + 1.28·(√φ - 1)·√(r/τ)      at most 2 × present

r is the present rate and s its slope by the measured trend (:mod:`scaler.signals.trend`). The last term is what bursty
arrivals need beyond Poisson ones, whose unevenness the margin in L* takes up: the 90th percentile of the arrivals over
τ, the time over which a replica evens them out (a request's residence, at least the 15 s φ is measured over).

Where today goes the usual way (:mod:`scaler.control.season`) the rate now and a cold start ahead are the means of what
the trend and the season say, each weighed by how well it is known: r is noise for the most part where a replica serves
few requests, and the highest noise of five minutes is what is bought. Where the season says what the trend finds
unlikely (:data:`AGREE_DEVIATIONS`), today is another day and the trend alone counts.

A trend is slow by design, so the newest readings, the last 15 s and the last read, are held against it: what exceeds it
by more than noise explains is news and acted on in this tick, at the rate that is then certain (one deviation below
what was read: a short reading is a spike as often as a level). Far more is a jump (:mod:`scaler.control.jump`).

Without a trend (the first 15 s, a source that tells rates alone) it is the higher of the window's and the last 15
seconds' arrivals, as far as they are certain. Before there was a trend it always was: on slow 70B days that noise,
kept for five minutes by the way down, took 40 % more GPU-hours for the same attainment. (Lab, the tuned half; counting
only the certain part of the slope saved 2 % there, and cost 4 points on a ramp of two minutes.)
"""

from __future__ import annotations

import math

from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.season import Foreseen
from scaler.policy.jump import Jump
from scaler.policy.model import Policy
from scaler.signals.model import ArrivalTrend, Signals, at_least
from scaler.value import frozen

#: The recent arrivals look back this far, seconds; φ is measured over counts of this length.
RECENT_SECONDS = 15.0
#: A reading is news when it lies so many standard deviations above what was expected.
NEWS_DEVIATIONS = 3.0
#: And a jump when it lies so many above (and is a multiple of it); a reading shorter than 15 s, of which there are more
#: and which bursts fill more easily, one more. (Lab, ten other hours of CV 4 at 3 req/s: without it three false jumps,
#: each by 60 to 90 requests in 5 s where 14 were expected; with it none.)
JUMP_DEVIATIONS, SHORT_JUMP_DEVIATIONS = 4.0, 5.0
#: Bursts have a longer tail than the normal: at z deviations, bursts of φ that come like Poisson's reach (z² - 1)/6
#: bursts further. And arrivals of which too little is known to tell φ may be as bursty as CV 4, before one of their
#: bursts is called a jump. (Lab, ten hours of CV 4 at 3 and at 6 req/s: 1.6 and 0.9 false jumps an hour without both,
#: 0.4 and 0.2 with the first, 0.1 and 0 with both.)
BURSTS_ASSUMED = 16.0
#: φ is measured over 15 s: of bursts that even out within them it tells nothing; a shorter reading may be so bursty.
#: (Lab, a recorded hour whose requests come in bunches every 3 s: φ is 1, and each seed had one jump, to twice the
#: replicas, for 38 requests in 5 s where 15 were expected.)
SHORT_BURSTS = 3.0
#: The 90th percentile of a normal deviate.
QUANTILE_DEVIATIONS = 1.28
#: A season that lies so many of the trend's standard deviations from it is not today's.
AGREE_DEVIATIONS = 2.0
#: λ⁺ is at most this much of what arrives now.
LARGEST_FACTOR = 2.0


@frozen
class Reading:
    """One of the newest readings: the signal that tells it, req/s, and over how many seconds."""

    signal: str
    rate: float
    seconds: float

    def bursts(self, measured: float) -> float:
        """φ that so short a reading may have, where ``measured`` is that of 15 s."""
        return measured if self.seconds >= RECENT_SECONDS else max(measured, SHORT_BURSTS)

    def certain(self, dispersion: float) -> float:
        """The rate that is almost certain: one standard deviation below what was read."""
        return max(0.0, self.rate - math.sqrt(dispersion * self.rate / self.seconds))


@frozen
class Arrivals:
    """``rate`` is λ⁺ (req/s) and ``signal`` what told it; ``expected`` is what the past made one expect for now,
    ``dispersion`` φ (>= 1), ``steep`` those of the newest readings that show a jump.
    """

    rate: float
    signal: str
    expected: float
    dispersion: float
    steep: tuple[Reading, ...]


def expected_arrivals(
    policy: Policy,
    signals: Signals,
    capacity: CapacityEstimate,
    *,
    cold_start_seconds: float,
    elapsed_seconds: float,
    foreseen: Foreseen | None = None,
) -> Arrivals:
    """The arrivals by this tick's signals and, where there is one, by the season. Of signals that are not known only
    what they are at least counts.
    """
    windowed, recent = at_least(signals.arrivals_per_second), at_least(signals.arrivals_recent_per_second)
    readings = [Reading("arrivals_recent_per_second", recent, RECENT_SECONDS)]
    if 0.0 < elapsed_seconds < RECENT_SECONDS:
        readings.append(
            Reading("arrivals_last_per_second", at_least(signals.arrivals_last_per_second), elapsed_seconds)
        )
    trend = signals.arrivals_trend
    if trend is None:
        expected = _earlier(windowed, recent, policy.window_seconds)
        phi = bursts = max(signals.arrivals_dispersion or 1.0, 1.0)
        rate, signal = (windowed, "arrivals_per_second") if windowed >= recent else (recent, readings[0].signal)
    else:
        expected, _ = trend.expected(0.0)
        phi = trend.dispersion or 1.0
        bursts = BURSTS_ASSUMED if trend.dispersion is None else phi
        rate, signal = _forecast(trend, capacity, cold_start_seconds, recent, foreseen), "arrivals_per_second"
    steep: tuple[Reading, ...] = ()
    for reading in readings:
        if reading.rate <= expected:
            continue
        if is_news(reading, expected, reading.bursts(phi)) and (certain := reading.certain(phi)) > rate:
            rate, signal = certain, reading.signal
        if is_steep(policy.jump, reading, expected, reading.bursts(bursts)):
            steep = (*steep, reading)
    return Arrivals(rate, signal, expected, phi, steep)


def _forecast(
    trend: ArrivalTrend, capacity: CapacityEstimate, ahead_seconds: float, recent: float, foreseen: Foreseen | None
) -> float:
    now, doubt = trend.expected(0.0)
    # No further ahead than the line was seen back: of half a minute one knows little about the next two.
    ahead_seconds = min(ahead_seconds, 2.0 * trend.centre_seconds)
    rate = now + max(0.0, trend.slope_per_second) * ahead_seconds
    if foreseen is not None and abs(foreseen.now - now) <= AGREE_DEVIATIONS * doubt:
        noise = (trend.dispersion or 1.0) / foreseen.requests
        ahead, further_doubt = trend.expected(ahead_seconds)
        now = _weighed(now, doubt, foreseen.now, foreseen.error, noise)
        rate = max(now, _weighed(ahead, further_doubt, foreseen.ahead, foreseen.error, noise))
    mu = capacity.requests_per_second
    evens_out = max(RECENT_SECONDS, capacity.sequences / mu) if mu else RECENT_SECONDS
    bursts = QUANTILE_DEVIATIONS * (math.sqrt(trend.dispersion or 1.0) - 1.0) * math.sqrt(now / evens_out)
    return min(rate + bursts, LARGEST_FACTOR * max(now, recent))


def _weighed(trend: float, doubt: float, usual: float, error: float, noise: float) -> float:
    """The mean of two rates, each by the inverse of its variance: ``doubt`` is the trend's deviation, ``error`` and the
    root of ``noise`` the usual one's as shares of it.
    """
    variance, doubted = usual * usual * (error * error + noise), doubt * doubt
    both = doubted + variance
    # Not trend + (usual - trend) * weight, which rounds below 0 where nothing is usual.
    return trend if both <= 0.0 else (trend * variance + usual * doubted) / both


def outlasts_counts(capacity: CapacityEstimate) -> bool:
    """Whether a request stays in a replica at least as long as the counts are that φ is measured over: then what comes
    in shorter bunches evens out within it, and what runs there by chance is known.
    """
    mu = capacity.requests_per_second
    return mu is not None and capacity.sequences >= RECENT_SECONDS * mu


def is_news(reading: Reading, expected: float, dispersion: float) -> bool:
    """Whether the reading exceeds what was expected by more than noise explains (Anscombe's normal approximation)."""
    seen = math.sqrt(reading.rate * reading.seconds / dispersion + 0.375)
    usual = math.sqrt(expected * reading.seconds / dispersion + 0.375)
    return 2.0 * (seen - usual) > NEWS_DEVIATIONS


def is_steep(jump: Jump, reading: Reading, expected: float, dispersion: float) -> bool:
    """Whether the reading shows a jump: a multiple of what was expected, and far more than noise and bursts explain."""
    excess = (reading.rate - expected) * reading.seconds
    z = JUMP_DEVIATIONS if reading.seconds >= RECENT_SECONDS else SHORT_JUMP_DEVIATIONS
    noise = z * math.sqrt(dispersion * expected * reading.seconds) + (z * z - 1.0) / 6.0 * (dispersion - 1.0)
    if expected == 0.0:
        noise = 0.0  # demand from zero is no burst of what was there
    return reading.rate >= jump.factor * expected and excess >= max(jump.minimum_excess_requests, noise)


def _earlier(windowed: float, recent: float, window_seconds: float) -> float:
    """The rate of the window without its last 15 s."""
    if window_seconds <= RECENT_SECONDS:
        return windowed
    return max(0.0, (windowed * window_seconds - recent * RECENT_SECONDS) / (window_seconds - RECENT_SECONDS))
