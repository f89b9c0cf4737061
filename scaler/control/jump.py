"""The jump: a rise so steep that waiting for the ordinary steps would cost minutes of broken promises.

Recognised when arrivals over the last 15 s, or since the last read, are at least ``factor`` × the expected ones *and*
exceed them by max(minimum, 4·√(φ·expected)) requests over the time looked at, φ being the dispersion of their noise
(:mod:`scaler.control.arrivals`), *and* what is certain of them exceeds what ready and pending replicas can take. A
ratio alone gives about ten false jumps an hour at low Poisson rates. Then this very tick goes to the row of the table
for that rate, or where no table is declared to what the flow law makes of the rate that is certain; the cooldown is not
asked. The peak is held ``hold_seconds``.
"""

from __future__ import annotations

from scaler.control.situation import Situation
from scaler.policy.jump import JumpRow
from scaler.signals.model import known_value
from scaler.value import frozen


@frozen
class JumpSeen:
    """A recognised jump: the rate that showed it (req/s), the rate expected, and the table row, if one is reached."""

    rate: float
    expected: float
    row: JumpRow | None


def recognise_jump(situation: Situation) -> JumpSeen | None:
    """The jump in this tick's arrivals, or None."""
    steep, arrivals = situation.arrivals.steep, situation.arrivals
    if not steep:
        return None
    rate = max(reading.rate for reading in steep)
    rows = [row for row in situation.policy.jump.rows if row.rate_at_least <= rate]
    row = max(rows, key=lambda row: row.rate_at_least, default=None)
    certain = max(reading.certain(arrivals.dispersion) for reading in steep)
    return JumpSeen(rate, arrivals.expected, row) if _exceeds_capacity(situation, certain, row) else None


def _exceeds_capacity(situation: Situation, rate: float, row: JumpRow | None) -> bool:
    """A rise the present and pending replicas can take is no jump. A declared row is the operator's word on that."""
    if row is not None:
        return row.replicas > situation.replicas or row.batch > (situation.batch or 0)
    capacity = situation.capacity
    there = situation.replicas if situation.ready is None else situation.ready + situation.coming
    replicas = max(there, 1)
    if capacity.requests_per_second is not None:
        return rate > replicas * capacity.requests_per_second
    in_flight = (known_value(situation.signals.running) or 0.0) + (known_value(situation.signals.waiting) or 0.0)
    return in_flight > replicas * capacity.sequences


def jump_reason(seen: JumpSeen, situation: Situation) -> tuple[float, float]:
    """(value, threshold) to show for a jump: the rate seen and the rate at which it counted as one."""
    return seen.rate, seen.row.rate_at_least if seen.row else situation.policy.jump.factor * seen.expected
