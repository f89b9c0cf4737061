"""What the engine, or who sends to it, should do with new requests: ``open``, ``hold`` new prefills, ``shed``.

* ``hold`` comes with pressure (memory, a stalled workload, slow steps at the ceiling while more run than the batch
  allows) and, once memory was the reason, stays until KV use is below the growth mark: requests let in on the way down
  would only be the next emergency.
* ``shed`` comes when a hold has lasted ``admission.shed_after_seconds`` and whoever waits last would wait longer than
  the critical bound: ``(waiting + pending) / rate > critical``, the rate being what finishes, or the capacity where
  that is not known. A request that is refused can go elsewhere; one that is served so late has been refused too, and
  has cost a GPU. It goes back to ``hold`` once the wait is below :data:`BACK_SHARE` of the bound.

It is published; whoever consumes it acts.
"""

from __future__ import annotations

from dataclasses import replace

from scaler.control.batch import BatchMove
from scaler.control.memory_guard import relieved
from scaler.control.model import Admission, Code, Suppressed, Target
from scaler.control.situation import Situation
from scaler.signals.model import at_least, known_value

#: Shedding ends when the expected wait is below this share of the critical bound.
BACK_SHARE = 0.8


def admit(situation: Situation, move: BatchMove) -> BatchMove:
    """``move`` with the admission that goes with it."""
    targets = situation.memory.targets
    before = targets.admission if targets else Admission.OPEN
    if move.admission is Admission.OPEN and before is not Admission.OPEN and not relieved(situation, move):
        kv, mark = known_value(situation.signals.kv_use_ratio), situation.policy.memory.kv_growth_ratio
        held = Suppressed(Code.KV_ROOM, Target.ADMISSION, None, None, "kv_use_ratio", kv, mark)
        move = replace(move, admission=Admission.HOLD, suppressed=(*move.suppressed, held))
    if move.admission is Admission.HOLD and _hopeless(situation, before):
        return replace(move, admission=Admission.SHED)
    return move


def expected_wait_seconds(situation: Situation) -> float | None:
    """How long a request that comes now waits for its turn; None where the queue or the rate is not known."""
    waiting = known_value(situation.signals.waiting)
    rate = known_value(situation.signals.finished_per_second)
    if not rate:
        per_replica = situation.capacity.requests_per_second
        rate = None if per_replica is None else per_replica * (situation.ready or 0)
    if waiting is None or not rate:
        return None
    return (waiting + at_least(situation.signals.pending)) / rate


def critical_wait_seconds(situation: Situation) -> float | None:
    """The longest wait that is any use: the critical bound of the first token, else of the whole request."""
    objectives = situation.policy.objectives
    return objectives.ttft_critical_seconds or objectives.e2e_critical_seconds


def _hopeless(situation: Situation, before: Admission) -> bool:
    after, lasted = situation.policy.admission.shed_after_seconds, situation.memory.admission_seconds
    wait, bound = expected_wait_seconds(situation), critical_wait_seconds(situation)
    if after is None or wait is None or bound is None or before is Admission.OPEN or lasted is None:
        return False
    if before is Admission.SHED:
        return wait > BACK_SHARE * bound
    return lasted + situation.elapsed_seconds >= after and wait > bound
