"""Oscillation: a target that goes to and fro is answered by a wider dead band, and that by its own decay.

More than :data:`MOST_TURNS` changes of direction of one target within :data:`WINDOW_SECONDS` widen its dead band by
:data:`WIDEN`, at most to :data:`WIDEST` times its width; each :data:`WINDOW_SECONDS` without a turn narrow it one step
again. What a wider band holds back is only ever an ordinary move, never protection, a jump, or more replicas:

* replicas: a step down of less than the band (a tenth of the replicas, times the widening; one replica at least);
* batch and token budget: growth, which needs as much more room in the KV cache below the emergency mark, and a cooldown
  as much longer; the strategies that follow a queue or a latency widen their own dead zone.

A change from or to zero replicas is no turn: that is the idle proof's and the wake's.
"""

from __future__ import annotations

import math
from dataclasses import replace

from scaler.control.model import Code, Memory, Reason, Suppressed, Target, Targets
from scaler.control.situation import Situation
from scaler.control.swing import Swing

WINDOW_SECONDS = 600.0
MOST_TURNS = 3
WIDEN = 1.5
WIDEST = WIDEN**4
#: The dead band of the replica count, as a share of it, once there is a reason to have one.
BAND_SHARE = 0.1
#: KV use above which growth never has to wait for a wider band: half of the cache empty is room.
LEAST_GROWTH_RATIO = 0.5


def swung(swing: Swing, before: int | None, after: int | None, elapsed_seconds: float) -> Swing:
    """The swing of one target after a tick of ``elapsed_seconds`` that took it from ``before`` to ``after``."""
    change = (after > before) - (after < before) if before and after else 0
    if not change and not swing.turns and swing.widening == 1.0:
        return swing
    turns = tuple(age + elapsed_seconds for age in swing.turns if age + elapsed_seconds < WINDOW_SECONDS)
    calm, widening = swing.calm_seconds + elapsed_seconds, swing.widening
    if change and swing.direction and change != swing.direction:
        turns, calm = (*turns, 0.0), 0.0
    if len(turns) > MOST_TURNS:
        # Counted anew: the wider band is given the time to show what it does.
        turns, widening = (), min(widening * WIDEN, WIDEST)
    elif calm >= WINDOW_SECONDS and widening > 1.0:
        calm, widening = 0.0, max(1.0, widening / WIDEN)
    return Swing(change or swing.direction, turns, widening, calm)


def swings(memory: Memory, targets: Targets, elapsed_seconds: float) -> tuple[Swing, Swing, Swing]:
    """The swings of replicas, batch and token budget after a tick that decided ``targets``."""
    before = memory.targets
    if before is None:
        return memory.replicas_swing, memory.batch_swing, memory.token_budget_swing
    return (
        swung(memory.replicas_swing, before.replicas, targets.replicas, elapsed_seconds),
        swung(memory.batch_swing, before.batch, targets.batch, elapsed_seconds),
        swung(memory.token_budget_swing, before.token_budget, targets.token_budget, elapsed_seconds),
    )


def widened(memory: Memory, after: tuple[Swing, Swing, Swing]) -> tuple[Reason, ...]:
    """A reason for each target whose dead band has just been widened."""
    before = (memory.replicas_swing, memory.batch_swing, memory.token_budget_swing)
    if after == before:
        return ()
    targets = (Target.REPLICAS, Target.BATCH, Target.TOKEN_BUDGET)
    return tuple(
        Reason(Code.OSCILLATION, target, "dead_band_widening", now.widening, 1.0)
        for target, was, now in zip(targets, before, after, strict=True)
        if now.widening > was.widening
    )


def steady_replicas(situation: Situation, wanted: int) -> tuple[int, tuple[Suppressed, ...]]:
    """The replicas wanted, or those there are where the way down is within a widened band."""
    current, widening = situation.replicas, situation.memory.replicas_swing.widening
    if widening == 1.0 or wanted >= current or situation.memory.targets is None:
        return wanted, ()
    above = situation.ceiling is not None and current > situation.ceiling
    if above or situation.scale_in_seconds is not None:
        return wanted, ()
    band = max(1, math.floor(BAND_SHARE * widening * current))
    if current - wanted > band:
        return wanted, ()
    return current, (held(situation.memory.replicas_swing, Target.REPLICAS, wanted, current),)


def held(swing: Swing, target: Target, wanted: float | None, kept: float | None) -> Suppressed:
    """What a widened band holds back; it is narrowed again when the calm has lasted long enough."""
    left = max(0.0, WINDOW_SECONDS - swing.calm_seconds)
    return Suppressed(Code.OSCILLATION, target, wanted, kept, "dead_band_widening", swing.widening, 1.0, left)


def kv_growth_ratio(situation: Situation) -> float:
    """KV use from which on the batch does not grow: as far below the emergency as the band is wide."""
    memory, widening = situation.policy.memory, situation.memory.batch_swing.widening
    if widening == 1.0:
        return memory.kv_growth_ratio
    widest = memory.kv_emergency_ratio - widening * (memory.kv_emergency_ratio - memory.kv_growth_ratio)
    return min(memory.kv_growth_ratio, max(widest, LEAST_GROWTH_RATIO))


def unswung(memory: Memory, start: Memory) -> Memory:
    """``memory`` with the swings of ``start``: what was decided and not done is no turn."""
    return replace(
        memory,
        replicas_swing=start.replicas_swing,
        batch_swing=start.batch_swing,
        token_budget_swing=start.token_budget_swing,
    )
