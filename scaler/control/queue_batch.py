"""The ``queue`` strategy: the batch follows the queue in proportion, ``batch × clamp(waiting / target, 0.5, 2)``.

``waiting`` is per ready replica. Between the dead zone's ends nothing moves; an oscillation parts them further. It
grows only where memory has room and steps are not the trouble, and it never shrinks below the value it started from: a
short queue is no reason to starve an engine. Both ways wait for the cooldown. Static batching goes by it too, where a
batch that waits to fill costs those who are in it.

With the declared defaults: batch 8 and a queue that rises from 5 to 30 make 16 (30 / 10 is clamped at twice), at 12 it
stays, and with the queue gone it is 8 again.
"""

from __future__ import annotations

import math

from scaler.control.batch import BatchMove, cooling_seconds, grow, start, token_budget
from scaler.control.model import Cause, Code, LoadState, Reason, Suppressed, Target
from scaler.control.oscillation import held, kv_growth_ratio
from scaler.control.situation import PLAIN_MAX, Situation
from scaler.signals.model import NotApplicable, known_value

#: Causes for which a larger batch would make things worse.
_NOT_BY_GROWTH = (Cause.MEMORY, Cause.STEP, Cause.PREFILL)


def queue_batch(situation: Situation, state: LoadState, cause: Cause | None) -> BatchMove:
    """The move of the ``queue`` strategy, memory pressure aside."""
    batch, waiting = situation.batch, waiting_per_replica(situation)
    if situation.memory.targets is None or batch is None:
        return start(situation)
    if situation.memory.batch_before_protection is not None:
        return grow(situation, state)  # what protection took is given back first
    kept = BatchMove(batch, token_budget(situation))
    if waiting is None:
        return kept
    low, high = dead_zone(situation)
    target, policy = situation.policy.queue.target, situation.policy.batch
    ratio = min(max(waiting / target, policy.down_factor), policy.up_factor)
    if waiting > high:
        wanted, code = min(math.ceil(batch * ratio), policy.max or PLAIN_MAX), Code.QUEUE_LONG
    elif waiting < low:
        wanted, code = max(math.floor(batch * ratio), min(situation.start_batch or batch, batch)), Code.QUEUE_SHORT
    else:
        return _within(situation, kept, waiting)
    if wanted == batch or (wanted < batch) == (code is Code.QUEUE_LONG):
        return kept
    back = _forbidden(situation, cause, wanted, batch)
    cooling = cooling_seconds(situation)
    if back is None and cooling > 0:
        back = Suppressed(Code.COOLDOWN, Target.BATCH, wanted, batch, "waiting", waiting, target, cooling)
    if back is not None:
        return BatchMove(batch, kept.token_budget, suppressed=(back,))
    return BatchMove(wanted, kept.token_budget, reasons=(Reason(code, Target.BATCH, "waiting", waiting, target),))


def waiting_per_replica(situation: Situation) -> float | None:
    """Requests waiting per ready replica; None where that is not known."""
    waiting = known_value(situation.signals.waiting)
    return None if waiting is None or not situation.ready else waiting / situation.ready


def dead_zone(situation: Situation) -> tuple[float, float]:
    """The queue's dead zone, wider about its target after an oscillation."""
    queue, widening = situation.policy.queue, situation.memory.batch_swing.widening
    return queue.target - widening * (queue.target - queue.low), queue.target + widening * (queue.high - queue.target)


def _within(situation: Situation, kept: BatchMove, waiting: float) -> BatchMove:
    """In the dead zone: nothing moves, and where only the widened one holds, that is said."""
    queue = situation.policy.queue
    if queue.low <= waiting <= queue.high:
        return kept
    return BatchMove(
        kept.batch,
        kept.token_budget,
        suppressed=(held(situation.memory.batch_swing, Target.BATCH, None, float(kept.batch or 0)),),
    )


def _forbidden(situation: Situation, cause: Cause | None, wanted: int, batch: int) -> Suppressed | None:
    if wanted < batch:
        return Suppressed(Code.QUEUEING_KEEPS_BATCH, Target.BATCH, wanted, batch) if cause is Cause.QUEUEING else None
    kv, mark = known_value(situation.signals.kv_use_ratio), kv_growth_ratio(situation)
    if not isinstance(situation.signals.kv_use_ratio, NotApplicable) and (kv is None or kv >= mark):
        return Suppressed(Code.KV_ROOM, Target.BATCH, wanted, batch, "kv_use_ratio", kv, mark)
    if cause in _NOT_BY_GROWTH:
        return Suppressed(Code.SLOW_STEPS, Target.BATCH, wanted, batch)
    return None
