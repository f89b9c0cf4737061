"""The rung between warm and zero: engines that sleep, their processes alive and their models off the GPU.

Warm, asleep, zero: each step down is one proof of idleness, lasting longer. Asleep needs what zero needs (every demand
*known* to be zero, read since the last tick), for ``idle.sleep_after_seconds``. An engine that sleeps goes on answering
for its metrics, and of requests that come meanwhile nothing shows there (seen in vLLM 0.32: three queued, waiting 0),
so its silence is no proof: without a wake source nothing sleeps, and one that is lost wakes.

A wake waits for nothing: any demand, a warm window that opens, more replicas wanted than the least there are. A doubt
about the engines' own signals holds, as everywhere. How long a wake takes is measured, from the decision until no
replica says any longer that it sleeps; and so is a load from zero, to compare the two.
"""

from __future__ import annotations

from scaler.control.activity import ActivityMove, is_certain
from scaler.control.lasting import lasted
from scaler.control.model import Code, Reason, Rung, Suppressed, Target
from scaler.control.season import SEASON_SIGNAL
from scaler.control.situation import WAKE_SOURCES, Situation, proves_quiet, wants_service
from scaler.signals.model import Known, NotApplicable, Unknown, at_least, known_value
from scaler.value import frozen

#: What shows demand, in the order in which it is named.
_DEMANDS = ("pending", "wake_demand", "waiting", "running", "arrivals_last_per_second")


@frozen
class RungMove:
    """The rung after this tick, and the times behind it (as in :class:`~scaler.control.model.Memory`)."""

    rung: Rung
    asleep_seconds: float | None
    waking_seconds: float | None
    woken_seconds: float | None
    loaded_seconds: float | None
    reasons: tuple[Reason, ...] = ()
    suppressed: tuple[Suppressed, ...] = ()


def move_rung(situation: Situation, activity: ActivityMove) -> RungMove:
    """The rung of this tick's replicas. At zero nothing is said to those that end: they keep theirs."""
    memory = situation.memory
    was_active = memory.targets is not None and memory.targets.active
    before = memory.targets.rung if memory.targets else Rung.AWAKE
    if not activity.active:
        return _timed(situation, activity, before, before)
    if before is Rung.ASLEEP and was_active:
        woken_by = _wakes(situation, activity)
        after = Rung.ASLEEP if woken_by is None else Rung.AWAKE
        return _timed(situation, activity, before, after, () if woken_by is None else (woken_by,))
    if before is Rung.ASLEEP:  # from zero: a process that starts is awake
        return _timed(situation, activity, Rung.AWAKE, Rung.AWAKE, (Reason(Code.LOADING, Target.RUNG),))
    timeout = situation.policy.idle.sleep_after_seconds
    if timeout is None or activity.idle_seconds < timeout or activity.loading_seconds is not None:
        return _timed(situation, activity, before, Rung.AWAKE)
    held = _kept_awake(situation)
    if held is not None:
        return _timed(situation, activity, before, Rung.AWAKE, suppressed=(held,))
    if not (proves_quiet(situation) and is_certain(situation)):
        return _timed(situation, activity, before, Rung.AWAKE)
    reason = Reason(Code.IDLE_PROVEN, Target.RUNG, "idle_seconds", activity.idle_seconds, timeout)
    return _timed(situation, activity, before, Rung.ASLEEP, (reason,))


def _wakes(situation: Situation, activity: ActivityMove) -> Reason | None:
    """Why those that sleep are woken now; None: nothing wakes them."""
    signals = situation.signals
    if wants_service(situation) or activity.loading_seconds is not None:
        shown = next((name for name in _DEMANDS if at_least(getattr(signals, name)) > 0), None)
        value = None if shown is None else at_least(getattr(signals, shown))
        return Reason(Code.TRAFFIC, Target.RUNG, shown, value)
    stalled = known_value(signals.stalled_replicas)
    if stalled:  # its work is no demand that counts, and no idleness either
        return Reason(Code.STALLED, Target.RUNG, "stalled_replicas", stalled)
    if situation.policy.idle.sleep_after_seconds is None:
        return Reason(Code.SLEEP_UNDECLARED, Target.RUNG)
    lost = next((name for name in WAKE_SOURCES if isinstance(getattr(signals, name), Unknown)), None)
    if lost is not None:
        return Reason(Code.WAKE_SOURCE_LOST, Target.RUNG, lost)
    held = _kept_awake(situation)
    return None if held is None else Reason(held.code, Target.RUNG, held.signal, held.value)


def _kept_awake(situation: Situation) -> Suppressed | None:
    """What forbids sleep, however idle it is."""
    policy = situation.policy
    if isinstance(situation.signals.asleep_replicas, NotApplicable):
        return Suppressed(Code.CANNOT_SLEEP, Target.RUNG, None, None)
    if not policy.can_wake:
        return Suppressed(Code.NO_WAKE_SOURCE, Target.RUNG, None, None)
    warm = policy.warm.kept_at(situation.now.utc)
    if warm > 0 or situation.floor > policy.replicas.min:
        return Suppressed(Code.FLOOR, Target.RUNG, None, None, "floor", float(max(warm, situation.floor)))
    if situation.season_wakes:
        return Suppressed(Code.SEASON, Target.RUNG, None, None, SEASON_SIGNAL, situation.usual_rate)
    return None


def _timed(
    situation: Situation,
    activity: ActivityMove,
    before: Rung,
    after: Rung,
    reasons: tuple[Reason, ...] = (),
    suppressed: tuple[Suppressed, ...] = (),
) -> RungMove:
    """The move with its times: how long it has been asked to sleep, how long a wake and a load take."""
    memory, elapsed = situation.memory, situation.elapsed_seconds
    asleep = activity.active and after is Rung.ASLEEP
    waking, woken = None, memory.woken_seconds
    more: tuple[Reason, ...] = ()
    if activity.active and after is Rung.AWAKE:
        waking, woken, more = _waking(situation, just_called=before is Rung.ASLEEP)
    loaded = memory.loaded_seconds
    if memory.loading_seconds is not None and activity.loading_seconds is None and situation.ready:
        loaded = memory.loading_seconds + elapsed
    return RungMove(
        after,
        lasted(memory.asleep_seconds, asleep, elapsed),
        waking,
        woken,
        loaded,
        (*reasons, *more),
        suppressed,
    )


def _waking(situation: Situation, *, just_called: bool) -> tuple[float | None, float | None, tuple[Reason, ...]]:
    """(for how long the wake under way has lasted, how long the last whole one took, what is to be said of it)."""
    memory, asleep = situation.memory, situation.signals.asleep_replicas
    if just_called:
        began = 0.0 if situation.asleep else None  # of those that had not fallen asleep nothing is measured
        return began, memory.woken_seconds, ()
    if memory.waking_seconds is None:
        return None, memory.woken_seconds, ()
    seconds = memory.waking_seconds + situation.elapsed_seconds
    if isinstance(asleep, Known) and not situation.asleep:
        return None, seconds if situation.ready else memory.woken_seconds, ()
    limit = situation.policy.replicas.load_timeout_seconds
    code = Code.WAKING if seconds < limit else Code.WAKE_FAILED
    return seconds, memory.woken_seconds, (Reason(code, Target.RUNG, "waking_seconds", seconds, limit),)
