"""The ``latency`` strategy: P95 is a hard bound, and the batch goes along its gradient in steps of one or two.

The bound is that of the latency a batch makes: TPOT where that is an objective, else e2e, else TTFT. Once per window,
so from a whole window against the one before and never from one sample:

* P95 within :data:`NEAR_SHARE` of its bound and rising: one less;
* P95 certainly below that, not rising, and the batch filled: one more, two where it is below :data:`FAR_SHARE`.

At the bound, two less at once, then the settling time. None of it shrinks against a queue: latency that is waiting time
only gets longer with a smaller batch.
"""

from __future__ import annotations

from scaler.control.attribution import queues
from scaler.control.batch import (
    BatchMove,
    binds,
    cooling_seconds,
    grow,
    held_unapplied,
    not_applied,
    settling_seconds,
    start,
    token_budget,
)
from scaler.control.model import Cause, Code, LoadState, Reason, Suppressed, Target
from scaler.control.oscillation import kv_growth_ratio
from scaler.control.situation import PLAIN_MAX, Situation, by_plain_numbers
from scaler.signals.model import Latency, NotApplicable, known_value

#: P95 within this share of its bound is near it; below the other it is far from it.
NEAR_SHARE, FAR_SHARE = 0.8, 0.5
#: The mean of a window rises, or falls, when it differs by this share from the window before.
GRADIENT = 0.05
#: Steps: at the bound, and within it.
LARGE_STEP, SMALL_STEP = 2, 1
#: The latencies a batch makes, in the order in which they are looked for.
LATENCIES = ("tpot", "e2e", "ttft")


def latency_batch(situation: Situation, state: LoadState, cause: Cause | None) -> BatchMove:
    """The move of the ``latency`` strategy, memory pressure aside."""
    batch = situation.batch
    if situation.memory.targets is None or batch is None:
        return start(situation)
    bounded = bounded_latency(situation)
    kept = BatchMove(batch, token_budget(situation))
    if bounded is None:
        return grow(situation, state) if situation.memory.batch_before_protection is not None else kept
    name, latency, bound = bounded
    queued = cause is Cause.QUEUEING or queues(situation) is True
    if latency.p95.low >= bound:
        if queued:
            back = Suppressed(Code.QUEUEING_KEEPS_BATCH, Target.BATCH, None, float(batch))
            return BatchMove(batch, kept.token_budget, suppressed=(back,))
        return _down(situation, LARGE_STEP, Reason(Code.LATENCY_WARNING, Target.BATCH, name, latency.p95.low, bound))
    if situation.memory.batch_before_protection is not None:
        return grow(situation, state)
    gradient = _gradient(situation, latency)
    if gradient is None:
        return kept
    if latency.p95.high >= NEAR_SHARE * bound and latency.p95.low > FAR_SHARE * bound:
        rising = gradient > 1 + GRADIENT and not queued
        reason = Reason(Code.LATENCY_RISES, Target.BATCH, name, latency.p95.low, bound)
        return _down(situation, SMALL_STEP, reason) if rising else kept
    if latency.p95.high < NEAR_SHARE * bound and gradient <= 1 + GRADIENT and binds(situation):
        step = LARGE_STEP if latency.p95.high <= FAR_SHARE * bound else SMALL_STEP
        return _up(situation, step, Reason(Code.LATENCY_ROOM, Target.BATCH, name, latency.p95.high, bound))
    return kept


def bounded_latency(situation: Situation) -> tuple[str, Latency, float] | None:
    """(signal, latency, its bound) of the first objective that is judged; None where none has the samples."""
    objectives = situation.policy.objectives
    for name in LATENCIES:
        bound = getattr(objectives, f"{name}_seconds")
        latency = known_value(getattr(situation.signals, f"{name}_seconds"))
        if bound is not None and latency is not None and latency.samples >= objectives.minimum_samples:
            return f"{name}_seconds", latency, bound
    return None


def latency_mark(situation: Situation) -> tuple[float, float] | None:
    """(age in seconds, mean in seconds) of the window that the next gradient is taken against; None: none yet."""
    if not by_plain_numbers(situation.policy):
        return None
    bounded, mark = bounded_latency(situation), situation.memory.latency_mark
    if mark is not None and mark[0] + situation.elapsed_seconds < situation.policy.window_seconds:
        return mark[0] + situation.elapsed_seconds, mark[1]
    return None if bounded is None else (0.0, bounded[1].mean_seconds)


def _gradient(situation: Situation, latency: Latency) -> float | None:
    """The window's mean over that of the window before; None between two windows."""
    mark = situation.memory.latency_mark
    if mark is None or mark[0] + situation.elapsed_seconds < situation.policy.window_seconds or mark[1] <= 0:
        return None
    return latency.mean_seconds / mark[1]


def _down(situation: Situation, step: int, reason: Reason) -> BatchMove:
    batch, budget = situation.batch or 0, token_budget(situation)
    wanted, settling = max(batch - step, situation.policy.batch.min), settling_seconds(situation)
    if wanted >= batch:
        return BatchMove(batch, budget)
    if settling > 0:
        back = Suppressed(
            Code.SETTLING, Target.BATCH, wanted, batch, reason.signal, reason.value, reason.threshold, settling
        )
        return BatchMove(batch, budget, suppressed=(back,))
    if not_applied(situation):
        return BatchMove(batch, budget, suppressed=(held_unapplied(situation, wanted),))
    return BatchMove(wanted, budget, protects=True, own_way_back=True, reasons=(reason,))


def _up(situation: Situation, step: int, reason: Reason) -> BatchMove:
    batch, budget, policy = situation.batch or 0, token_budget(situation), situation.policy.batch
    wanted, cooling = min(batch + step, policy.max or PLAIN_MAX), cooling_seconds(situation)
    kv, mark = known_value(situation.signals.kv_use_ratio), kv_growth_ratio(situation)
    if wanted <= batch:
        return BatchMove(batch, budget)
    back: Suppressed | None = None
    if not isinstance(situation.signals.kv_use_ratio, NotApplicable) and (kv is None or kv >= mark):
        back = Suppressed(Code.KV_ROOM, Target.BATCH, wanted, batch, "kv_use_ratio", kv, mark)
    elif cooling > 0:
        back = Suppressed(Code.COOLDOWN, Target.BATCH, wanted, batch, remaining_seconds=cooling)
    if back is not None:
        return BatchMove(batch, budget, suppressed=(back,))
    return BatchMove(wanted, budget, reasons=(reason,))
