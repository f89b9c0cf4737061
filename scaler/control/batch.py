"""The batch size of the ``adaptive`` strategy, and the moves both strategies share.

With continuous batching the right batch is the *largest* that memory and the TPOT objective allow: a lower one at low
load gains nothing, and a lower one against queueing is a death spiral. So the batch starts at the engine's own cap and
is only ever lowered for a cause a smaller batch cures:

* ``memory``: cut what really runs to what fits, at once, and hold new prefills (:mod:`scaler.control.memory_guard`);
  watch ``settle_seconds`` before the next cut, because the signal that caused it needs that long to show the effect;
* ``step`` (tokens too slow, no queue): replicas are the cure; the batch goes to the objective's bound only where no
  more can be had, at the ceiling. Not while one is loading: a cut that keeps TPOT for those who run makes a queue of
  the others, and their TTFT breaks;
* ``prefill``: the token budget is the knob; where none is declared replicas are the cure, for a batch cut to what runs
  at a quiet moment is far too small a moment later (lab: 256 to 8 in one tick, then a queue).

A published number that nobody runs with says nothing, so none is lowered further while more run than it allows and
engines do not say that they have it: it would end at the least batch there is, without a cause that it cures.

The way back: one step up per cooldown once the pressure is gone, to what it was before protection even if the batch
does not bind, beyond that only where it binds (running >= 0.8 × batch: a limit not in use says nothing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scaler.control.kv_bound import fitting_sequences
from scaler.control.model import Admission, Cause, Code, LoadState, Reason, Suppressed, Target
from scaler.control.oscillation import held as held_by_band
from scaler.control.oscillation import kv_growth_ratio
from scaler.control.situation import Situation
from scaler.signals.model import NotApplicable, known_value
from scaler.value import frozen

#: The batch binds when this share of it is in use.
BINDING_SHARE = 0.8
#: The token budget never falls below running sequences plus this much of the arriving prompt tokens: with less, prompts
#: come in faster than they are read.
PROMPT_MARGIN = 1.25
#: At most this much of the batch is taken in one move towards the TPOT objective.
GENTLE_FACTOR = 0.75


@frozen
class BatchMove:
    """Where the engine's knobs go in this tick, why, and what was held back. ``protects``: no cooldown delays it, no
    jump overrules it; ``own_way_back``: the law that shrank also grows again, so nothing is remembered to go back to.
    """

    batch: int | None
    token_budget: int | None
    admission: Admission = Admission.OPEN
    protects: bool = False
    own_way_back: bool = False
    reasons: tuple[Reason, ...] = ()
    suppressed: tuple[Suppressed, ...] = ()


def adaptive_batch(situation: Situation, state: LoadState, cause: Cause | None) -> BatchMove:
    """The move of the ``adaptive`` strategy, memory pressure aside (:mod:`scaler.control.memory_guard` comes first)."""
    if situation.memory.targets is None:
        return start(situation)
    if cause is None:
        return grow(situation, state)
    # The breach is the window's: where nobody runs any more, a hold makes the next request wait for an empty engine.
    if cause in (Cause.STEP, Cause.PREFILL) and busiest_running(situation) == 0:
        return grow(situation, state)
    match cause:
        case Cause.STEP if situation.exhausted:
            return _towards_objective(situation)
        case Cause.PREFILL if situation.policy.batch.token_budget is not None:
            return _cut_token_budget(situation)
        case Cause.QUEUEING:
            move = grow(situation, state)
            if move.batch == situation.batch and not move.suppressed:
                held = Suppressed(Code.QUEUEING_KEEPS_BATCH, Target.BATCH, None, _float(situation.batch))
                return BatchMove(move.batch, move.token_budget, suppressed=(held,))
            return move
        case _:
            return BatchMove(situation.batch, token_budget(situation))


def start(situation: Situation) -> BatchMove:
    """The first move: publish what there is to start from."""
    first = situation.start_batch
    reasons = () if first is None else (Reason(Code.BATCH_START, Target.BATCH, None, float(first)),)
    return BatchMove(first, token_budget(situation), reasons=reasons)


def grow(situation: Situation, state: LoadState) -> BatchMove:
    """One step up, if the batch was lowered or binds, memory and TPOT have room, and the cooldown is over."""
    batch, before = situation.batch, situation.memory.batch_before_protection
    budget, reasons = _restored_token_budget(situation)
    recovering = before is not None
    if batch is None or not (recovering or state is LoadState.HIGH or binds(situation)):
        return BatchMove(batch, budget, reasons=reasons)
    wanted = _one_step_up(situation, batch, before)
    if wanted is not None and wanted <= batch:
        return BatchMove(batch, budget, reasons=reasons)
    kv, kv_mark = known_value(situation.signals.kv_use_ratio), kv_growth_ratio(situation)
    kv_forbids = not isinstance(situation.signals.kv_use_ratio, NotApplicable) and (kv is None or kv >= kv_mark)
    held: Suppressed | None = None
    if not recovering and not binds(situation):
        running = busiest_running(situation)
        held = Suppressed(Code.NOT_BINDING, Target.BATCH, wanted, batch, "running", running, BINDING_SHARE * batch)
    elif kv_forbids and kv is not None and kv < situation.policy.memory.kv_growth_ratio:
        held = held_by_band(situation.memory.batch_swing, Target.BATCH, wanted, batch)
    elif kv_forbids:
        held = Suppressed(Code.KV_ROOM, Target.BATCH, wanted, batch, "kv_use_ratio", kv, kv_mark)
    elif (cooling := _recovering_seconds(situation, wanted, kv_mark)) > 0:
        held = Suppressed(Code.COOLDOWN, Target.BATCH, wanted, batch, remaining_seconds=cooling)
    if held is not None:
        return BatchMove(batch, budget, reasons=reasons, suppressed=(held,))
    code = Code.RECOVERY if recovering else Code.HIGH_LOAD
    return BatchMove(wanted, budget, reasons=(Reason(code, Target.BATCH, "kv_use_ratio", kv, kv_mark), *reasons))


def _one_step_up(situation: Situation, batch: int, before: int | None) -> int | None:
    """The next size up; None is the engine's own setting, where the batch was lowered from that."""
    policy = situation.policy.batch
    if before is not None and situation.memory.batch_was_engines_own and batch >= before:
        return None
    bound = fitting_sequences(situation.signals)
    # Without a declared cap nothing says how far the engine can follow: then only what was taken is given back.
    most = min(policy.max or before or batch, before or math.inf, math.inf if bound is None else max(bound, policy.min))
    return int(min(math.ceil(batch * policy.up_factor), most))


def binds(situation: Situation) -> bool:
    """Whether the batch is what limits the engine: running >= 0.8 × batch per ready replica."""
    running = busiest_running(situation)
    return running is not None and situation.batch is not None and running >= BINDING_SHARE * situation.batch


def cooling_seconds(situation: Situation) -> float:
    """How much longer an ordinary change of the batch must wait; 0.0 when it may go. After an oscillation, longer."""
    memory = situation.memory
    widening = max(memory.batch_swing.widening, memory.token_budget_swing.widening)
    return _left(memory.since_batch_change_seconds, situation, situation.policy.batch.cooldown_seconds * widening)


def _recovering_seconds(situation: Situation, wanted: int | None, kv_mark: float) -> float:
    """How much longer growth must wait: a cooldown; a shrunk batch that binds only until its shrink has shown its
    effect, where by what runs now the KV cache would have room for ``wanted`` too.
    """
    kv, running = known_value(situation.signals.kv_use_ratio), busiest_running(situation)
    recovering = situation.memory.batch_before_protection is not None
    if (
        not (recovering and wanted and kv is not None and running and binds(situation))
        or kv * wanted / running >= kv_mark
    ):
        return cooling_seconds(situation)
    widening = situation.memory.batch_swing.widening
    return _left(
        situation.memory.since_batch_change_seconds, situation, situation.policy.batch.settle_seconds * widening
    )


def settling_seconds(situation: Situation) -> float:
    """How much longer the last protective shrink is watched before the next one; 0.0 when it may go."""
    return _left(situation.memory.since_protection_seconds, situation, situation.policy.batch.settle_seconds)


def _left(since_seconds: float | None, situation: Situation, period_seconds: float) -> float:
    if since_seconds is None:
        return 0.0
    return max(0.0, period_seconds - since_seconds - situation.elapsed_seconds)


def _towards_objective(situation: Situation) -> BatchMove:
    """Lower the batch towards the size whose TPOT meets its objective: linear in the batch, which overstates the cut
    for an engine with a fixed cost per step, so at most a quarter at once and then look again.

    Admission is held only while more run than the batch allows. A hold beyond that drains the engine for nothing: the
    requests wait outside, and their TTFT breaks (seen on a real engine: every 70 s for 4 s, at a batch that could go
    no lower).
    """
    budget, tpot = token_budget(situation), known_value(situation.signals.tpot_seconds)
    objective, running = situation.policy.objectives.tpot_seconds, busiest_running(situation)
    if tpot is None or objective is None or not running or tpot.p95.low <= 0:
        return BatchMove(situation.batch, budget)
    in_use = min(running, float(situation.batch or running))
    policy = situation.policy.batch
    lowered = math.floor(in_use * max(GENTLE_FACTOR, objective / tpot.p95.low))
    wanted = max(policy.min, min(lowered, policy.max or lowered))
    above = Admission.HOLD if situation.batch is not None and running > situation.batch else Admission.OPEN
    if situation.batch is not None and wanted >= situation.batch:
        return BatchMove(situation.batch, budget, above)
    settling = settling_seconds(situation)
    if settling > 0:
        held = Suppressed(Code.SETTLING, Target.BATCH, wanted, _float(situation.batch), remaining_seconds=settling)
        return BatchMove(situation.batch, budget, above, suppressed=(held,))
    if not_applied(situation):
        return BatchMove(situation.batch, budget, above, suppressed=(held_unapplied(situation, wanted),))
    reason = Reason(Code.LATENCY_WARNING, Target.BATCH, "tpot_seconds", tpot.p95.low, objective)
    admission = Admission.HOLD if running > wanted else Admission.OPEN
    return BatchMove(wanted, budget, admission, protects=True, reasons=(reason,))


def not_applied(situation: Situation) -> bool:
    """Whether the batch last published is not in force: more run than it allows, and not every replica says that it has
    it. (Nor does a smaller one help while they drain: engines let those finish who run.) A static batch tells nothing
    by what runs, as an engine may compute several of them at once.
    """
    batch, running = situation.batch, busiest_running(situation)
    static = situation.policy.batch.batching == "static"
    if static or batch is None or running is None or running <= batch:
        return False
    if not situation.signals.applied:
        least = known_value(situation.signals.applied_batch)
        return least is None or least > batch
    return not _all_say(situation, [each.batch_size for each in situation.signals.applied], batch)


def _all_say(situation: Situation, told: Sequence[int | None], published: int) -> bool:
    return len(told) >= (situation.ready or 1) and all(size is not None and size <= published for size in told)


def held_unapplied(situation: Situation, wanted: int) -> Suppressed:
    """A smaller batch, held back because the last one is not in force."""
    batch, running = _float(situation.batch), busiest_running(situation)
    return Suppressed(Code.NOT_APPLIED, Target.BATCH, wanted, batch, "busiest_running", running, batch)


def _cut_token_budget(situation: Situation) -> BatchMove:
    """Halve the tokens per step, but never below what the arriving prompts need: below it prefill itself diverges."""
    budget, signals = token_budget(situation), situation.signals
    assert budget is not None
    tpot = known_value(signals.tpot_seconds)
    prompts = known_value(signals.prompt_tokens_per_second)
    step_seconds = tpot.mean_seconds if tpot is not None else 0.0
    per_replica = (prompts or 0.0) / max(1, situation.ready or 1)
    least = (busiest_running(situation) or 0.0) + PROMPT_MARGIN * per_replica * step_seconds
    wanted = max(situation.policy.batch.token_budget_min, math.ceil(least), budget // 2)
    if wanted >= budget:
        return BatchMove(situation.batch, budget)
    settling = settling_seconds(situation)
    if settling > 0:
        held = Suppressed(Code.SETTLING, Target.TOKEN_BUDGET, wanted, budget, remaining_seconds=settling)
        return BatchMove(situation.batch, budget, suppressed=(held,))
    cut_before = budget < (situation.policy.batch.token_budget or budget)
    if cut_before and not _all_say(situation, [each.token_budget for each in signals.applied], budget):
        held = Suppressed(Code.NOT_APPLIED, Target.TOKEN_BUDGET, wanted, budget)
        return BatchMove(situation.batch, budget, suppressed=(held,))
    breached_at = None if tpot is None else tpot.p95.low
    reason = Reason(
        Code.PREFILL_SHARE, Target.TOKEN_BUDGET, "tpot_seconds", breached_at, situation.policy.objectives.tpot_seconds
    )
    return BatchMove(situation.batch, wanted, protects=True, reasons=(reason,))


def token_budget(situation: Situation) -> int | None:
    """The token budget as last published, within the declared one; None where it is the engine's own."""
    declared = situation.policy.batch.token_budget
    current = situation.memory.targets.token_budget if situation.memory.targets else None
    return declared if declared is None or current is None else min(current, declared)


def _restored_token_budget(situation: Situation) -> tuple[int | None, tuple[Reason, ...]]:
    """A cut token budget doubled back towards the declared one, a cooldown after the last change."""
    declared, current = situation.policy.batch.token_budget, token_budget(situation)
    if declared is None or current is None or current == declared or cooling_seconds(situation) > 0:
        return current, ()
    restored = min(declared, current * 2)
    return restored, (Reason(Code.RECOVERY, Target.TOKEN_BUDGET, None, float(restored), float(declared)),)


def busiest_running(situation: Situation) -> float | None:
    """Sequences running in the busiest replica; where only their sum is known, in the average one. None: not known.

    Not the average where it can be helped: replicas that have just come up and are still empty would make a batch that
    is full look unused, and a shrink far too deep.
    """
    busiest = known_value(situation.signals.busiest_running)
    if busiest is not None:
        return busiest
    running = known_value(situation.signals.running)
    return None if running is None or not situation.ready else running / situation.ready


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
