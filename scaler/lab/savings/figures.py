"""The figures: GPU-hours and money of what was asked for, beside always-on at peak size and beside a plain HPA.

*Always on* is the fixed count that would have served the span as it was: the most replicas asked for in it. *A plain
HPA* is the autoscaler's own arithmetic (:mod:`scaler.lab.hpa`) with its default behaviour on running + waiting +
pending requests per replica, aimed at the capacity that was believed of one replica at that minute, between the lowest
floor of the span (one at the least: an HPA cannot go to zero) and the ceiling. It is replayed on the requests in flight
that were recorded; with fewer replicas there would have been more of them, with more fewer. Minutes in which nothing
was recorded count for nobody. Latency is not compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaler.lab.hpa import Hpa, Remembered, sync
from scaler.lab.savings.recorded import STEP_SECONDS, Recorded
from scaler.value import frozen

#: An HPA is synchronised so often.
SYNC_SECONDS = 15.0
#: Without a declared ceiling an HPA needs one all the same: so many times the most replicas that were asked for.
CEILING_FACTOR = 2


@frozen
class Taken:
    """GPU-hours, and what they cost (None: no price was recorded)."""

    gpu_hours: float
    money: float | None


@frozen
class Savings:
    """One workload's figures. ``known_hours`` of ``hours`` were recorded; ``priced_ratio`` of those had a price.

    ``hpa`` is None where no capacity or no demand was recorded; ``hpa_blind_ratio`` is the share of the known hours in
    which no demand was, so that it held what it had.
    """

    workload: str
    hours: float
    known_hours: float
    peak_replicas: int
    floor: int
    gpus_per_replica: float
    currency: str
    priced_ratio: float
    ours: Taken
    always_on: Taken
    hpa: Taken | None
    hpa_blind_ratio: float

    def saved(self, other: Taken) -> float:
        """The share of ``other``'s GPU-hours that was not taken; below 0 it was the cheaper one."""
        return 1.0 - self.ours.gpu_hours / other.gpu_hours if other.gpu_hours else 0.0


def savings_of(recorded: Recorded, hour_price: float | None = None, gpus: float | None = None) -> Savings | None:
    """The figures of one workload; None where no replica count of it was recorded. ``hour_price`` of a GPU and ``gpus``
    of a replica stand in for what was recorded.
    """
    asked = _first(recorded.column("asked_replicas"), recorded.column("desired_replicas"))
    known = [count for count in asked if count is not None]
    if not known:
        return None
    held_gpus = _held(recorded.column("gpus_per_replica"), 1.0) if gpus is None else [gpus] * recorded.minutes
    prices = recorded.column("gpu_hour_price") if hour_price is None else [hour_price] * recorded.minutes
    priced = any(price is not None for price in prices)
    price = _held(prices, 0.0)
    peak = round(max(known))
    floors = [floor for floor in recorded.column("replicas_floor") if floor is not None]
    replayed, blind = _plain_hpa(recorded, asked, peak, max(1, round(min(floors, default=1.0))))

    def taken(counts: Sequence[float | None]) -> Taken:
        hours = [
            0.0 if count is None or there is None else count * each * STEP_SECONDS / 3600.0
            for count, there, each in zip(counts, asked, held_gpus, strict=True)
        ]
        money = sum(hour * cost for hour, cost in zip(hours, price, strict=True))
        return Taken(sum(hours), money if priced else None)

    return Savings(
        workload=recorded.workload,
        hours=recorded.minutes * STEP_SECONDS / 3600.0,
        known_hours=len(known) * STEP_SECONDS / 3600.0,
        peak_replicas=peak,
        floor=round(min(floors, default=0.0)),
        gpus_per_replica=max(held_gpus),
        currency=recorded.currency,
        priced_ratio=sum(cost is not None and there is not None for cost, there in zip(prices, asked, strict=True))
        / len(known),
        ours=taken(asked),
        always_on=taken([float(peak)] * len(asked)),
        hpa=None if replayed is None else taken(replayed),
        hpa_blind_ratio=blind,
    )


def _plain_hpa(
    recorded: Recorded, asked: Sequence[float | None], peak: int, floor: int
) -> tuple[list[float | None] | None, float]:
    """The counts an HPA would have asked for, minute by minute, and the share of minutes it could not see."""
    capacity = recorded.column("capacity_sequences")
    running, waiting, pending = (recorded.column(name) for name in ("running", "waiting", "pending"))
    if not any(capacity) or not any(value is not None for value in running):
        return None, 1.0
    ceilings = [each for each in recorded.column("replicas_ceiling") if each is not None]
    most = max(floor, round(max(ceilings, default=CEILING_FACTOR * max(peak, 1))))
    target, remembered = next(each for each in capacity if each), Remembered()
    count = min(most, max(floor, round(next(each for each in asked if each is not None))))
    counts: list[float | None] = []
    blind = 0
    for minute, there in enumerate(asked):
        target = capacity[minute] or target
        # A workload at zero has nothing running that anybody could count; what it has waits at the gateway.
        seen = 0.0 if there == 0 else running[minute]
        total = None if seen is None else seen + (waiting[minute] or 0.0) + (pending[minute] or 0.0)
        blind += there is not None and total is None
        hpa = Hpa(target=target, min_replicas=floor, max_replicas=most)
        for quarter in range(int(STEP_SECONDS / SYNC_SECONDS)):
            now = minute * STEP_SECONDS + quarter * SYNC_SECONDS
            enacted = sync(hpa, remembered, now, asked=count, total=total)
            count, remembered = enacted.replicas, enacted.remembered
        counts.append(float(count))
    known = sum(each is not None for each in asked)
    return counts, blind / known


def _first(one: Sequence[float | None], other: Sequence[float | None]) -> list[float | None]:
    """The one where it is known, else the other."""
    return [b if a is None else a for a, b in zip(one, other, strict=True)]


def _held(column: Sequence[float | None], otherwise: float) -> list[float]:
    """Each minute's value, or the last one before it; before the first one that."""
    last = next((value for value in column if value is not None), otherwise)
    held = []
    for value in column:
        last = last if value is None else value
        held.append(last)
    return held
