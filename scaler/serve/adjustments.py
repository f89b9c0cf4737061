"""The adjustment log: each change of a target or of the state, with the reasons and the signal values behind it."""

from __future__ import annotations

import structlog

from scaler.control.model import LoadState, Target, Targets
from scaler.serve.quantities import plain_value
from scaler.serve.snapshot import Adjustment, Snapshot
from scaler.serve.words import sentence
from scaler.serve.workloads import Workload
from scaler.signals.model import status

log = structlog.get_logger(__name__)

_MOVED = (Target.REPLICAS, Target.ACTIVE, Target.BATCH, Target.TOKEN_BUDGET, Target.ADMISSION)


def record_adjustment(workload: Workload, before: Targets | None, snapshot: Snapshot) -> None:
    """Compare with the targets and state of before this tick; on a change keep it, count it, and log one line."""
    decision = snapshot.decision
    changes: list[tuple[str, object, object]] = []
    for target in _MOVED:
        old, new = getattr(before, target, None), getattr(decision.targets, target)
        if old != new:
            changes.append((target.value, old, new))
            code = next((reason.code.value for reason in decision.reasons if reason.target is target), "none")
            key = (target.value, _direction(old, new), code)
            workload.decisions_total[key] = workload.decisions_total.get(key, 0) + 1
    old_state = workload.snapshot.decision.state if workload.snapshot else LoadState.UNKNOWN
    if old_state is not decision.state:
        changes.append(("state", old_state, decision.state))
    was_available = workload.snapshot.decision.available if workload.snapshot else True
    if was_available is not decision.available:
        changes.append(("available", was_available, decision.available))
    if not changes:
        return
    values = tuple((name, status(signal), plain_value(signal)) for name, signal in snapshot.signals.items())
    workload.adjustments.append(Adjustment(snapshot.decided_at.utc, workload.name, tuple(changes), decision, values))
    log.info(
        "adjusted",
        workload=workload.name,
        state=decision.state,
        cause=decision.cause,
        changes={name: [old, new] for name, old, new in changes},
        reasons=[
            sentence(
                reason, decision.targets, need=decision.need, batch_before=None if before is None else before.batch
            )
            for reason in decision.reasons
        ],
        signals={name: value for name, _, value in values if value is not None},
    )


def _direction(old: object, new: object) -> str:
    if isinstance(old, int | float) and isinstance(new, int | float):
        return "up" if new > old else "down"
    return "set"
