"""What the moments come to: GPU-hours beside those that ran, minutes, and where the past is no evidence.

Each moment with data is of one of five kinds, in this order:

========== =====================================================================================================
short      the demand's need, by the flow law at the capacity believed, is above the replicas that would be ready
covered    as many replicas ready as ran, or more: latency would have been no worse than it was
seen       fewer, at no more in flight per replica than the past shows within its objectives
unseen     fewer, at more in flight per replica than that: the past has nothing to say
unjudged   it cannot be told how much was in flight
========== =====================================================================================================

*Shown within the objectives* is a load per replica at which 95 % of the twenty (or, in a long past, more) most loaded
judged moments so far met every declared objective; see :func:`kept_up_to`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from scaler.lab.backtest.play import Moment
from scaler.value import frozen

Verdict = Literal["short", "covered", "seen", "unseen", "unjudged"]
VERDICTS: Final[tuple[Verdict, ...]] = ("short", "covered", "seen", "unseen", "unjudged")
#: Moments that make one group of equal load, at least, and the share of them that must have met the objectives.
GROUP_MOMENTS, KEPT_SHARE = 20, 0.95
#: A need over the replicas by less than this is rounding.
_DUST: Final = 1e-6


@frozen
class Side:
    """Of what ran, or of what the scaler would have had: replica-hours paid, mean and most replicas, changes of the
    number, minutes in which the need was above the ready replicas. (GPU-hours are replica-hours times the GPUs of one.)
    """

    replica_hours: float
    mean_replicas: float
    most_replicas: int
    changes: int
    short_minutes: float


@frozen
class BrokenMinutes:
    """Minutes in which the past broke an objective: in all, critical ones, and with how many replicas ready the scaler
    would have met them, compared with those that ran.
    """

    total: float
    critical: float
    with_more: float
    with_as_many: float
    with_fewer: float


@frozen
class Fixed:
    """The smallest fixed number of replicas that would have been short no longer than the scaler, found with
    hindsight, and its replica-hours.
    """

    replicas: int
    replica_hours: float


@frozen
class Findings:
    """All that is told. Minutes are of the time with data, ``gap_minutes`` of the rest; ``held_minutes`` those in which
    the scaler would have answered UNAVAILABLE. ``saved_replica_hours`` may be negative. ``kept_up_to``: in flight per
    replica, None where the past shows none.
    """

    ran: Side
    ours: Side
    minutes: Mapping[Verdict, float]
    saved_replica_hours: Mapping[Verdict, float]
    data_minutes: float
    gap_minutes: float
    none_ready_minutes: float
    held_minutes: float
    broken: BrokenMinutes
    judged_minutes: float
    kept_up_to: float | None
    most_per_replica: float | None
    ran_only_short_minutes: float
    ours_only_short_minutes: float
    fixed: Fixed | None
    verdicts: Sequence[Verdict | None]

    @property
    def saved_share(self) -> float | None:
        """The share of what ran that would have been saved; None where nothing ran."""
        return 1.0 - self.ours.replica_hours / self.ran.replica_hours if self.ran.replica_hours else None


def find_out(moments: Sequence[Moment], tick_seconds: float, our_changes: int, loading_seconds: float) -> Findings:
    """Judge the moments. ``loading_seconds``: paid while replicas of the past loaded, where ``paid`` has it not."""
    known = [moment for moment in moments if moment.kind != "gap"]
    minute, hour = tick_seconds / 60.0, tick_seconds / 3600.0
    kept, most = kept_up_to(known), _most_per_replica(known)
    verdicts = [None if moment.kind == "gap" else judge(moment, kept) for moment in moments]
    counted = Counter(verdict for verdict in verdicts if verdict)
    short = [moment for moment, verdict in zip(moments, verdicts, strict=True) if verdict == "short"]
    ran_short = [moment for moment in known if _short(moment.ran_need, moment.ran)]
    paid = [moment.paid or 0.0 for moment in known]
    both = sum(1 for moment in short if _short(moment.ran_need, moment.ran))
    count = max(1, len(known))
    ours_hours = sum(moment.asked for moment in known) * hour
    return Findings(
        ran=Side(
            sum(paid) * hour + loading_seconds / 3600.0,
            sum(paid) / count,
            int(max(paid, default=0.0)),
            sum(1 for before, after in pairwise(paid) if before != after),
            len(ran_short) * minute,
        ),
        ours=Side(
            ours_hours,
            sum(moment.asked for moment in known) / count,
            max((moment.asked for moment in known), default=0),
            our_changes,
            len(short) * minute,
        ),
        minutes={verdict: counted[verdict] * minute for verdict in VERDICTS},
        saved_replica_hours={
            verdict: sum(
                (moment.paid or 0.0) - moment.asked
                for moment, found in zip(moments, verdicts, strict=True)
                if found == verdict
            )
            * hour
            for verdict in VERDICTS
        },
        data_minutes=len(known) * minute,
        gap_minutes=(len(moments) - len(known)) * minute,
        none_ready_minutes=sum(1 for moment in known if moment.kind == "none ready") * minute,
        held_minutes=sum(1 for moment in moments if not moment.available) * minute,
        broken=_broken(known, minute),
        judged_minutes=sum(1 for moment in known if moment.broken is not None) * minute,
        kept_up_to=kept,
        most_per_replica=most,
        ran_only_short_minutes=(len(ran_short) - both) * minute,
        ours_only_short_minutes=(len(short) - both) * minute,
        fixed=_fixed(known, len(short), hour),
        verdicts=verdicts,
    )


def judge(moment: Moment, kept: float | None) -> Verdict:
    """Of which kind a moment with data is."""
    if _short(moment.need, float(moment.ready)):
        return "short"
    if moment.ran is not None and moment.ready >= moment.ran:
        return "covered"
    if moment.instead is None:
        return "unjudged"
    load = moment.instead / moment.ready if moment.ready else 0.0
    return "seen" if load == 0 or (kept is not None and load <= kept) else "unseen"


def kept_up_to(moments: Iterable[Moment]) -> float | None:
    """The highest load, in flight per ready replica, at which the past kept its objectives: moments that could be
    judged are put in order of load and cut into groups of equal size, and of the highest group of which
    :data:`KEPT_SHARE` met every objective it is the median. None where no group did.
    """
    judged = sorted(
        (moment.in_flight / moment.ran, moment.broken)
        for moment in moments
        if moment.broken is not None and moment.ran and moment.in_flight is not None
    )
    size = max(GROUP_MOMENTS, len(judged) // 50)
    for end in range(len(judged), size - 1, -size):
        group = judged[end - size : end]
        if sum(1 for _, broken in group if not broken) >= KEPT_SHARE * size:
            return group[size // 2][0]
    return None


def _most_per_replica(moments: Iterable[Moment]) -> float | None:
    loads = [moment.in_flight / moment.ran for moment in moments if moment.ran and moment.in_flight is not None]
    return max(loads, default=None)


def _short(need: float | None, ready: float | None) -> bool:
    return need is not None and ready is not None and need > ready + _DUST


def _broken(known: Sequence[Moment], minute: float) -> BrokenMinutes:
    broken = [moment for moment in known if moment.broken and moment.ran is not None]
    more = sum(1 for moment in broken if moment.ready > (moment.ran or 0))
    fewer = sum(1 for moment in broken if moment.ready < (moment.ran or 0))
    critical = sum(1 for moment in known if moment.critical)
    return BrokenMinutes(
        len(broken) * minute, critical * minute, more * minute, (len(broken) - more - fewer) * minute, fewer * minute
    )


def _fixed(known: Sequence[Moment], short: int, hour: float) -> Fixed | None:
    """Its needs are the past's own: with a fixed number no backlog of the scaler's would have been there."""
    needs = sorted((moment.ran_need for moment in known if moment.ran_need is not None), reverse=True)
    if not needs:
        return None
    replicas = max(1, math.ceil((needs[short] if short < len(needs) else 0.0) - _DUST))
    return Fixed(replicas, replicas * len(known) * hour)
