"""What one tick looks at: the laws read this and nothing else. :mod:`scaler.control.situate` derives it."""

from __future__ import annotations

from collections.abc import Mapping

from scaler.control.arrivals import Arrivals
from scaler.control.budget import Bill, Room
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.cold_start import ColdStarts
from scaler.control.feasible import EmptyReplicas, Infeasible
from scaler.control.flow import FlowNeed
from scaler.control.model import Memory, Now
from scaler.control.pressure import Pressure
from scaler.control.season import Expected
from scaler.policy.model import Policy
from scaler.signals.model import (
    Known,
    NotApplicable,
    Signals,
    Unknown,
    Verdict,
    at_least,
    is_zero,
    known_value,
)
from scaler.value import frozen

#: The batch, and the top of its range, where none is declared and the engine's own cap is not what to start from.
PLAIN_START, PLAIN_MAX = 8, 64
#: Without these nothing can be judged; losing one starts the hold.
JUDGED_BY = ("running", "waiting", "ready_replicas")
#: Replicas go down only when each of these is known (or not applicable).
DOWN_NEEDS = ("arrivals_per_second", *JUDGED_BY)
#: Zero replicas need these too: every source that could wake the workload.
WAKE_SOURCES = ("pending", "wake_demand")
#: A signal of these says something. (A tuple: a union is built anew each time it is asked.)
_SAYS = (Known, NotApplicable)


@frozen
class Situation:
    """One workload at one instant.

    ``elapsed_seconds`` is the time since the last tick (0.0 on the first). ``ready`` are the replicas that serve (None
    when unknown), ``asleep`` those that would once woken: they are there, and no capacity before that; ``coming`` is
    how many more load and may be counted on, ``cold_start_seconds`` P95 of how long that takes. ``floor`` and
    ``ceiling`` are the replica bounds now; ``ceiling`` None means undeclared. ``lost`` names the signals of
    :data:`JUDGED_BY` that are neither known nor inapplicable. ``capacity`` is what one replica serves within its
    objectives, ``loaded`` the same as far as it is loaded now (:mod:`scaler.control.settled`). ``infeasible`` holds the
    objective bounds that no replica can keep, ``declared`` is the policy without them and ``policy`` that as it stands
    at this hour.
    ``verdicts`` maps objective bounds to what P95 says, ``pressure`` is the memory emergency, if there is one.
    ``season`` is what usually comes a cold start ahead. ``bill`` is what has been spent up to now, ``budget`` what is
    left (None: no budget).
    """

    policy: Policy
    declared: Policy
    memory: Memory
    signals: Signals
    now: Now
    elapsed_seconds: float
    floor: int
    ceiling: int | None
    ready: int | None
    asleep: int
    lost: tuple[str, ...]
    may_lower: bool
    capacity: CapacityEstimate
    loaded: CapacityEstimate
    arrivals: Arrivals
    flow: FlowNeed
    utilisation: float | None
    running_mean: float | None
    unevenness: float | None
    overload_seconds: float | None
    scale_in_seconds: float | None
    cold_starts: ColdStarts
    cold_start_seconds: float
    coming: int
    empty: EmptyReplicas
    infeasible: Infeasible
    verdicts: Mapping[str, Verdict]
    pressure: Pressure | None
    season: Expected | None
    bill: Bill
    budget: Room | None

    @property
    def replicas(self) -> int:
        """The replicas last asked for, by us; before any decision, as the cluster says, and those that are ready."""
        if self.memory.targets:
            return self.memory.targets.replicas
        return max((self.ready or 0) + self.asleep, int(known_value(self.signals.asked_replicas) or 0.0))

    @property
    def exhausted(self) -> bool:
        """Whether no more replicas can be had: at the ceiling, or asked for in vain where no node has room."""
        if self.ceiling is not None and self.replicas >= self.ceiling:
            return True
        return self.coming == 0 and (known_value(self.signals.unschedulable_replicas) or 0.0) > 0

    @property
    def batch(self) -> int | None:
        """The batch size last published; before any decision, the one to start with. None: the engine's own."""
        return self.memory.targets.batch if self.memory.targets else self.start_batch

    @property
    def start_batch(self) -> int | None:
        """See :func:`first_batch`."""
        return first_batch(self.policy, self.signals)

    @property
    def nobody_to_hear(self) -> bool:
        """Whether replicas were asked for and none is there to say what they are asked: out of a list of endpoints that
        is known to be empty comes no proof of idleness and no need of fewer. They may all have failed their readiness
        probes under the very load we cannot see. (Not so where the cluster says that none is asked for.)
        """
        wanted = self.memory.targets is not None and self.memory.targets.active
        asked_for_none = known_value(self.signals.asked_replicas) == 0
        silent = self.ready == 0 and isinstance(self.signals.running, NotApplicable)
        return wanted and silent and not asked_for_none

    @property
    def season_wakes(self) -> bool:
        """Whether what usually comes a cold start ahead is worth a replica."""
        return self.season is not None and self.season.wakes(self.policy.idle.timeout_seconds)

    @property
    def usual_rate(self) -> float | None:
        """What usually comes a cold start ahead, requests per second."""
        return None if self.season is None else self.season.rate

    def breached(self, *bounds: str) -> bool:
        """Whether any of the named objective bounds is breached for certain."""
        return "breached" in self.verdicts.values() and any(self.verdicts.get(bound) == "breached" for bound in bounds)


def by_plain_numbers(policy: Policy) -> bool:
    """Whether the batch goes by eight, doubling and halving, and the load by 50 and 5 requests per second of a replica:
    the strategies beside ``adaptive``, and static batching, where a batch waits to fill and so a low load wants a
    small one.
    """
    return policy.strategy != "adaptive" or policy.batch.batching == "static"


def first_batch(policy: Policy, signals: Signals) -> int | None:
    """The first batch published: the declared one; else what the strategy starts from, ``adaptive`` the engine's cap
    where it is known, the others, and static batching, eight.
    """
    batch = policy.batch
    if batch.start is not None:
        return batch.start
    if by_plain_numbers(policy):
        return max(batch.min, min(PLAIN_START, batch.max or PLAIN_START))
    applied = known_value(signals.applied_batch)
    return batch.max or (None if applied is None else max(batch.min, int(applied)))


def satisfied(signal: object) -> bool:
    """Whether the signal says something: a value, or that there is none to have."""
    return isinstance(signal, _SAYS)


def proves_quiet(situation: Situation) -> bool:
    """Whether this tick's signals *prove* that nobody wants the workload: every demand known to be zero, no counter
    moved, every replica heard, none stalled (a stalled replica's silence proves nothing).
    """
    signals = situation.signals
    arrivals = signals.arrivals_per_second
    if not isinstance(signals.arrivals_last_per_second, Unknown):
        arrivals = signals.arrivals_last_per_second
    demands = (arrivals, signals.running, signals.waiting, signals.pending, signals.wake_demand)
    stalled = known_value(signals.stalled_replicas) or 0.0
    return (
        all(is_zero(demand) for demand in demands)
        and satisfied(signals.ready_replicas)
        and not signals.counters_moved
        and stalled == 0
        and not situation.nobody_to_hear
    )


def wants_service(situation: Situation) -> bool:
    """Whether anything is certainly wanted now: a request somewhere, or a counter that moved since the last tick."""
    signals = situation.signals
    return signals.counters_moved or any(
        at_least(demand) > 0
        for demand in (
            signals.arrivals_last_per_second,
            signals.running,
            signals.waiting,
            signals.pending,
            signals.wake_demand,
        )
    )
