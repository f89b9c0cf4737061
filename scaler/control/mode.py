"""Who rules the targets: the laws (``active``), what is there already (``advisory``), what stood last (``paused``), or
an operator's override until a time.

The laws are asked in every mode, so that the state is judged, the idle proof goes on, and what they would do can be
told (``Decision.advised``). What they decide and nobody does must leave no trace in what they go on from:

* ``advisory``: the engine keeps its own batch and the cluster its replicas, so each tick's advice on batch and activity
  is the first step from there; only the replica count goes on from the last advice, or its pace would never show.
  KEDA is told the count that is asked for now, with the activity that goes with it: the HPA then wants what it has. Not
  known, it is told UNAVAILABLE, which keeps the count too. (Beside another trigger of the same ScaledObject even that
  has an effect: the HPA takes the highest, so the others cannot lower the count.) Becoming active is taking over a
  running workload, as at first sight;
* ``paused``: whatever is measured, the last targets stand; where there are none yet, what is there, as in advisory;
* an override rules what it names, in every mode, within the ceiling and the range of the batch. When it ends, the laws
  go on from the replicas there are and from the batch of before it.
"""

from __future__ import annotations

from dataclasses import replace

from scaler.control.companions import workers_of
from scaler.control.lasting import lasted, older
from scaler.control.model import (
    Admission,
    Code,
    Decision,
    Memory,
    Mode,
    Now,
    Override,
    Reason,
    Rung,
    Suppressed,
    Target,
    Targets,
)
from scaler.control.oscillation import unswung
from scaler.control.situation import first_batch
from scaler.policy.model import Policy
from scaler.signals.model import Known, Signals, Stale
from scaler.value import frozen

_MOVED = (Target.REPLICAS, Target.ACTIVE, Target.BATCH, Target.TOKEN_BUDGET, Target.ADMISSION, Target.RUNG)
_CODES = {Mode.ADVISORY: Code.ADVISORY, Mode.PAUSED: Code.PAUSED, Mode.OVERRIDE: Code.OVERRIDE}
#: Codes that say KEDA is told UNAVAILABLE, which is not so where the laws are not asked for the answer.
_UNAVAILABLE = (Code.SIGNAL_LOST_TOO_LONG, Code.NEVER_READ)


@frozen
class Ruling:
    """Who rules in this tick: ``mode`` (an override that is still on included), and what the laws go on from."""

    mode: Mode
    override: Override | None
    ended: bool
    start: Memory


def ruling(policy: Policy, memory: Memory, signals: Signals, now: Now) -> Ruling:
    """Who rules now, from the policy's mode and the override remembered."""
    override = memory.override
    if override is not None and override.until <= now.utc:
        override = None
    ended = override is None and memory.mode is Mode.OVERRIDE
    mode = Mode.OVERRIDE if override else Mode(policy.mode)
    return Ruling(mode, override, ended, _start(Mode(policy.mode), memory, signals, policy))


def laws_alone(policy: Policy, memory: Memory) -> bool:
    """Whether nobody but the laws rules, nor did in the last tick."""
    return memory.override is None and memory.mode is Mode.ACTIVE and policy.mode == "active"


def batch_is_ours(policy: Policy, memory: Memory, now: Now) -> bool:
    """Whether the laws rule the batch: protection does not touch what an operator holds."""
    override = memory.override
    overridden = override is not None and override.batch is not None and override.until > now.utc
    return policy.mode == "active" and not overridden


def rule(policy: Policy, memory: Memory, signals: Signals, who: Ruling, laws: Decision) -> Decision:
    """What the world is told, where the laws (which decided ``laws`` from ``who.start``) do not rule alone."""
    stands, available = _stands(policy, memory, signals, who, laws)
    targets = stands if who.override is None else _overridden(policy, stands, who.override, laws.ceiling)
    available = available or (who.override is not None and who.override.replicas is not None)
    ruled = who.mode is not Mode.ACTIVE
    decision = replace(
        laws, targets=targets, available=available, mode=who.mode, advised=laws.targets if ruled else None
    )
    reasons = _mode_reasons(decision, who) if ruled else ()
    explained = {reason.target for reason in reasons} | {
        reason.target
        for reason in laws.reasons
        if _value(targets, reason.target) == _value(laws.targets, reason.target)
    }
    return replace(
        decision,
        reasons=(*reasons, *_still_true(laws, available), *_unexplained(memory, targets, explained, who)),
        suppressed=(*laws.suppressed, *(_held_back(decision, who) if ruled else ())),
        next_memory=_remembered(policy, memory, who, laws, stands, targets, available),
    )


def _start(mode: Mode, memory: Memory, signals: Signals, policy: Policy) -> Memory:
    """What the laws go on from: as if nothing had been decided that was not done."""
    published = memory.targets
    if published is None:
        return memory
    aside = memory.set_aside if memory.mode is Mode.OVERRIDE else None
    if mode is Mode.ADVISORY:
        asked = _asked(signals)
        there = published.replicas if asked is None else asked
        advised = memory.advised_replicas or there
        batch = first_batch(policy, signals)
        return replace(
            memory, targets=Targets(advised if there > 0 else 0, there > 0, batch, policy.batch.token_budget)
        )
    if mode is Mode.PAUSED:
        return replace(memory, targets=aside or published)
    if memory.advised_replicas is not None:
        return replace(memory, targets=None, needs=(), batch_before_protection=None)
    return memory if aside is None else replace(memory, targets=replace(published, batch=aside.batch))


def _stands(policy: Policy, memory: Memory, signals: Signals, who: Ruling, laws: Decision) -> tuple[Targets, bool]:
    """(targets, whether KEDA gets a number), but for an override."""
    if policy.mode == "active":
        return laws.targets, laws.available
    if policy.mode == "paused" and who.start.targets is not None:
        return who.start.targets, True
    asked = _asked(signals)
    there = asked if asked is not None else memory.targets.replicas if memory.targets else laws.targets.replicas
    return Targets(there, there > 0, None, None, Admission.OPEN), asked is not None


def _overridden(policy: Policy, targets: Targets, override: Override, ceiling: int | None) -> Targets:
    if override.replicas is not None:
        replicas = override.replicas if ceiling is None else min(override.replicas, ceiling)
        rung = Rung.AWAKE if replicas > 0 else targets.rung  # who asks for replicas asks for those that serve
        targets = replace(targets, replicas=replicas, active=replicas > 0, rung=rung)
    if override.batch is not None:
        batch = max(policy.batch.min, min(override.batch, policy.batch.max or override.batch))
        targets = replace(targets, batch=batch, workers=workers_of(policy, batch))
    return targets


def _remembered(
    policy: Policy, memory: Memory, who: Ruling, laws: Decision, stands: Targets, targets: Targets, available: bool
) -> Memory:
    """The next memory: what was measured as the laws have it, and of what they decided only what is done."""
    after, before, elapsed = laws.next_memory, who.start, 0.0
    if after.tick_mono is not None and memory.tick_mono is not None:
        elapsed = after.tick_mono - memory.tick_mono
    aside = None if who.override is None else stands if policy.mode == "advisory" else before.targets or stands
    kept = replace(
        after,
        targets=targets if available or memory.targets is not None else None,
        mode=who.mode,
        override=who.override,
        override_seconds=lasted(memory.override_seconds, who.override is not None, elapsed),
        admission_seconds=lasted(memory.admission_seconds, targets.admission is not Admission.OPEN, elapsed),
        set_aside=aside,
        advised_replicas=laws.targets.replicas if policy.mode == "advisory" else None,
    )
    if who.mode is not Mode.ACTIVE:
        kept = unswung(kept, memory)
    if (targets.batch, targets.token_budget) != (laws.targets.batch, laws.targets.token_budget):
        kept = replace(
            kept,
            since_batch_change_seconds=older(memory.since_batch_change_seconds, elapsed),
            since_protection_seconds=older(memory.since_protection_seconds, elapsed),
            batch_before_protection=before.batch_before_protection,
            batch_was_engines_own=before.batch_was_engines_own,
            relieved=memory.relieved or after.relieved,
            shrunk_seconds=lasted(memory.shrunk_seconds, before.batch_before_protection is not None, elapsed),
        )
    if targets.rung is not laws.targets.rung:
        kept = replace(kept, asleep_seconds=None, waking_seconds=None)
    if policy.mode != "advisory" and targets.replicas != laws.targets.replicas:
        kept = replace(kept, since_replicas_down_seconds=older(memory.since_replicas_down_seconds, elapsed))
    if targets.active is not laws.targets.active:
        kept = replace(
            kept,
            loading_seconds=0.0 if targets.active and not laws.ready else None,
            failed_loads=memory.failed_loads,
            since_failed_load_seconds=older(memory.since_failed_load_seconds, elapsed),
        )
    return kept


def _asked(signals: Signals) -> int | None:
    """The replicas the target is asked to have, known or held; None where nobody tells."""
    asked = signals.asked_replicas
    return int(asked.value) if isinstance(asked, Known | Stale) else None


def _mode_reasons(decision: Decision, who: Ruling) -> tuple[Reason, ...]:
    """Who rules, for each target where that makes a difference or where it is what is told."""
    override = who.override
    if override is not None:
        named = ((Target.REPLICAS, override.replicas), (Target.BATCH, override.batch))
        until = override.until.timestamp()
        return tuple(Reason(Code.OVERRIDE, target, override.by, until) for target, value in named if value is not None)
    if not decision.available:
        return (Reason(Code.ASKED_UNKNOWN, Target.REPLICAS, "asked_replicas"),)
    targets = decision.targets
    told = (Target.REPLICAS, *(target for target in _MOVED if _value(targets, target) != _advice(decision, target)))
    return tuple(Reason(_CODES[who.mode], target) for target in dict.fromkeys(told))


def _unexplained(memory: Memory, targets: Targets, explained: set[Target], who: Ruling) -> tuple[Reason, ...]:
    """A reason for each target that changed because somebody else rules now."""
    if memory.targets is None:
        return ()
    code = Code.OVERRIDE_ENDED if who.ended else _CODES.get(who.mode, Code.RESUMED)
    return tuple(
        Reason(code, target)
        for target in _MOVED
        if target not in explained and _value(memory.targets, target) != _value(targets, target)
    )


def _still_true(laws: Decision, available: bool) -> tuple[Reason, ...]:
    if not available:
        return laws.reasons
    return tuple(
        replace(reason, code=Code.SIGNAL_LOST) if reason.code in _UNAVAILABLE else reason for reason in laws.reasons
    )


def _held_back(decision: Decision, who: Ruling) -> tuple[Suppressed, ...]:
    """What the laws would have told otherwise."""
    held = []
    for target in (Target.REPLICAS, Target.BATCH, Target.TOKEN_BUDGET):
        wanted, kept = _advice(decision, target), _value(decision.targets, target)
        if wanted is not None and wanted != kept:
            held.append(Suppressed(_CODES[who.mode], target, float(wanted), None if kept is None else float(kept)))
    return tuple(held)


def _advice(decision: Decision, target: Target) -> float | None:
    return None if decision.advised is None else _value(decision.advised, target)


def _value(targets: Targets, target: Target) -> float | None:
    value: float | None = getattr(targets, target)
    return value
