"""The bound: it knows every arrival and what a replica really serves, pays the cold start and the drain, and is free
otherwise. Not a rival; what is above it is the price of not knowing the future.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from scaler.control.model import Now
from scaler.lab.fleet import Request
from scaler.lab.simulate import BEGIN_MONO, Wish
from scaler.signals.model import Signals

#: The rate is what arrives within so many seconds around a moment.
RATE_SECONDS = 30.0


@dataclass(slots=True)
class Clairvoyant:
    """``requests_per_second``: what one replica serves within the objectives (times the knob)."""

    trace: Sequence[Request]
    requests_per_second: float
    cold_start_seconds: float
    name: str = "clairvoyant"
    metric_target: float = 1.0
    _times: list[float] | None = None

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        """What the busiest half minute between now and the end of a cold start begun now will need."""
        if self._times is None:
            self._times = [request.at for request in self.trace]
        at = now.mono - BEGIN_MONO
        peak, moment = 0.0, at
        while moment <= at + self.cold_start_seconds + RATE_SECONDS:
            within = bisect_right(self._times, moment + RATE_SECONDS / 2) - bisect_left(
                self._times, moment - RATE_SECONDS / 2
            )
            peak = max(peak, within / RATE_SECONDS)
            moment += RATE_SECONDS / 2
        wanted = math.ceil(peak / self.requests_per_second)
        return Wish(float(wanted), active=wanted > 0)
