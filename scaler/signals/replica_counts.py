"""What the target's replica counts say as signals, by the age of the answer they came in.

A count is no measurement of load: it is known while fresh, held as stale (raising nothing), then unknown.
"""

from __future__ import annotations

from dataclasses import replace

from scaler.signals.coverage import FRESH_INTERVALS
from scaler.signals.model import Known, Signal, Signals, Stale, Unknown
from scaler.signals.observation import ReplicaCounts

_NOBODY_COUNTS = Unknown("no source counts the target's replicas")


def with_replica_counts(
    signals: Signals, counts: ReplicaCounts | None, now_mono: float, *, interval_seconds: float, hold_seconds: float
) -> Signals:
    """``signals`` with the replicas asked for, pending and unschedulable as of ``now_mono`` (monotonic seconds).

    ``interval_seconds`` is how often they are read; an answer older than three of it is stale, older than
    ``hold_seconds`` unknown.
    """
    if counts is None:
        return replace(
            signals,
            asked_replicas=_NOBODY_COUNTS,
            pending_replicas=_NOBODY_COUNTS,
            unschedulable_replicas=_NOBODY_COUNTS,
        )
    age = now_mono - counts.at

    def judged(count: int | None) -> Signal[float]:
        if count is None:
            return Unknown(counts.reason or "not told")
        if age <= FRESH_INTERVALS * interval_seconds:
            return Known(float(count), counts.at)
        if age <= hold_seconds:
            return Stale(float(count), counts.at)
        return Unknown(f"replicas were last counted more than {hold_seconds:g} s ago")

    return replace(
        signals,
        asked_replicas=judged(counts.asked),
        pending_replicas=judged(counts.pending),
        unschedulable_replicas=judged(counts.unschedulable),
    )


def some_asked_for(signals: Signals) -> float | None:
    """How many replicas are asked for, known or held, where that is more than none; else None."""
    asked = signals.asked_replicas
    return asked.value if isinstance(asked, Known | Stale) and asked.value > 0 else None
