"""What has been spent, and what a budget leaves: GPU-hours and money, counted tick by tick.

Counted are the replicas asked for (as the cluster says; else those last told) times the GPUs of one, over the time
since the tick before; after a restart over the time away, for replicas go on while the scaler is not there.

A budget that caps leaves room above the floor only while

    budget - spent - what the floor takes until the period ends

is more than nothing: so many replicas more that they take a quarter of an hour (``GLIDE_SECONDS``) to use it up. So the
ceiling glides down to the floor instead of falling, and the floor's own hours are never what is short. The hours of a
floor are an integral over the windows that open until then; it is taken anew every quarter of an hour.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from scaler.policy.model import SLOT_SECONDS, Policy
from scaler.value import frozen

#: The room above the floor is never spent sooner than in so many seconds.
GLIDE_SECONDS = 900.0
#: A restart after longer than this is not taken for replicas that went on: somebody will have looked after them.
LONGEST_AWAY_SECONDS = 86_400.0
#: The floor until the end of a period is looked up so many times at the most.
STEPS = 744


@frozen
class Bill:
    """What a workload has taken: ``gpu_hours`` and ``money`` (in the policy's currency; hours without a price add
    nothing) since it is known, ``in_period`` GPU-hours in the budget's ``period``. ``at`` is when it was last counted;
    ``reserved`` what the floor takes until the period ends, looked up in ``slot``.
    """

    at: datetime | None = None
    gpu_hours: float = 0.0
    money: float = 0.0
    period: str = ""
    in_period: float = 0.0
    slot: int = 0
    reserved: float = 0.0


#: Nothing spent yet.
NO_BILL = Bill()


@frozen
class Room:
    """What the budget leaves now. ``ceiling`` None: it caps nothing; ``floor_wins``: it is spent, or would be before
    the period ends, by the floor alone.
    """

    gpu_hours: float
    spent: float
    ceiling: int | None
    floor_wins: bool

    @property
    def over(self) -> bool:
        """Whether it is spent."""
        return self.spent >= self.gpu_hours


def charged(bill: Bill, policy: Policy, replicas: float, utc: datetime, elapsed_seconds: float | None) -> Bill:
    """One tick more, of ``replicas``. ``elapsed_seconds`` None: the first since a start, the time of day tells."""
    if elapsed_seconds is None:
        away = 0.0 if bill.at is None else (utc - bill.at).total_seconds()
        elapsed_seconds = min(max(0.0, away), LONGEST_AWAY_SECONDS)
    hours = replicas * policy.gpu.per_replica * elapsed_seconds / 3600.0
    money = bill.money + hours * (policy.hour_price(utc) or 0.0)
    if policy.budget.gpu_hours is None:
        return Bill(utc, bill.gpu_hours + hours, money)
    period, ends = policy.budget.period(utc)
    slot, reserved = int(utc.timestamp() // SLOT_SECONDS), bill.reserved
    if (slot, period) != (bill.slot, bill.period):
        reserved = floor_hours(policy, utc, ends)
    return Bill(
        at=utc,
        gpu_hours=bill.gpu_hours + hours,
        money=money,
        period=period,
        in_period=hours + (bill.in_period if bill.period == period else 0.0),
        slot=slot,
        reserved=reserved,
    )


def floor_hours(policy: Policy, utc: datetime, ends: datetime) -> float:
    """GPU-hours that the floor alone takes from ``utc`` to ``ends``."""
    seconds = (ends - utc).total_seconds()
    steps = max(1, min(STEPS, round(seconds / SLOT_SECONDS)))
    length = seconds / steps
    floors = (policy.floor(utc + timedelta(seconds=(step + 0.5) * length)) for step in range(steps))
    return sum(floors) * policy.gpu.per_replica * length / 3600.0


def room(bill: Bill, policy: Policy, floor: int) -> Room | None:
    """What the budget leaves for more than ``floor`` replicas; None where there is no budget."""
    budget = policy.budget
    if budget.gpu_hours is None:
        return None
    left = budget.gpu_hours - bill.in_period - bill.reserved
    ceiling = None
    if budget.at_end == "cap":
        ceiling = floor + int(max(0.0, left) / (policy.gpu.per_replica * GLIDE_SECONDS / 3600.0))
    return Room(budget.gpu_hours, bill.in_period, ceiling, floor > 0 and left <= 0.0 and bill.in_period > 0.0)
