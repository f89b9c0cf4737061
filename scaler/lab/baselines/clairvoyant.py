"""The bound: it knows every arrival and what a replica really serves, pays the cold start and the drain, and is free
otherwise. Not a rival; what is above it is the price of not knowing the future.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from scaler.control.model import Now
from scaler.lab.fleet import Request
from scaler.lab.simulate import BEGIN_MONO, Wish
from scaler.signals.model import Signals

#: The rate is what arrives within so many seconds around a moment, or within a residence time where that is longer:
#: what a replica holds at once is the arrivals of one residence time, and shorter peaks are averaged in it.
RATE_SECONDS = 30.0


@dataclass(slots=True)
class Clairvoyant:
    """``requests_per_second``: what one replica serves within the objectives (times the knob), each request for
    ``residence_seconds``.
    """

    trace: Sequence[Request]
    requests_per_second: float
    cold_start_seconds: float
    residence_seconds: float = 0.0
    name: str = "clairvoyant"
    metric_target: float = 1.0
    _times: list[float] | None = None

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        """What the busiest stretch between now and the end of a cold start begun now will need."""
        if self._times is None:
            self._times = [request.at for request in self.trace]
        at, width = now.mono - BEGIN_MONO, max(RATE_SECONDS, self.residence_seconds)
        step = RATE_SECONDS / 2
        # What came before its first replica could be ready must still be served.
        begin_at = 0.0 if at <= self.cold_start_seconds + width else at
        most, moment = 0, begin_at // step * step  # the same moments in every tick, or the peak would seem to flicker
        while moment <= at + self.cold_start_seconds + width / 2:
            begin, end = moment - width / 2, moment + width / 2
            most = max(most, bisect_left(self._times, end) - bisect_left(self._times, begin))
            moment += step
        wanted = math.ceil(most / width / self.requests_per_second)
        return Wish(float(wanted), active=wanted > 0)
