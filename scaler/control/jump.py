"""The jump: a rise so steep that waiting for the ordinary steps would cost minutes of broken promises.

Recognised when arrivals over the last 15 s, or since the last read, are at least ``factor`` × the expected ones *and*
exceed them by max(minimum, 4·√(φ·expected)) requests over the time looked at, φ being the measured dispersion; a ratio
alone gives about ten false jumps an hour at low Poisson rates (LAWS section 3). Then this very tick goes to the row of
the table for that rate, or where no table is declared to what the present rate needs; the cooldown is not asked. The
peak is held ``hold_seconds``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scaler.control.situation import Situation
from scaler.policy.model import JumpRow
from scaler.signals.model import at_least, known_value

#: The recent arrivals look back this far.
RECENT_SECONDS = 15.0
#: So many standard deviations of the expected count are not noise.
NOISE_DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True)
class JumpSeen:
    """A recognised jump: the rate that showed it (req/s), the rate expected, and the table row, if one is reached."""

    rate: float
    expected: float
    row: JumpRow | None


def recognise_jump(situation: Situation) -> JumpSeen | None:
    """The jump in this tick's arrivals, or None."""
    signals, jump = situation.signals, situation.policy.jump
    windowed = at_least(signals.arrivals_per_second)
    recent = at_least(signals.arrivals_recent_per_second)
    expected = _before(windowed, recent, situation.policy.window_seconds)
    phi = signals.arrivals_dispersion if signals.arrivals_dispersion is not None else 1.0
    looks = (
        (at_least(signals.arrivals_last_per_second), min(situation.elapsed_seconds, RECENT_SECONDS)),
        (recent, RECENT_SECONDS),
    )
    seen = [
        rate
        for rate, span in looks
        if span > 0
        and rate >= jump.factor * expected
        and (rate - expected) * span
        >= max(jump.minimum_excess_requests, NOISE_DEVIATIONS * math.sqrt(max(phi, 1.0) * expected * span))
    ]
    if not seen:
        return None
    rate = max(seen)
    row = max((row for row in jump.rows if row.rate_at_least <= rate), key=lambda row: row.rate_at_least, default=None)
    return JumpSeen(rate, expected, row) if _exceeds_capacity(situation, rate, row) else None


def _before(windowed: float, recent: float, window_seconds: float) -> float:
    """The rate of the window without its last 15 s: what was expected to go on."""
    if window_seconds <= RECENT_SECONDS:
        return windowed
    earlier = (windowed * window_seconds - recent * RECENT_SECONDS) / (window_seconds - RECENT_SECONDS)
    return max(0.0, earlier)


def _exceeds_capacity(situation: Situation, rate: float, row: JumpRow | None) -> bool:
    """A rise the present and pending replicas can take is no jump. A declared row is the operator's word on that."""
    if row is not None:
        return row.replicas > situation.replicas or row.batch > (situation.batch or 0)
    capacity, replicas = situation.capacity, max(situation.replicas, 1)
    if capacity.requests_per_second is not None:
        return rate > replicas * capacity.requests_per_second
    in_flight = (known_value(situation.signals.running) or 0.0) + (known_value(situation.signals.waiting) or 0.0)
    return in_flight > replicas * capacity.sequences


def jump_reason(seen: JumpSeen, situation: Situation) -> tuple[float, float]:
    """(value, threshold) to show for a jump: the rate seen and the rate at which it counted as one."""
    return seen.rate, seen.row.rate_at_least if seen.row else situation.policy.jump.factor * seen.expected
