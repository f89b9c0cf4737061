"""What can be judged at once, without reading anything: the last reading, with what was pushed or ordered since; and
what a restart makes of the time that was away.
"""

from __future__ import annotations

from dataclasses import replace

from scaler.control.model import Memory
from scaler.serve.workloads import Workload
from scaler.signals.observation import Observation
from scaler.signals.window import unchanged_since


def at_hand(workload: Workload, at: float) -> Observation | None:
    """The observation to judge at monotonic time ``at`` because of a wake or an override; None where there is none."""
    return _raised(workload, at) or _overridden(workload)


def _raised(workload: Workload, at: float) -> Observation | None:
    """What was last read, with the demand pushed since; None where that is no more, or under another policy.

    A wake must not wait for an engine that does not answer. It only ever raises: demand that went down, and what else
    has changed, comes with the next reading.
    """
    policy = workload.resolved.policy
    if workload.observed is None or workload.observed[0] is not policy:
        return None
    last, pushed = workload.observed[1], workload.inbox.read(at, policy.push)
    if pushed is None:
        return None
    before = last.demand or replace(pushed, pending=None, wake_requested=False)
    pending, wake = max(before.pending or 0.0, pushed.pending or 0.0), before.wake_requested or pushed.wake_requested
    if (pending, wake) == (before.pending or 0.0, before.wake_requested):
        return None
    return replace(last, at=at, demand=replace(before, at=at, pending=pending, wake_requested=wake))


def _overridden(workload: Workload) -> Observation | None:
    """What was last read, where an override has been set or ended since: an operator need not wait for an engine."""
    decided = None if workload.snapshot is None else workload.snapshot.decision.next_memory.override
    if workload.observed is None or workload.memory.override == decided:
        return None
    return workload.observed[1]


def resumed(workload: Workload) -> Memory:
    """After a restart: the time away counts as idle only if no activity counter moved and no process started anew.

    Anything else may have been traffic nobody saw, and the timer starts again. Until the counters have been read the
    question stays open, and the timer stands.
    """
    if workload.watermark is None:
        return workload.memory
    unchanged = unchanged_since(workload.watermark, workload.history)
    if unchanged is None:
        return workload.memory
    workload.watermark = None
    if not unchanged:
        return replace(workload.memory, idle_seconds=0.0)
    return replace(workload.memory, idle_seconds=workload.memory.idle_seconds + workload.away_seconds)
