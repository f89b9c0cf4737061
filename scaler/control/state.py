"""The load state: one word for how loaded a workload is, with hysteresis so that the word does not flutter.

Priority ``stalled > critical > unknown > idle > high > low > normal``. Enter and leave marks differ; every state
has a measured way out, and ``Memory.state_seconds`` tells its age.
"""

from __future__ import annotations

from scaler.control.attribution import CRITICALS
from scaler.control.model import Cause, LoadState
from scaler.control.situation import Situation, by_plain_numbers, wants_service
from scaler.signals.model import Unknown, is_zero, known_value

#: Marks of the strategies that judge by request rate, and of static batching, per ready replica.
RATE_HIGH, RATE_LOW = 50.0, 5.0


#: States that last their least time before a calmer one follows, the most pressing first; and what may follow them.
PRESSING = (LoadState.CRITICAL, LoadState.HIGH)
CALM = (LoadState.HIGH, LoadState.NORMAL, LoadState.LOW)

#: Causes of a breach that come from the load: with one of them the state is at least ``high``.
FROM_LOAD = (Cause.MEMORY, Cause.PREFILL, Cause.STEP, Cause.QUEUEING)


def classify(situation: Situation, cause: Cause | None) -> tuple[LoadState, float | None]:
    """(state, seconds for which the load has been below the low mark; None while it is not). ``cause`` is what a
    breached objective is attributed to: a breach that load explains is never called low or normal.
    """
    since = situation.memory.below_low_seconds
    below = None
    if cause not in FROM_LOAD and _is_low(situation):
        below = 0.0 if since is None else since + situation.elapsed_seconds
    return _dwelt(situation, _state(situation, cause, below)), below


def _dwelt(situation: Situation, state: LoadState) -> LoadState:
    """``state``, or the more pressing one before it where that has not lasted its least time yet. What is nobody's
    judgement (idle, stalled, unknown) is not delayed.
    """
    before = situation.memory.state
    if state not in CALM or before not in PRESSING or PRESSING.index(before) >= _pressing(state):
        return state
    lasted = situation.memory.state_seconds + situation.elapsed_seconds
    return before if lasted < situation.policy.load.minimum_dwell_seconds else state


def _pressing(state: LoadState) -> int:
    return PRESSING.index(state) if state in PRESSING else len(PRESSING)


def _state(situation: Situation, cause: Cause | None, below_low_seconds: float | None) -> LoadState:
    memory, signals, load = situation.memory, situation.signals, situation.policy.load
    if all_stalled(situation):
        return LoadState.STALLED
    pressure = situation.pressure
    if situation.breached(*CRITICALS) or (pressure is not None and pressure[0] != "preemptions_recent"):
        return LoadState.CRITICAL
    if situation.lost:
        # A stale reading holds the last judgement; only when nothing is left is the state unknown.
        gone = any(isinstance(getattr(signals, name), Unknown) for name in situation.lost)
        return LoadState.UNKNOWN if gone else memory.state
    if _is_idle(situation):
        return LoadState.IDLE
    if cause in FROM_LOAD or _is_high(situation):
        return LoadState.HIGH
    if below_low_seconds is not None and (memory.state is LoadState.LOW or below_low_seconds >= load.low_dwell_seconds):
        return LoadState.LOW
    return LoadState.NORMAL


def all_stalled(situation: Situation) -> bool:
    """Whether replicas are stalled and none is left that serves."""
    stalled = known_value(situation.signals.stalled_replicas) or 0.0
    return stalled > 0 and situation.ready == 0 and not situation.asleep


def _is_idle(situation: Situation) -> bool:
    signals = situation.signals
    demands = (signals.arrivals_per_second, signals.running, signals.waiting, signals.pending, signals.wake_demand)
    return all(is_zero(demand) for demand in demands) and not wants_service(situation)


def _mark(declared: float | None, plain: float, situation: Situation) -> float | None:
    """The mark on the request rate: the declared one, else that of the strategies that go by it; None: none."""
    return declared or (plain if by_plain_numbers(situation.policy) else None)


def _rate_per_replica(situation: Situation) -> float | None:
    arrivals = known_value(situation.signals.arrivals_per_second)
    return None if arrivals is None or not situation.ready else arrivals / situation.ready


def _is_high(situation: Situation) -> bool:
    signals, load = situation.signals, situation.policy.load
    was_high = situation.memory.state in (LoadState.HIGH, LoadState.CRITICAL)
    high_mark, rate = _mark(load.high_requests_per_second, RATE_HIGH, situation), _rate_per_replica(situation)
    if high_mark is not None and rate is not None and rate >= high_mark * (0.85 if was_high else 1.0):
        return True
    busy, waiting = known_value(signals.gpu_busy_ratio), known_value(signals.waiting)
    if (
        busy is not None
        and busy > load.gpu_busy_high_ratio
        and waiting is not None
        and situation.memory.waiting is not None
        and waiting > situation.memory.waiting
    ):
        return True
    if situation.policy.strategy == "stepwise" and situation.ready:
        return False  # the reference judges by rate and GPU alone
    mark = load.high_leave_utilisation if was_high else load.high_utilisation
    return situation.utilisation is not None and situation.utilisation >= mark


def _is_low(situation: Situation) -> bool:
    signals, load = situation.signals, situation.policy.load
    if not situation.may_lower or not situation.ready:
        return False
    busy, sm_active = known_value(signals.gpu_busy_ratio), known_value(signals.sm_active_ratio)
    # "Busy" counts any kernel; idle SMs under it are room all the same. Either of the two, where known, is evidence.
    gpu_has_room = busy is not None and busy < load.gpu_busy_low_ratio
    sms_have_room = sm_active is not None and sm_active < load.sm_active_low_ratio
    if not (gpu_has_room or sms_have_room or busy is sm_active is None):
        return False
    low_mark, rate = _mark(load.low_requests_per_second, RATE_LOW, situation), _rate_per_replica(situation)
    if low_mark is not None and (rate is None or rate >= low_mark):
        return False
    if situation.policy.strategy == "stepwise":
        return low_mark is not None
    mark = load.low_leave_utilisation if situation.memory.state is LoadState.LOW else load.low_utilisation
    return situation.utilisation is not None and situation.utilisation < mark
