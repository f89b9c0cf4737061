"""How long a replica takes from being asked for to being ready, measured: P50 and P95 of the latest ones.

Every replica asked for is put in a row with its age; whenever more are ready than before, the oldest in the row have
come, and their ages are samples. Fewer asked for takes the newest out again. Replicas that waited for a node
(unschedulable meanwhile) are kept apart: a node that has to be bought takes minutes a warm one does not. The next one
is expected to take what the last ones like it took: new if replicas wait for a node now, else warm. Until there are
:data:`SAMPLES_NEEDED` samples the declared time stands. Asked for is what the cluster says, else what we asked for.

Whatever has not come after twice a cold start does not load, and is no capacity to count on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from scaler.value import frozen

#: Samples needed to be believed, kept at most of each kind, and asks waited for at once.
SAMPLES_NEEDED, SAMPLES_KEPT, ASKS_KEPT = 5, 32, 64
#: Told of them.
QUANTILES = (0.5, 0.95)
#: A replica that has not come after so many cold starts is not loading.
CREDIT_COLD_STARTS = 2.0


@frozen
class Asked:
    """``count`` replicas asked for ``seconds`` ago; ``new_node``: some had no node meanwhile."""

    seconds: float
    count: int
    new_node: bool = False


@frozen
class ColdStarts:
    """What is remembered: replicas asked for and ready at the last tick that knew, the row of those that have not
    come, oldest first, and the latest seconds each took, warm ones and those on new nodes.
    """

    asked: int | None = None
    ready: int | None = None
    row: tuple[Asked, ...] = ()
    warm: tuple[float, ...] = ()
    new_node: tuple[float, ...] = ()


def watched(
    before: ColdStarts, asked: int | None, ready: int | None, *, unschedulable: bool, elapsed_seconds: float
) -> ColdStarts:
    """One tick more. A count that is not known now changes nothing but the ages."""
    if not before.row and asked in (None, before.asked) and ready in (None, before.ready):
        return before
    row = tuple(
        Asked(each.seconds + elapsed_seconds, each.count, each.new_node or unschedulable) for each in before.row
    )
    now = replace(before, row=row)
    if asked is not None:
        now = _asked(now, asked)
    if ready is not None:
        now = _ready(now, ready)
    return now


def quantile(samples: tuple[float, ...], q: float) -> float | None:
    """The nearest-rank quantile; None with too few samples."""
    if len(samples) < SAMPLES_NEEDED:
        return None
    return sorted(samples)[max(0, math.ceil(q * len(samples)) - 1)]


def measured_cold_starts(seen: ColdStarts) -> Iterator[tuple[str, float, float]]:
    """(``warm`` or ``new``: the node, quantile, seconds) of what has been measured often enough."""
    for node, samples in (("warm", seen.warm), ("new", seen.new_node)):
        for q in QUANTILES:
            seconds = quantile(samples, q)
            if seconds is not None:
                yield node, q, seconds


def cold_start_seconds(seen: ColdStarts, declared_seconds: float, *, unschedulable: bool) -> float:
    """P95 of how long the next replica takes."""
    new_node = quantile(seen.new_node, 0.95) if unschedulable else None
    measured = new_node if new_node is not None else quantile(seen.warm, 0.95)
    return declared_seconds if measured is None else measured


def coming(
    seen: ColdStarts,
    *,
    asked: int | None,
    ready: int | None,
    pending: float | None,
    ceiling: int | None,
    cold_start_seconds: float,
) -> int:
    """Replicas that load and count as capacity.

    ``pending`` as the cluster counts them (one without a node is not among them); where it cannot be asked (None),
    those ``asked`` for less those ``ready``: all of them within a declared ``ceiling``, without one at most as many
    again as there are.
    """
    if ready is None:
        return 0
    in_time = sum(each.count for each in seen.row if each.seconds <= CREDIT_COLD_STARTS * cold_start_seconds)
    if pending is None:
        pending = max(0, (asked or 0) - ready)
        if ceiling is None:
            pending = min(pending, max(ready, 1))
    return min(int(pending), in_time)


def overdue_seconds(seen: ColdStarts, cold_start_seconds: float) -> float | None:
    """How long the oldest replica has been waited for, if that is too long for one that loads."""
    oldest = seen.row[0].seconds if seen.row else 0.0
    return oldest if oldest > CREDIT_COLD_STARTS * cold_start_seconds else None


def _asked(now: ColdStarts, asked: int) -> ColdStarts:
    more = 0 if now.asked is None else asked - now.asked
    row = now.row
    if more > 0:
        row = (*row, Asked(0.0, more))[-ASKS_KEPT:]
    while more < 0 and row:
        last = row[-1]
        left = last.count + more
        row = (*row[:-1], replace(last, count=left)) if left > 0 else row[:-1]
        more += last.count
    return replace(now, asked=asked, row=row)


def _ready(now: ColdStarts, ready: int) -> ColdStarts:
    come = 0 if now.ready is None else ready - now.ready
    row, warm, new_node = list(now.row), now.warm, now.new_node
    while come > 0 and row:
        first = row[0]
        number = min(come, first.count)
        samples = (first.seconds,) * number
        if first.new_node:
            new_node = (*new_node, *samples)[-SAMPLES_KEPT:]
        else:
            warm = (*warm, *samples)[-SAMPLES_KEPT:]
        come -= number
        if number == first.count:
            row.pop(0)
        else:
            row[0] = replace(first, count=first.count - number)
    return replace(now, ready=ready, row=tuple(row), warm=warm, new_node=new_node)
