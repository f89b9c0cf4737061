"""Knative's KPA (knative/serving, pkg/autoscaler/scaling): concurrency over a stable and a panic window.

Wanted = ceil(average concurrency / (0.7 × target)) over 60 s; over 6 s for panic. When the panic window wants at least
twice what is ready, panic begins: until 60 s after the last such moment the higher of both windows' wishes counts, and
nothing goes down. A step goes at most to ready × 1000 up and ready / 2 down. An autoscaler that begins with more than
one replica begins in panic, so that a short history does not take them away. Nothing wanted over the whole stable
window is zero replicas, where the floor allows it.
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
    _begun: bool = False

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        """One evaluation."""
        at = now.mono
        self._seen.append((at, in_flight(signals)))
        while self._seen[0][0] <= at - STABLE_SECONDS:
            self._seen.popleft()
        ready = max(1, int(last_value(signals.ready_replicas)))
        if not self._begun:
            self._begun = True
            if ready > 1:
                self._panic_since, self._panic_most = at, ready
        stable, panic = self._wanted(at, STABLE_SECONDS), self._wanted(at, PANIC_SECONDS)
        most, least = math.ceil(MAX_UP_FACTOR * ready), math.floor(ready / MAX_DOWN_FACTOR)
        wanted, wanted_panic = (min(max(count, least), most) for count in (stable, panic))
        if panic / ready >= PANIC_FACTOR:
            self._panic_since = at
        elif self._panic_since is not None and self._panic_since + STABLE_SECONDS < at:
            self._panic_since, self._panic_most = None, 0
        if self._panic_since is not None:
            wanted = self._panic_most = max(self._panic_most, wanted, wanted_panic)
        return Wish(float(wanted), active=wanted > 0)

    def _wanted(self, at: float, seconds: float) -> int:
        values = [value for moment, value in self._seen if moment > at - seconds]
        return math.ceil(sum(values) / len(values) / (UTILISATION * self.load_target)) if values else 0
