"""What the target's replica counts say as signals, by the age of the answer they came in.

A count is no measurement of load: it is known while fresh, held as stale (raising nothing), then unknown.
"""

from __future__ import annotations

from typing import Any

from scaler.signals.coverage import FRESH_INTERVALS
from scaler.signals.model import Known, Signal, Stale, Unknown
from scaler.signals.observation import ReplicaCounts

_NOBODY_COUNTS = Unknown("no source counts the target's replicas")


def counted_replicas(
    counts: ReplicaCounts | None, now_mono: float, *, interval_seconds: float, hold_seconds: float
) -> dict[str, Any]:
    """The replicas asked for, pending and unschedulable as signals by name, as of ``now_mono`` (monotonic seconds).

    ``interval_seconds`` is how often they are read; an answer older than three of it is stale, older than
    ``hold_seconds`` unknown.
    """
    if counts is None:
        return dict.fromkeys(("asked_replicas", "pending_replicas", "unschedulable_replicas"), _NOBODY_COUNTS)
    age = now_mono - counts.at

    def judged(count: int | None) -> Signal[float]:
        if count is None:
            return Unknown(counts.reason or "not told")
        if age <= FRESH_INTERVALS * interval_seconds:
            return Known(float(count), counts.at)
        if age <= hold_seconds:
            return Stale(float(count), counts.at)
        return Unknown(f"replicas were last counted more than {hold_seconds:g} s ago")

    return {
        "asked_replicas": judged(counts.asked),
        "pending_replicas": judged(counts.pending),
        "unschedulable_replicas": judged(counts.unschedulable),
    }


def some_asked_for(asked: Signal[float]) -> float | None:
    """How many replicas are asked for, known or held, where that is more than none; else None."""
    return asked.value if isinstance(asked, Known | Stale) and asked.value > 0 else None
