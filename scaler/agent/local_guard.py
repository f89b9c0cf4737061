"""The memory guard beside one engine: the scaler's :func:`~scaler.control.guard.guard` with a limit of its own. Pure.

It works on what the engine beside us says each second, whether or not the scaler can be reached, and it can do two
things to the batch: hold it, and lower it. The limit it sets is never above what is in force, the lower of it and the
scaler's target rules, and it ends by itself: one step up per ``batch.cooldown_seconds`` while memory has room again
(KV use below ``memory.kv_growth_ratio``, or as much of the GPU's memory free), until it is where it began. What is not
known moves it nowhere.
"""

from __future__ import annotations

import math
from dataclasses import field, replace

from scaler.control.batch import grow
from scaler.control.guard import guard
from scaler.control.model import LoadState, Memory, Now, Reason, Targets
from scaler.control.pressure import memory_pressure
from scaler.control.situate import situate
from scaler.policy.model import Policy
from scaler.signals.model import NotApplicable, Signals, known_value
from scaler.value import frozen


@frozen
class LocalGuard:
    """What the guard holds of one engine.

    ``limit``: the most sequences it lets run; None where it limits nothing. ``pressed``: memory is short right now, so
    that nobody should be admitted.
    ``reasons`` say why ``limit`` was moved in the last step, and are empty where it was not.
    """

    limit: int | None = None
    pressed: bool = False
    reasons: tuple[Reason, ...] = ()
    memory: Memory = field(default_factory=Memory)


def watch(held: LocalGuard, policy: Policy, signals: Signals, now: Now, *, in_force: int | None) -> LocalGuard:
    """One look, about once a second. ``in_force``: the batch that rules without the guard, the scaler's target or the
    engine's own setting; None where neither is known.

    The result's ``limit`` is at most the one before unless memory has room; never above where it was set from.
    """
    ruling = lower(in_force, held.limit)
    memory = replace(held.memory, targets=Targets(1, True, ruling))
    move = guard(policy, memory, signals, now)
    # Preemptions are remembered for 15 s: no calm in which to raise the limit, but nobody is held back for them.
    calm, room = memory_pressure(policy, signals) is None, _has_room(policy, signals)
    pressed = not calm and not room
    aged = _aged(memory, now)
    if move.protects and move.batch is not None:
        before = memory.batch_before_protection
        engines_own = in_force is None if before is None else memory.batch_was_engines_own
        running = known_value(signals.busiest_running) or 1.0
        if before is None:
            before = max(policy.batch.min, math.ceil(running)) if in_force is None else in_force
        aged = replace(
            aged,
            since_batch_change_seconds=0.0,
            since_protection_seconds=0.0,
            batch_before_protection=before,
            batch_was_engines_own=engines_own,
        )
        return LocalGuard(move.batch, pressed, move.reasons, aged)
    if not calm or held.limit is None or not room:
        return LocalGuard(held.limit, pressed, (), aged)
    return _relaxed(held.limit, policy, replace(memory, targets=Targets(1, True, held.limit)), aged, signals, now)


def lower(one: int | None, other: int | None) -> int | None:
    """The lower of two batches, where None limits nothing."""
    known = [batch for batch in (one, other) if batch is not None]
    return min(known, default=None)


def _relaxed(limit: int, policy: Policy, memory: Memory, aged: Memory, signals: Signals, now: Now) -> LocalGuard:
    """The limit one step up, if its cooldown is over; gone once it is back where it was set from."""
    situation = situate(policy, memory, signals, now)
    if situation.lost:
        return LocalGuard(limit, False, (), aged)
    move = grow(situation, LoadState.NORMAL)
    if move.batch == limit:
        return LocalGuard(limit, False, (), aged)
    before = memory.batch_before_protection or limit
    over = move.batch is None or (move.batch >= before and not memory.batch_was_engines_own)
    if over:
        aged = replace(aged, batch_before_protection=None, batch_was_engines_own=False)
    return LocalGuard(None if over else move.batch, False, move.reasons, replace(aged, since_batch_change_seconds=0.0))


def _has_room(policy: Policy, signals: Signals) -> bool:
    """Whether it is known that memory has room to grow into: one of its two measures says so, and none says no."""
    growth = policy.memory.kv_growth_ratio
    kv, free = signals.kv_use_ratio, signals.gpu_memory_free_ratio
    known = [known_value(kv) is not None, known_value(free) is not None]
    enough = [
        isinstance(kv, NotApplicable) or (known[0] and (known_value(kv) or 0.0) < growth),
        isinstance(free, NotApplicable) or (known[1] and (known_value(free) or 0.0) >= 1.0 - growth),
    ]
    return any(known) and all(enough)


def _aged(memory: Memory, now: Now) -> Memory:
    """``memory`` after the time since the last look."""
    elapsed = 0.0 if memory.tick_mono is None else max(0.0, now.mono - memory.tick_mono)

    def older(seconds: float | None) -> float | None:
        return None if seconds is None else seconds + elapsed

    return replace(
        memory,
        tick_mono=now.mono,
        since_batch_change_seconds=older(memory.since_batch_change_seconds),
        since_protection_seconds=older(memory.since_protection_seconds),
    )
