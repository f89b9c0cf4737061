"""The memory guard: the one law that acts at once, on memory signals alone, and only ever shrinks or holds.

On pressure (KV use at the emergency mark, a preemption, too little free device memory) the batch shrinks, starting from
what really runs: a part of a limit that is not in use changes nothing. How far, the KV cache tells: to what by its use
now would stay below the growth mark, and at least a tenth less. Device memory does not tell it, so there, and as the
most anywhere, it is ``batch.down_factor``, half. (Lab, ``adaptive``, five seeds: with the half for the KV cache too,
replicas ran half empty beside a queue until the batch had grown again; ``ramp-llm-d`` kept 98.5 % instead of 99.7,
``bursts-8b`` 97.9 instead of 98.8, ``servegen-tenant-52`` 95.5 instead of 95.8 for 2 % more hours, and nothing more.)

New prefills are held while memory is short: preemptions are remembered for 15 s, and a real vLLM to which nobody was
admitted for so long had run empty after two, so that of them alone, with room again, comes a smaller batch and no hold.
The next cut waits ``settle_seconds``, because the signal needs that long to show the effect of the last one; and once
there was one, KV use that merely hovers about the mark is no new emergency: until it has been below the growth mark,
only pressure that lasts ``settle_seconds`` without a break shrinks further (a preemption is a fact, and does at once).
"""

from __future__ import annotations

import math
from dataclasses import replace

from scaler.control.batch import BatchMove, busiest_running, held_unapplied, not_applied, settling_seconds, token_budget
from scaler.control.model import Admission, Code, Reason, Suppressed, Target
from scaler.control.oscillation import kv_growth_ratio
from scaler.control.situation import Situation
from scaler.signals.model import known_value

#: Of what runs no more is kept: that preemptions are past and there is room says that it was too much for a moment.
MOST_KEPT_SHARE = 0.9


def protect_memory(situation: Situation) -> BatchMove | None:
    """The guard's move; None when there is no pressure."""
    pressure = situation.pressure
    if pressure is None:
        return None
    signal, value, threshold = pressure
    policy, batch, budget = situation.policy.batch, situation.batch, token_budget(situation)
    admission = Admission.OPEN if _is_over(situation, signal) else Admission.HOLD
    kept = BatchMove(batch, budget, admission)
    in_use = [float(size) for size in (batch, busiest_running(situation)) if size]
    if not in_use:
        return kept
    lowered = math.floor(min(in_use) * _kept_share(situation, signal))
    wanted = max(policy.min, min(lowered, policy.max or lowered))
    if batch is not None and wanted >= batch:
        return kept
    settling = max(settling_seconds(situation), 0.0 if signal == "preemptions_recent" else _hovering_seconds(situation))
    if settling > 0:
        held = Suppressed(
            Code.SETTLING, Target.BATCH, wanted, batch, signal, value, threshold, remaining_seconds=settling
        )
        return replace(kept, suppressed=(held,))
    if not_applied(situation):
        return replace(kept, suppressed=(held_unapplied(situation, wanted),))
    reason = Reason(Code.MEMORY_PRESSURE, Target.BATCH, signal, value, threshold)
    return BatchMove(wanted, budget, admission, protects=True, reasons=(reason,))


def _kept_share(situation: Situation, signal: str) -> float:
    """What share of what runs may go on running."""
    half, kv = situation.policy.batch.down_factor, known_value(situation.signals.kv_use_ratio)
    if signal not in ("kv_use_ratio", "preemptions_recent") or kv is None:
        return half
    mark = kv_growth_ratio(situation)
    return max(half, min(mark / max(kv, mark), MOST_KEPT_SHARE))


def before_protection(situation: Situation, move: BatchMove) -> tuple[int | None, bool]:
    """(the batch to go back to after ``move``, whether that was the engine's own setting); (None, False): there is
    nothing to go back to.
    """
    before, engines_own = situation.memory.batch_before_protection, situation.memory.batch_was_engines_own
    if move.protects and not move.own_way_back and move.batch != situation.batch and before is None:
        if situation.batch is not None:
            return situation.batch, False
        return max(situation.policy.batch.min, math.ceil(busiest_running(situation) or 1)), True
    if move.batch is None or (before is not None and move.batch >= before and not engines_own):
        return None, False
    return before, engines_own


def pressed_seconds(situation: Situation) -> float | None:
    """For how long memory has been under pressure without a break; None: it is not."""
    if situation.pressure is None:
        return None
    before = situation.memory.pressure_seconds
    return 0.0 if before is None else before + situation.elapsed_seconds


def relieved(situation: Situation, move: BatchMove) -> bool:
    """Whether KV use has been below the growth mark since the last protective shrink, ``move`` being this tick's."""
    pressure = situation.pressure
    if pressure is not None:
        return _is_over(situation, pressure[0]) or (situation.memory.relieved and not move.protects)
    kv = known_value(situation.signals.kv_use_ratio)
    return situation.memory.relieved or kv is None or kv < situation.policy.memory.kv_growth_ratio


def _is_over(situation: Situation, signal: str) -> bool:
    """Whether the pressure is only remembered: preemptions, and memory is known to have room now."""
    memory, signals = situation.policy.memory, situation.signals
    kv, free = known_value(signals.kv_use_ratio), known_value(signals.gpu_memory_free_ratio)
    has_room = kv is not None and kv < memory.kv_growth_ratio
    return signal == "preemptions_recent" and has_room and (free is None or free >= memory.gpu_free_emergency_ratio)


def _hovering_seconds(situation: Situation) -> float:
    """How much longer pressure must last to be believed, where relief has not been seen since the last shrink."""
    if situation.memory.relieved:
        return 0.0
    return max(0.0, situation.policy.batch.settle_seconds - (pressed_seconds(situation) or 0.0))
