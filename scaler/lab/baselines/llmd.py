"""llm-d's SLO-aware law.

s = max(P90 TTFT / objective, P90 TPOT / objective), 0 without traffic, clipped at 2, averaged over 45 s. Above 0.55:
n + ceil(n·(s·c/0.55 - 1)); below 0.40: n - floor(n·(1 - s/0.40)), n being the replicas asked for and c the credit for
those that still load: ready/n while 0 < ready < n, else 1 (llm-d, docs/architecture/advanced/autoscaling, slo-aware).
Behind it an HPA with max(100 %, 4) per 60 s up after 30 s of stabilisation, and one per 120 s down with a 180 s window.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from scaler.control.model import Now
from scaler.lab.baselines.last_reading import last_value
from scaler.lab.simulate import Wish
from scaler.signals.model import Latency, Signals, known_value

AVERAGE_SECONDS = 45.0
UP_ABOVE, DOWN_BELOW, CLIP = 0.55, 0.40, 2.0


@dataclass(slots=True)
class LlmD:
    """Objectives in seconds. ``load_target`` scales both thresholds (the knob); 1.0 is the published law."""

    ttft_seconds: float
    tpot_seconds: float
    load_target: float = 1.0
    name: str = "llm-d-slo"
    metric_target: float = 1.0
    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        """One evaluation. The recording rules read an idle pool, without any sample, as 0."""
        score = max(
            _share(known_value(signals.ttft_seconds), self.ttft_seconds),
            _share(known_value(signals.tpot_seconds), self.tpot_seconds),
        )
        self._seen.append((now.mono, min(score, CLIP)))
        while self._seen[0][0] <= now.mono - AVERAGE_SECONDS:
            self._seen.popleft()
        average = sum(value for _, value in self._seen) / len(self._seen)
        replicas, ready = max(asked, 1), int(last_value(signals.ready_replicas))
        credit = ready / replicas if 0 < ready < replicas else 1.0
        up, down = UP_ABOVE * self.load_target, DOWN_BELOW * self.load_target
        wanted = replicas
        if average > up:
            wanted += math.ceil(replicas * (average * credit / up - 1))
        elif average < down:
            wanted -= math.floor(replicas * (1 - average / down))
        return Wish(float(max(1, wanted)))


def _share(latency: Latency | None, objective_seconds: float) -> float:
    """P90 over the objective. The fold gives P50 and P95 as intervals; P90 is taken between their estimates, linear
    in the quantile: 0.90 lies 5/45 of the way from 0.95 to 0.50.
    """
    if latency is None or latency.samples <= 0:
        return 0.0
    p50, p95 = latency.p50.estimate, latency.p95.estimate
    return (p95 - (p95 - p50) * 5.0 / 45.0) / objective_seconds
