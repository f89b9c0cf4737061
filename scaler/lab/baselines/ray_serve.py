"""Ray Serve's autoscaling (ray-project/ray, python/ray/serve/autoscaling_policy.py): ongoing requests over a target
per replica, with delays.

Wanted = ceil(ongoing / target), the ongoing requests averaged over 30 s (``look_back_period_s``); up only after it has
stood above for 30 s (``upscale_delay_s``), down only after it has stood below for 600 s (``downscale_delay_s``);
each act begins the count anew. From zero the first request brings one replica at once; only the last one goes to zero.
Ray's default target is 2 ongoing requests per replica, which no language model's replica is meant for.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from scaler.control.model import Now
from scaler.lab.baselines.last_reading import in_flight
from scaler.lab.simulate import Wish
from scaler.signals.model import Signals

LOOK_BACK_SECONDS, UP_DELAY_SECONDS, DOWN_DELAY_SECONDS = 30.0, 30.0, 600.0


@dataclass(slots=True)
class RayServe:
    """``load_target``: ongoing requests per replica."""

    load_target: float = 2.0
    name: str = "ray-serve"
    metric_target: float = 1.0
    _seen: deque[tuple[float, float]] = field(default_factory=deque)
    _above_since: float | None = None
    _below_since: float | None = None

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        """One evaluation."""
        at = now.mono
        self._seen.append((at, in_flight(signals)))
        while self._seen[0][0] <= at - LOOK_BACK_SECONDS:
            self._seen.popleft()
        ongoing = sum(value for _, value in self._seen) / len(self._seen)
        if asked == 0:
            self._above_since = self._below_since = None
            woken = self._seen[-1][1] > 0
            return Wish(1.0 if woken else 0.0, active=woken)
        wanted = max(math.ceil(ongoing / self.load_target), 0 if asked == 1 else 1)
        self._above_since = (self._above_since or at) if wanted > asked else None
        self._below_since = (self._below_since or at) if wanted < asked else None
        up = self._above_since is not None and at - self._above_since >= UP_DELAY_SECONDS
        down = self._below_since is not None and at - self._below_since >= DOWN_DELAY_SECONDS
        if not up and not down:
            return Wish(float(asked))
        self._above_since = self._below_since = None
        return Wish(float(wanted), active=wanted > 0)
