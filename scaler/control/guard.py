"""The fast loop: the first stage of the decision, callable alone every second. It can only hold or shrink the batch."""

from __future__ import annotations

from dataclasses import replace

from scaler.control.admission import admit
from scaler.control.batch import BatchMove
from scaler.control.companions import companions
from scaler.control.memory_guard import before_protection, protect_memory
from scaler.control.mode import batch_is_ours
from scaler.control.model import Admission, Cause, Decision, Memory, Now, Target, Targets
from scaler.control.oscillation import swung
from scaler.control.pressure import memory_pressure
from scaler.control.reasons import admission_reasons
from scaler.control.situate import situate
from scaler.control.situation import Situation
from scaler.policy.model import Policy
from scaler.signals.model import Signals


def guard(policy: Policy, memory: Memory, signals: Signals, now: Now) -> BatchMove:
    """The first stage of the decision, callable alone every second: it can only hold or shrink the batch.

    Returns the move; where an agent runs it too, the lower batch of the two wins. Nearly every second there is no
    pressure, and then nothing else is looked at.
    """
    if memory.targets is not None and memory_pressure(policy, signals) is None:
        return as_published(memory.targets)
    situation = situate(policy, memory, signals, now)
    move = protect_memory(situation) if batch_is_ours(policy, memory, now) else None
    return keep(situation) if move is None else _no_looser(admit(situation, move), memory.targets)


def guarded(policy: Policy, memory: Memory, signals: Signals, now: Now, last: Decision) -> Decision | None:
    """The ``last`` decision with what the guard moves between two ticks, on memory signals alone; None where nothing.

    Replicas, activity, token budget and state stay the slow loop's. Its timers go on from the last tick, so what is
    remembered of this move is counted from there: an age below zero, until the next tick makes it a true one.
    """
    targets = memory.targets
    if targets is None or memory_pressure(policy, signals) is None or not batch_is_ours(policy, memory, now):
        return None
    situation = situate(policy, memory, signals, now)
    move = protect_memory(situation)
    if move is None:
        return None
    move = _no_looser(move, targets)
    if (move.batch, move.admission) == (targets.batch, targets.admission):
        return None
    queue, workers = companions(situation, move.batch)
    told = replace(targets, batch=move.batch, admission=move.admission, queue_limit=queue, workers=workers)
    aside = (Target.BATCH, Target.ADMISSION)
    before, engines_own = before_protection(situation, move)
    shrunk, age = move.batch != targets.batch, -situation.elapsed_seconds
    return replace(
        last,
        targets=told,
        cause=Cause.MEMORY,
        reasons=(
            *(reason for reason in last.reasons if reason.target not in aside),
            *move.reasons,
            *admission_reasons(situation, move, Cause.MEMORY),
        ),
        suppressed=(*(held for held in last.suppressed if held.target not in aside), *move.suppressed),
        next_memory=replace(
            memory,
            targets=told,
            batch_before_protection=before,
            batch_was_engines_own=engines_own,
            shrunk_seconds=age if before is not None and memory.shrunk_seconds is None else memory.shrunk_seconds,
            admission_seconds=age if memory.admission_seconds is None else memory.admission_seconds,
            since_batch_change_seconds=age if shrunk else memory.since_batch_change_seconds,
            since_protection_seconds=age if shrunk else memory.since_protection_seconds,
            relieved=memory.relieved and not shrunk,
            pressure_seconds=age if memory.pressure_seconds is None else memory.pressure_seconds,
            batch_swing=swung(memory.batch_swing, targets.batch, move.batch, 0.0),
        ),
    )


def keep(situation: Situation) -> BatchMove:
    """What is published, or to begin with."""
    targets = situation.memory.targets
    if targets is None:
        return BatchMove(situation.batch, situation.policy.batch.token_budget)
    return as_published(targets)


def _no_looser(move: BatchMove, targets: Targets | None) -> BatchMove:
    """The move with the stricter admission of the two: only a tick lets in again."""
    if targets is None or not (move.admission is Admission.OPEN or targets.admission is Admission.SHED):
        return move
    return replace(move, admission=targets.admission)


def as_published(targets: Targets) -> BatchMove:
    """No move."""
    return BatchMove(targets.batch, targets.token_budget, targets.admission)
