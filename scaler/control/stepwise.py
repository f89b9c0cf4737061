"""The ``stepwise`` strategy: the practice literally, as the reference the adaptive one is measured against.

critical: halve at once, whatever the load; a breached warning: two less; high: double; low: halve; the ordinary two
wait for the cooldown. It does not attribute, so it *will* halve a batch against queueing: choose it knowingly.
"""

from __future__ import annotations

import math

from scaler.control.attribution import CRITICALS, WARNINGS
from scaler.control.batch import BatchMove, cooling_seconds, settling_seconds, start
from scaler.control.model import Code, LoadState, Reason, Suppressed, Target
from scaler.control.situation import PLAIN_MAX, Situation
from scaler.signals.model import known_value

#: What a breached warning takes from the batch.
GENTLE_STEP = 2


def stepwise_batch(situation: Situation, state: LoadState) -> BatchMove:
    """The move of the ``stepwise`` strategy."""
    policy = situation.policy.batch
    most = policy.max or PLAIN_MAX
    if situation.memory.targets is None or situation.batch is None:
        return start(situation)
    batch = situation.batch
    protective = True
    if state is LoadState.CRITICAL:
        wanted, reason = math.floor(batch * policy.down_factor), _latency_reason(situation, Code.LATENCY_CRITICAL)
    elif situation.breached(*WARNINGS):
        wanted, reason = batch - GENTLE_STEP, _latency_reason(situation, Code.LATENCY_WARNING)
    else:
        protective = False
        rate = known_value(situation.signals.arrivals_per_second)
        if state is LoadState.HIGH:
            wanted = math.ceil(batch * policy.up_factor)
            reason = Reason(Code.HIGH_LOAD, Target.BATCH, "arrivals_per_second", rate)
        elif state is LoadState.LOW:
            wanted = math.floor(batch * policy.down_factor)
            reason = Reason(Code.LOW_LOAD, Target.BATCH, "arrivals_per_second", rate)
        else:
            return BatchMove(batch, policy.token_budget)
    wanted = min(max(wanted, policy.min), most)
    if wanted == batch:
        return BatchMove(batch, policy.token_budget)
    code, wait = (
        (Code.SETTLING, settling_seconds(situation)) if protective else (Code.COOLDOWN, cooling_seconds(situation))
    )
    if wait > 0:
        held = Suppressed(code, Target.BATCH, wanted, batch, reason.signal, reason.value, reason.threshold, wait)
        return BatchMove(batch, policy.token_budget, suppressed=(held,))
    return BatchMove(wanted, policy.token_budget, protects=protective, reasons=(reason,))


def _latency_reason(situation: Situation, code: Code) -> Reason:
    bounds = CRITICALS if code is Code.LATENCY_CRITICAL else WARNINGS
    for bound in bounds:
        if situation.breached(bound):
            name = bound.removesuffix("_critical")
            latency = known_value(getattr(situation.signals, f"{name}_seconds"))
            objective = getattr(situation.policy.objectives, f"{bound}_seconds")
            return Reason(code, Target.BATCH, f"{name}_seconds", latency.p95.low if latency else None, objective)
    return Reason(code, Target.BATCH)
