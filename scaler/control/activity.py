"""Whether the workload is wanted at all: the idle proof, waking from zero, and the time a woken replica takes to load.

Zero needs proof. The idle timer counts only time at whose end every demand is *known* to be zero and no counter has
moved; a tick that cannot prove it adds nothing (the timer stands still), a tick that sees demand starts it anew. The
last step to zero is taken only on readings made since the previous tick.

A woken workload is loading until a replica is ready: that counts as busy, whatever the caller does meanwhile, for at
most ``load_timeout_seconds``; after a failed load the next wake waits, longer each time.
"""

from __future__ import annotations

from scaler.control.model import Code, Reason, Suppressed, Target
from scaler.control.season import SEASON_SIGNAL
from scaler.control.situation import DOWN_NEEDS, WAKE_SOURCES, Situation, proves_quiet, wants_service
from scaler.signals.model import Known, at_least, is_zero, known_value
from scaler.value import frozen

#: Wait before waking again after a failed load: this, doubled with each failure, up to the longest.
WAKE_BACKOFF_SECONDS, WAKE_BACKOFF_LONGEST_SECONDS = 60.0, 1800.0


@frozen
class ActivityMove:
    """Whether the workload is active after this tick, and the timers behind that."""

    active: bool
    idle_seconds: float
    loading_seconds: float | None
    failed_loads: int
    since_failed_load_seconds: float | None
    reasons: tuple[Reason, ...] = ()
    suppressed: tuple[Suppressed, ...] = ()


def move_activity(situation: Situation) -> ActivityMove:
    """Activity and its timers for this tick."""
    memory, ready = situation.memory, situation.ready
    if situation.ceiling == 0 and situation.budget is not None:
        said = ("spent_gpu_hours", situation.budget.spent, situation.budget.gpu_hours)
        reason = Reason(Code.BUDGET, Target.ACTIVE, *said)
        return ActivityMove(False, 0.0, None, memory.failed_loads, memory.since_failed_load_seconds, (reason,))
    was_active = memory.targets.active if memory.targets else None
    loading = None if memory.loading_seconds is None else memory.loading_seconds + situation.elapsed_seconds
    failed_loads, since_failed = memory.failed_loads, memory.since_failed_load_seconds
    since_failed = None if since_failed is None else since_failed + situation.elapsed_seconds
    if ready:
        # It serves: whatever was loading has loaded, and earlier failures are forgiven.
        loading, failed_loads, since_failed = None, 0, None
    just_loaded = memory.loading_seconds is not None and loading is None
    if loading is not None:
        return _loading(situation, loading, failed_loads, since_failed)
    wanted = wants_service(situation)
    none_asked_for = known_value(situation.signals.asked_replicas) == 0
    if was_active is False or (was_active is None and not ready and (wanted or none_asked_for)):
        return _at_zero(situation, wanted, failed_loads, since_failed)
    return _awake(situation, wanted or just_loaded, failed_loads, since_failed)


def _awake(situation: Situation, wanted: bool, failed_loads: int, since_failed: float | None) -> ActivityMove:
    memory, timeout = situation.memory, situation.policy.idle.timeout_seconds
    suppressed: list[Suppressed] = []
    if wanted:
        idle = 0.0
    elif proves_quiet(situation):
        idle = memory.idle_seconds + situation.elapsed_seconds
    else:
        idle = memory.idle_seconds
        missing = next(
            (name for name in (*DOWN_NEEDS, *WAKE_SOURCES) if not is_zero(getattr(situation.signals, name))), None
        )
        if situation.floor == 0:
            suppressed.append(Suppressed(Code.IDLE_UNPROVEN, Target.ACTIVE, 0.0, 1.0, missing, idle, timeout))
    enough = idle >= timeout
    if enough and situation.floor > 0:
        suppressed.append(
            Suppressed(Code.FLOOR, Target.ACTIVE, 0.0, float(situation.floor), "floor", float(situation.floor))
        )
    elif enough and situation.season_wakes:
        suppressed.append(Suppressed(Code.SEASON, Target.ACTIVE, 0.0, 1.0, SEASON_SIGNAL, situation.usual_rate))
    elif enough and proves_quiet(situation) and is_certain(situation):
        reason = Reason(Code.IDLE_PROVEN, Target.ACTIVE, "idle_seconds", idle, timeout)
        return ActivityMove(False, idle, None, failed_loads, since_failed, (reason,))
    return ActivityMove(True, idle, None, failed_loads, since_failed, (), tuple(suppressed))


def _at_zero(situation: Situation, wanted: bool, failed_loads: int, since_failed: float | None) -> ActivityMove:
    """What wakes it, and what holds a wake back after a failed load."""
    if not (wanted or situation.season_wakes or situation.floor > 0):
        return ActivityMove(False, situation.memory.idle_seconds, None, failed_loads, since_failed)
    backoff = min(WAKE_BACKOFF_SECONDS * 2 ** max(0, failed_loads - 1), WAKE_BACKOFF_LONGEST_SECONDS)
    if since_failed is not None and since_failed < backoff and situation.floor == 0:
        held = Suppressed(
            Code.WAKE_BACKOFF, Target.ACTIVE, 1.0, 0.0, "pending", _demand(situation), None, backoff - since_failed
        )
        return ActivityMove(False, 0.0, None, failed_loads, since_failed, (), (held,))
    loading = None if situation.ready else 0.0
    if wanted:
        code = Code.TRAFFIC if situation.ready else Code.DEMAND_FROM_ZERO
        reason = Reason(code, Target.ACTIVE, "pending", _demand(situation))
    elif situation.floor > 0:
        reason = Reason(Code.FLOOR, Target.ACTIVE)
    else:
        reason = Reason(Code.SEASON, Target.ACTIVE, SEASON_SIGNAL, situation.usual_rate)
    return ActivityMove(True, 0.0, loading, failed_loads, since_failed, (reason,))


def _loading(situation: Situation, loading: float, failed_loads: int, since_failed: float | None) -> ActivityMove:
    timeout = situation.policy.replicas.load_timeout_seconds
    if loading < timeout:
        reason = Reason(Code.LOADING, Target.ACTIVE, "loading_seconds", loading, timeout)
        return ActivityMove(True, 0.0, loading, failed_loads, since_failed, (reason,))
    reason = Reason(Code.LOAD_FAILED, Target.ACTIVE, "loading_seconds", loading, timeout)
    if situation.floor > 0:
        # A floor is a promise: it is asked for again and again, and the failure is said.
        return ActivityMove(True, 0.0, 0.0, failed_loads + 1, 0.0, (reason,))
    return ActivityMove(False, 0.0, None, failed_loads + 1, 0.0, (reason,))


def _demand(situation: Situation) -> float:
    return at_least(situation.signals.pending) or at_least(situation.signals.wake_demand)


def is_certain(situation: Situation) -> bool:
    """Whether the whole window was without arrivals, and every known demand was read after the previous tick: neither
    zero nor sleep is decided on a remembered reading.
    """
    last = situation.memory.tick_mono
    if last is None or not is_zero(situation.signals.arrivals_per_second):
        return False
    names = ("running", "waiting", "ready_replicas", *WAKE_SOURCES)
    signals = [getattr(situation.signals, name) for name in names]
    return all(signal.at > last for signal in signals if isinstance(signal, Known))
