"""The practice without a jump table: twice the replicas while they are too few, half while they are far too many, one
step a minute. From 1 to the 16 that a jump needs it takes four minutes, however clear the need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scaler.control.model import Now
from scaler.lab.baselines.last_reading import in_flight
from scaler.lab.simulate import Wish
from scaler.signals.model import Signals

STEP_SECONDS = 60.0
#: Half is enough where even half of the replicas would be loaded to no more than half.
LOW_SHARE = 0.25


@dataclass(slots=True)
class Doubling:
    """``load_target``: sequences in flight per replica that was asked for."""

    load_target: float
    name: str = "doubling"
    metric_target: float = 1.0
    _stepped_at: float | None = None

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        """The present count, or one step away from it if the last is a minute ago."""
        load, wanted = in_flight(signals), asked
        if self._stepped_at is None or now.mono - self._stepped_at >= STEP_SECONDS:
            if load > asked * self.load_target:
                wanted = max(1, 2 * asked)
            elif load < LOW_SHARE * asked * self.load_target:
                wanted = max(1, math.ceil(asked / 2))
        if wanted != asked:
            self._stepped_at = now.mono
        return Wish(float(wanted), active=True)
