"""The heart: from what is declared, remembered and measured to what should be, with every reason.

``decide`` is the composition of the laws, each in its own file; it adds only the order between them, the hold on doubt,
and the next memory. The server, the simulator, the backtest and ``explain`` all call it. Same inputs, same decision.
"""

from __future__ import annotations

from dataclasses import replace

from scaler.control.activity import ActivityMove, move_activity
from scaler.control.admission import admit
from scaler.control.attribution import attribute
from scaler.control.batch import BatchMove
from scaler.control.companions import companions
from scaler.control.guard import keep
from scaler.control.jump import JumpSeen, jump_reason, recognise_jump
from scaler.control.lasting import lasted, older
from scaler.control.latency_batch import latency_mark
from scaler.control.learning import learn
from scaler.control.memory_guard import before_protection, pressed_seconds, protect_memory, relieved
from scaler.control.mode import laws_alone, rule, ruling
from scaler.control.model import (
    Admission,
    Cause,
    Code,
    Decision,
    LoadState,
    Memory,
    Now,
    Reason,
    Rung,
    Target,
    Targets,
)
from scaler.control.oscillation import steady_replicas, swings, widened
from scaler.control.reasons import (
    admission_reasons,
    budget_reasons,
    cause_reasons,
    infeasible_reasons,
    say_doubt,
    spending_reasons,
)
from scaler.control.replicas import ReplicaMove, move_replicas
from scaler.control.rung import RungMove, move_rung
from scaler.control.situate import season_after, situate
from scaler.control.situation import Situation
from scaler.control.state import classify
from scaler.control.strategies import static_cause, strategy_batch
from scaler.control.swing import Swing
from scaler.policy.model import Policy
from scaler.signals.model import Signals, known_value


def decide(policy: Policy, memory: Memory, signals: Signals, now: Now) -> Decision:
    """Decide replicas, activity and batch of one workload at one instant.

    Pure: no clock, no I/O; ``memory`` is not changed, the decision carries the next one. Never raises for any
    combination of signal statuses: doubt holds, and after ``policy.hold_seconds`` the decision is not ``available``.
    """
    if laws_alone(policy, memory):
        return judge(policy, memory, signals, now)
    who = ruling(policy, memory, signals, now)
    return rule(policy, memory, signals, who, judge(policy, who.start, signals, now))


def judge(policy: Policy, memory: Memory, signals: Signals, now: Now) -> Decision:
    """What the laws decide, whoever rules."""
    situation = situate(policy, memory, signals, now)
    cause = static_cause(situation, attribute(situation))
    state, below_low_seconds = classify(situation, cause)
    doubt_seconds = memory.doubt_seconds + situation.elapsed_seconds if situation.lost else 0.0
    if state is LoadState.STALLED and memory.targets is not None:
        return _held_stalled(situation, state, below_low_seconds)
    jump = recognise_jump(situation)
    activity = move_activity(situation)
    replicas = move_replicas(situation, cause, jump)
    batch = admit(situation, _move_batch(situation, state, cause, jump))
    steady, within_band = steady_replicas(situation, replicas.replicas)
    if within_band:
        since_down = older(memory.since_replicas_down_seconds, situation.elapsed_seconds)
        replicas = replace(replicas, replicas=steady, since_down_seconds=since_down)
    rung = move_rung(situation, activity)
    targets = _targets(situation, activity, replicas, batch, rung)
    swing = swings(memory, targets, situation.elapsed_seconds)
    raised = memory.targets is not None and (
        targets.replicas > memory.targets.replicas or (targets.active and not memory.targets.active)
    )
    woken = memory.targets is None and targets.active and activity.loading_seconds is not None
    answerable = not situation.lost or woken or (memory.targets is not None and doubt_seconds <= policy.hold_seconds)
    available = answerable or raised
    reasons = (
        *activity.reasons,
        *replicas.reasons,
        *batch.reasons,
        *rung.reasons,
        *admission_reasons(situation, batch, cause),
        *budget_reasons(situation, batch),
        *cause_reasons(situation, cause),
        *infeasible_reasons(situation),
        *widened(memory, swing),
        *spending_reasons(situation, targets),
    )
    suppressed = (*activity.suppressed, *replicas.suppressed, *within_band, *batch.suppressed, *rung.suppressed)
    if situation.lost:
        reasons, suppressed = say_doubt(situation, available, doubt_seconds, reasons, suppressed)
    next_memory = _remember(
        situation, state, below_low_seconds, doubt_seconds, activity, replicas, batch, rung, targets, swing
    )
    if not available and memory.targets is None:
        # Nothing was ever known of this workload: there is nothing to hold, so nothing is remembered as asked for.
        next_memory = replace(next_memory, targets=None, needs=(), batch_before_protection=None)
    return Decision(
        targets=targets,
        available=available,
        state=state,
        cause=cause,
        reasons=reasons,
        suppressed=suppressed,
        floor=situation.floor,
        ceiling=situation.ceiling,
        need=replicas.need,
        ready=situation.ready,
        utilisation=situation.utilisation,
        capacity=situation.capacity,
        load_share=situation.loaded.load_share,
        verdicts=situation.verdicts,
        next_memory=next_memory,
        cold_start_seconds=situation.cold_start_seconds,
        season=situation.season,
        budget=situation.budget,
        asleep=situation.asleep,
    )


def _move_batch(situation: Situation, state: LoadState, cause: Cause | None, jump: JumpSeen | None) -> BatchMove:
    """Protection first; then a jump's row, which only raises and asks no cooldown; then the strategy."""
    protection = protect_memory(situation)
    if protection is not None:
        return protection
    if situation.lost and situation.memory.targets is not None:
        return keep(situation)
    move = strategy_batch(situation, state, cause)
    given_back = move.batch is None and situation.batch is not None
    if jump is None or jump.row is None or move.protects or given_back:
        return move
    row_batch = min(jump.row.batch, situation.policy.batch.max or jump.row.batch)
    if move.batch is not None and row_batch <= move.batch:
        return move
    value, threshold = jump_reason(jump, situation)
    reason = Reason(Code.JUMP, Target.BATCH, "arrivals_recent_per_second", value, threshold)
    return BatchMove(max(row_batch, situation.policy.batch.min), move.token_budget, reasons=(reason,))


def _targets(
    situation: Situation, activity: ActivityMove, replicas: ReplicaMove, batch: BatchMove, rung: RungMove
) -> Targets:
    """Join the moves. An active workload has at least one replica, a woken one its activation size, a loading one never
    fewer than it was woken with; an inactive one has none."""
    count = 0
    if activity.active:
        count = max(replicas.replicas, 1)
        woken = situation.memory.targets is None or not situation.memory.targets.active
        if activity.loading_seconds is not None:
            count = max(count, situation.policy.replicas.activation if woken else situation.replicas)
        if situation.ceiling is not None:
            count = min(count, situation.ceiling)
    queue, workers = companions(situation, batch.batch)
    return Targets(count, activity.active, batch.batch, batch.token_budget, batch.admission, queue, workers, rung.rung)


def _held_stalled(situation: Situation, state: LoadState, below_low_seconds: float | None) -> Decision:
    """All replicas have work and make no progress: hold everything, feed the engine nothing, and say so.

    Who is held back makes no progress either, so a hold that has lasted as long as it takes to stall may be what is
    left of the cause: then one tick lets in, and an engine that works shows it.
    """
    memory, elapsed = situation.memory, situation.elapsed_seconds
    assert memory.targets is not None
    held_seconds = older(memory.admission_seconds, elapsed) or 0.0
    trial = situation.pressure is None and held_seconds >= situation.policy.stalled_after_seconds
    admission = Admission.OPEN if trial else Admission.HOLD
    targets = replace(memory.targets, admission=admission, rung=Rung.AWAKE)
    stalled = known_value(situation.signals.stalled_replicas)
    reasons = tuple(
        Reason(
            Code.STALLED_TRIAL if trial and target is Target.ADMISSION else Code.STALLED,
            target,
            "stalled_replicas",
            stalled,
            situation.policy.stalled_after_seconds,
        )
        for target in (Target.REPLICAS, Target.ADMISSION, Target.RUNG)
        if target is not Target.RUNG or memory.targets.rung is not Rung.AWAKE
    )
    next_memory = replace(
        memory,
        since_batch_change_seconds=older(memory.since_batch_change_seconds, elapsed),
        since_protection_seconds=older(memory.since_protection_seconds, elapsed),
        since_replicas_down_seconds=older(memory.since_replicas_down_seconds, elapsed),
        tick_mono=situation.now.mono,
        targets=targets,
        state=state,
        state_seconds=memory.state_seconds + situation.elapsed_seconds if memory.state is state else 0.0,
        below_low_seconds=below_low_seconds,
        doubt_seconds=0.0,
        shrunk_seconds=lasted(memory.shrunk_seconds, memory.batch_before_protection is not None, elapsed),
        admission_seconds=lasted(memory.admission_seconds, not trial, elapsed),
        season=season_after(situation),
        bill=situation.bill,
        asleep_seconds=None,
    )
    return Decision(
        targets=targets,
        available=True,
        state=state,
        cause=None,
        reasons=reasons,
        suppressed=(),
        floor=situation.floor,
        ceiling=situation.ceiling,
        need=None,
        ready=situation.ready,
        utilisation=None,
        capacity=situation.capacity,
        load_share=situation.loaded.load_share,
        verdicts=situation.verdicts,
        next_memory=next_memory,
        cold_start_seconds=situation.cold_start_seconds,
        season=situation.season,
        budget=situation.budget,
    )


def _remember(
    situation: Situation,
    state: LoadState,
    below_low_seconds: float | None,
    doubt_seconds: float,
    activity: ActivityMove,
    replicas: ReplicaMove,
    batch: BatchMove,
    rung: RungMove,
    targets: Targets,
    swing: tuple[Swing, Swing, Swing],
) -> Memory:
    memory, elapsed = situation.memory, situation.elapsed_seconds
    changed = batch.batch != situation.batch or (
        memory.targets is not None and batch.token_budget != memory.targets.token_budget
    )
    before, engines_own = before_protection(situation, batch)
    waiting, running = known_value(situation.signals.waiting), known_value(situation.signals.running)
    return Memory(  # in full: of so many fields ``replace`` took a tenth of a tick
        tick_mono=situation.now.mono,
        targets=targets,
        state=state,
        state_seconds=memory.state_seconds + elapsed if memory.state is state else 0.0,
        below_low_seconds=below_low_seconds,
        idle_seconds=activity.idle_seconds,
        doubt_seconds=doubt_seconds,
        loading_seconds=activity.loading_seconds,
        failed_loads=activity.failed_loads,
        since_failed_load_seconds=activity.since_failed_load_seconds,
        since_batch_change_seconds=0.0 if changed else older(memory.since_batch_change_seconds, elapsed),
        since_protection_seconds=0.0 if batch.protects else older(memory.since_protection_seconds, elapsed),
        batch_before_protection=before,
        batch_was_engines_own=engines_own,
        shrunk_seconds=lasted(memory.shrunk_seconds, before is not None, elapsed),
        admission_seconds=lasted(memory.admission_seconds, targets.admission is not Admission.OPEN, elapsed),
        pressure_seconds=pressed_seconds(situation),
        relieved=relieved(situation, batch),
        latency_mark=latency_mark(situation),
        since_replicas_down_seconds=replicas.since_down_seconds,
        needs=replicas.needs,
        jump_seconds=replicas.jump_seconds,
        jump_replicas=replicas.jump_replicas,
        latency_step_seconds=replicas.latency_step_seconds,
        latency_replicas=replicas.latency_replicas,
        latency_p95_seconds=replicas.latency_p95_seconds,
        waiting=waiting if waiting is not None else memory.waiting,
        saturated_sequences=_saturated(situation, running),
        replicas_swing=swing[0],
        batch_swing=swing[1],
        token_budget_swing=swing[2],
        running_mean=situation.running_mean,
        unevenness=situation.unevenness,
        overload_seconds=situation.overload_seconds,
        scale_in_seconds=situation.scale_in_seconds,
        cold_starts=situation.cold_starts,
        empty=situation.empty,
        learned=learn(situation.declared, memory, situation.signals, elapsed),
        bill=situation.bill,
        season=season_after(situation),
        asleep_seconds=rung.asleep_seconds,
        waking_seconds=rung.waking_seconds,
        woken_seconds=rung.woken_seconds,
        loaded_seconds=rung.loaded_seconds,
        mode=memory.mode,
        override=memory.override,
        override_seconds=memory.override_seconds,
        set_aside=memory.set_aside,
        advised_replicas=memory.advised_replicas,
        card=memory.card,
    )


def _saturated(situation: Situation, running: float | None) -> float | None:
    """What a replica was last seen running while it queued; forgotten upwards as soon as it runs more."""
    seen = known_value(situation.signals.saturated_sequences)
    remembered = situation.memory.saturated_sequences
    if situation.memory.batch_before_protection is not None:
        return remembered  # the cap that shows is the one we set ourselves, for a while
    if seen is not None:
        return seen
    if remembered is None or running is None or not situation.ready:
        return remembered
    return max(remembered, running / situation.ready)
