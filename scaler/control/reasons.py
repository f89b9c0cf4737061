"""Why, where no single law says it: a breach that buys nothing, admission, a changed declaration, lost signals."""

from __future__ import annotations

from scaler.control.admission import critical_wait_seconds, expected_wait_seconds
from scaler.control.batch import BatchMove
from scaler.control.model import Admission, Cause, Code, Reason, Suppressed, Target, Targets
from scaler.control.situation import Situation
from scaler.signals.model import known_value


def cause_reasons(situation: Situation, cause: Cause | None) -> tuple[Reason, ...]:
    """What a person must be told when a breach buys nothing."""
    if cause is None or cause not in (Cause.INHERENT, Cause.UNATTRIBUTED):
        return ()
    code = Code.OBJECTIVE_UNREACHABLE if cause is Cause.INHERENT else Code.UNATTRIBUTED
    for bound in ("e2e_critical", "ttft_critical", "tpot_critical", "e2e", "ttft", "tpot"):
        if situation.breached(bound):
            name = f"{bound.removesuffix('_critical')}_seconds"
            latency = known_value(getattr(situation.signals, name))
            objective = getattr(situation.policy.objectives, f"{bound}_seconds")
            return (Reason(code, Target.REPLICAS, name, latency.p95.low if latency else None, objective),)
    return ()


def infeasible_reasons(situation: Situation) -> tuple[Reason, ...]:
    """The objectives that were left out, with an empty replica's P95 and the objective declared."""
    if not situation.infeasible:
        return ()
    return tuple(
        Reason(Code.INFEASIBLE, Target.REPLICAS, f"{bound.removesuffix('_critical')}_seconds", p95, objective)
        for bound, (p95, objective) in situation.infeasible.items()
    )


def admission_reasons(situation: Situation, batch: BatchMove, cause: Cause | None) -> tuple[Reason, ...]:
    """Why admission is another than before."""
    before = situation.memory.targets.admission if situation.memory.targets else Admission.OPEN
    if batch.admission is before:
        return ()
    if batch.admission is Admission.OPEN:
        return (Reason(Code.RECOVERY, Target.ADMISSION),)
    if Admission.SHED in (batch.admission, before):
        code = Code.QUEUE_HOPELESS if batch.admission is Admission.SHED else Code.RECOVERY
        wait, bound = expected_wait_seconds(situation), critical_wait_seconds(situation)
        return (Reason(code, Target.ADMISSION, "expected_wait_seconds", wait, bound),)
    if situation.pressure is not None:
        return (Reason(Code.MEMORY_PRESSURE, Target.ADMISSION, *situation.pressure),)
    return (Reason(Code.LATENCY_WARNING, Target.ADMISSION, cause),)


def budget_reasons(situation: Situation, batch: BatchMove) -> tuple[Reason, ...]:
    """Why a token budget is another that no law has moved: the policy declares another."""
    before = situation.memory.targets
    if before is None or before.token_budget == batch.token_budget:
        return ()
    if any(reason.target is Target.TOKEN_BUDGET for reason in batch.reasons):
        return ()
    declared = situation.policy.batch.token_budget
    return (Reason(Code.BATCH_START, Target.TOKEN_BUDGET, None, None if declared is None else float(declared)),)


def spending_reasons(situation: Situation, targets: Targets) -> tuple[Reason, ...]:
    """What a person must be told of the budget of GPU-hours: it is spent, or the floor stands although it is."""
    budget = situation.budget
    if budget is None:
        return ()
    said = ("spent_gpu_hours", budget.spent, budget.gpu_hours)
    if budget.floor_wins and budget.ceiling is not None and targets.replicas == situation.floor:
        return (Reason(Code.BUDGET_FLOOR, Target.REPLICAS, *said),)
    if budget.over and budget.ceiling is None:
        return (Reason(Code.BUDGET_SPENT, Target.REPLICAS, *said),)
    return ()


def say_doubt(
    situation: Situation,
    available: bool,
    doubt_seconds: float,
    reasons: tuple[Reason, ...],
    suppressed: tuple[Suppressed, ...],
) -> tuple[tuple[Reason, ...], tuple[Suppressed, ...]]:
    """Reasons and what was held back, with the signal whose loss holds everything."""
    name, hold = situation.lost[0], situation.policy.hold_seconds
    if not available and situation.memory.targets is None:
        return (*reasons, Reason(Code.NEVER_READ, Target.REPLICAS, name)), suppressed
    if not available:
        return (*reasons, Reason(Code.SIGNAL_LOST_TOO_LONG, Target.REPLICAS, name, doubt_seconds, hold)), suppressed
    return (*reasons, Reason(Code.SIGNAL_LOST, Target.REPLICAS, name, doubt_seconds, hold)), suppressed
