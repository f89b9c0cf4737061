"""The adjustment log: each change of a target or of the state, with the reasons and the signal values behind it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import structlog

from scaler.control.model import LoadState, Mode, Target, Targets
from scaler.serve.effects import begun, measure_effects
from scaler.serve.quantities import plain_value
from scaler.serve.sentences import decided_sentence
from scaler.serve.snapshot import NOT_KEPT, Adjustment, Snapshot
from scaler.serve.workloads import Workload
from scaler.signals.model import status

log = structlog.get_logger(__name__)

_MOVED = (Target.REPLICAS, Target.ACTIVE, Target.BATCH, Target.TOKEN_BUDGET, Target.ADMISSION, Target.RUNG)


def record_adjustment(workload: Workload, before: Targets | None, snapshot: Snapshot) -> None:
    """Compare with the targets and state of before this tick; on a change keep it, count it, and log one line."""
    measure_effects(workload.adjustments, snapshot)
    made = adjustment_between(before, workload.snapshot, snapshot)
    if made is None:
        return
    decision = snapshot.decision
    for target, old, new in made.changes:
        if target in _MOVED:
            code = next((reason.code.value for reason in decision.reasons if reason.target == target), "none")
            key = (target, _direction(old, new), code)
            workload.decisions_total[key] = workload.decisions_total.get(key, 0) + 1
    workload.adjustments.append(made)
    log.info(
        "adjusted",
        workload=workload.name,
        state=decision.state,
        cause=decision.cause,
        changes={name: [old, new] for name, old, new in made.changes},
        reasons=[
            decided_sentence(reason, decision, None if before is None else before.batch) for reason in decision.reasons
        ],
        signals={name: value for name, _, value in made.signal_values if value is not None},
    )


def adjustment_between(before: Targets | None, last: Snapshot | None, snapshot: Snapshot) -> Adjustment | None:
    """What ``snapshot`` changes in the targets of before it and in the state of the ``last`` one; None: nothing."""
    decision = snapshot.decision
    changes: list[tuple[str, object, object]] = []
    # Of a workload that was never read nothing is asked: its targets are what it would be woken with, not a change.
    asked = before is not None or decision.available
    for target in _MOVED if asked else ():
        old, new = getattr(before, target, None), getattr(decision.targets, target)
        if old != new:
            changes.append((target.value, old, new))
    old_mode = last.decision.mode if last else Mode.ACTIVE
    if old_mode is not decision.mode:
        changes.append(("mode", old_mode, decision.mode))
    old_state = last.decision.state if last else LoadState.UNKNOWN
    if old_state is not decision.state:
        changes.append(("state", old_state, decision.state))
    was_available = last.decision.available if last else True
    if was_available is not decision.available:
        changes.append(("available", was_available, decision.available))
    if not changes:
        return None
    values = tuple([_told(name, status(signal), plain_value(signal)) for name, signal in snapshot.signals.items()])
    effect = begun(snapshot) if any(what in _MOVED for what, _, _ in changes) else None
    kept = replace(decision, next_memory=NOT_KEPT)
    return Adjustment(snapshot.decided_at.utc, snapshot.workload, tuple(changes), kept, values, effect)


def _told(name: str, word: str, value: float | None) -> tuple[str, str, float | None]:
    return _without_value(name, word) if value is None else (name, word, value)


@lru_cache
def _without_value(name: str, word: str) -> tuple[str, str, None]:
    """One object for all the entries of all the logs that say the same: most signals have no value most of the time."""
    return name, word, None


def _direction(old: object, new: object) -> str:
    if isinstance(old, int | float) and isinstance(new, int | float):
        return "up" if new > old else "down"
    return "set"
