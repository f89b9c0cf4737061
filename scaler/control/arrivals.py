"""The arrival rate to buy replicas for: what is measured, without its noise.

A window of a minute holds few requests where a replica serves few: at 0.7 req/s it is right only to a sixth, and the
down window then keeps every peak of that noise for five minutes. So the window's rate is averaged over the time a
request stays in a replica, if that is longer, and the average gives way at once where the window differs from it by
more than noise explains; likewise the last 15 seconds count only where they stand out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scaler.control.capacity import residence_seconds
from scaler.control.model import Memory
from scaler.policy.model import Policy
from scaler.signals.model import Known, Signals, at_least

#: A difference of so many standard deviations of the expected count is a change, not noise.
CHANGE_DEVIATIONS = 3.0
#: The recent arrivals look back this far, seconds.
RECENT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """``rate`` to buy for (req/s), the signal that told it, and the ``average`` to remember (None: nothing known)."""

    rate: float
    signal: str
    average: float | None


def expected_arrivals(policy: Policy, memory: Memory, signals: Signals, elapsed_seconds: float) -> Arrivals:
    """The rate by this tick's signals. Of signals that are not known, what they are at least may still raise it."""
    windowed, recent = at_least(signals.arrivals_per_second), at_least(signals.arrivals_recent_per_second)
    phi = max(signals.arrivals_dispersion or 1.0, 1.0)
    average, window = memory.arrivals_average, policy.window_seconds
    if not isinstance(signals.arrivals_per_second, Known):
        rate = max(windowed, average or 0.0) if windowed > 0 else windowed
    elif average is None or _differs(windowed, average, window, phi):
        rate = average = windowed
    else:
        stay = residence_seconds(signals, policy.objectives.minimum_samples) or 0.0
        average += (windowed - average) * -math.expm1(-elapsed_seconds / max(window, stay))
        rate = average
    if recent > rate and _differs(recent, rate, RECENT_SECONDS, phi):
        return Arrivals(recent, "arrivals_recent_per_second", average)
    return Arrivals(rate, "arrivals_per_second", average)


def _differs(seen: float, expected: float, seconds: float, phi: float) -> bool:
    """Whether a count over ``seconds`` differs from the expected one by more than noise, φ being the dispersion."""
    return abs(seen - expected) * seconds > CHANGE_DEVIATIONS * math.sqrt(phi * max(expected, seen) * seconds)
