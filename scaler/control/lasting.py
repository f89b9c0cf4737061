"""What lasts beside the load state, for how long, and what ends each: nothing that holds or shrinks is without a way
out that is measured or timed.
"""

from __future__ import annotations

from collections.abc import Mapping

from scaler.control.model import Memory

#: Each condition, with what ends it.
ENDS: Mapping[str, str] = {
    "doubt": "the lost signal is read again; after hold_seconds KEDA is told UNAVAILABLE meanwhile",
    "loading": "a replica is ready, or load_timeout_seconds are over",
    "wake_backoff": "a replica is ready, or the wait before the next wake is over",
    "memory_pressure": "KV use is below the emergency mark, nothing is preempted, and device memory is free",
    "shrunk": "one step up per cooldown while KV use is below the growth mark, until the batch is what it was",
    "admission": "KV use is below the growth mark, steps are on time, or replicas make progress again; "
    "where all are stalled, one tick lets in per stalled_after_seconds",
    "jump_hold": "jump.hold_seconds are over",
    "latency_step": "one cold start has passed since the breach ended",
    "scale_in": "a bound is breached, a jump, or the load is above what the replicas serve without their ordinary room",
    "low": "utilisation is above low_leave_utilisation",
    "override": "its time has come, or it is ended",
    "asleep": "anything is wanted of it, a warm window opens, or a wake source is lost; zero after timeout_seconds",
    "waking": "no replica sleeps any longer",
}


def lasting(memory: Memory) -> dict[str, float]:
    """Seconds for which each condition has lasted as of the last tick; those that do not hold are left out."""
    ages = {
        "doubt": memory.doubt_seconds or None,
        "loading": memory.loading_seconds,
        "wake_backoff": memory.since_failed_load_seconds,
        "memory_pressure": memory.pressure_seconds,
        "shrunk": memory.shrunk_seconds,
        "admission": memory.admission_seconds,
        "jump_hold": memory.jump_seconds,
        "latency_step": memory.latency_step_seconds,
        "scale_in": memory.scale_in_seconds,
        "low": memory.below_low_seconds,
        "override": memory.override_seconds,
        "asleep": memory.asleep_seconds,
        "waking": memory.waking_seconds,
    }
    return {condition: max(0.0, age) for condition, age in ages.items() if age is not None}


def lasted(seconds: float | None, holds: bool, elapsed: float) -> float | None:
    """The age of a condition after ``elapsed`` more seconds, at whose end it ``holds`` or not."""
    if not holds:
        return None
    return 0.0 if seconds is None else seconds + elapsed


def older(seconds: float | None, elapsed: float) -> float | None:
    """An age after ``elapsed`` more seconds; None stays never."""
    return None if seconds is None else seconds + elapsed
