"""Knative's KPA (knative/serving, pkg/autoscaler/scaling): concurrency over a stable and a panic window.

Wanted = average concurrency / (0.7 × target) over 60 s; over 6 s for panic. When the panic window wants at least twice
what is ready, panic begins: for 60 s from the last such moment the panic window's wish counts if it is higher, and
nothing goes down. A step goes at most to ready × 1000 up and ready / 2 down.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from scaler.control.model import Now
from scaler.lab.baselines.last_reading import in_flight, last_value
from scaler.lab.simulate import Wish
from scaler.signals.model import Signals

STABLE_SECONDS, PANIC_SECONDS = 60.0, 6.0
PANIC_FACTOR, UTILISATION = 2.0, 0.7
MAX_UP_FACTOR, MAX_DOWN_FACTOR = 1000.0, 2.0


@dataclass(slots=True)
class Knative:
    """``load_target``: the concurrency one replica is meant for; 70 % of it is aimed at."""

    load_target: float
    name: str = "knative-kpa"
    metric_target: float = 1.0
    _seen: deque[tuple[float, float]] = field(default_factory=deque)
    _panic_since: float | None = None
    _panic_most: int = 0

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        """One evaluation; without any reading the last count is kept (the KPA's ``ScaleValid: false``)."""
        at = now.mono
        self._seen.append((at, in_flight(signals)))
        while self._seen[0][0] <= at - STABLE_SECONDS:
            self._seen.popleft()
        ready = max(1, int(last_value(signals.ready_replicas)))
        stable, panic = self._wanted(at, STABLE_SECONDS), self._wanted(at, PANIC_SECONDS)
        most, least = math.ceil(MAX_UP_FACTOR * ready), math.floor(ready / MAX_DOWN_FACTOR)
        wanted_stable = min(max(math.ceil(stable), least), most)
        wanted_panic = min(max(math.ceil(panic), least), most)
        if wanted_panic / ready >= PANIC_FACTOR:
            self._panic_since = at
        elif self._panic_since is not None and at - self._panic_since >= STABLE_SECONDS:
            self._panic_since, self._panic_most = None, 0
        if self._panic_since is not None:
            self._panic_most = max(self._panic_most, wanted_panic, ready)
            return Wish(float(self._panic_most))
        return Wish(float(max(1, wanted_stable)))

    def _wanted(self, at: float, seconds: float) -> float:
        values = [value for moment, value in self._seen if moment > at - seconds]
        return sum(values) / len(values) / (UTILISATION * self.load_target) if values else 0.0
