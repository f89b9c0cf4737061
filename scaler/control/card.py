"""One card shared by several workloads: each has a part of its own, who is idle lends, and the parts never exceed it.

A part is of two things, the card's time and its memory. Time is lent by whoever is proven idle, down to what its least
batch needs. Memory is lent only where it is really let go: by an engine that takes it as it goes (its batch is then
small, and so is what it holds), by one that sleeps (all but :data:`ASLEEP_SHARE` of its part), and by one that has no
replica. The KV cache of an engine that preallocates is nobody else's while it is awake, and its own is all it can use.

    bound = batch at its own part · part it has / its own part         (of time; of both where it does not preallocate)

What is free goes to those whose own batch is in use (running ≥ 0.8 × it, or a queue), in proportion to their own parts,
as far as their engines' caps reach. Whoever lent and is wanted again has its own part back in the same tick; whoever is
not known to be idle is owed it, and of a borrower that is not known either nothing changes but by that.

Two things keep the sum below the card whatever the order in which parts are published: a part is raised only out of
what is free in the parts *as they were published last*, so first the borrower goes down, then the owner up (in one
tick, where whoever publishes asks again in between); and above its own part goes only who is decided together with all
the others, by one scaler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from scaler.control.card_part import CardPart
from scaler.control.companions import workers_of
from scaler.control.model import Code, Decision, LoadState, Mode, Reason, Rung, Suppressed, Target, Targets
from scaler.policy.model import Policy
from scaler.signals.model import Signals, Unknown, at_least, is_zero, known_value
from scaler.value import frozen

#: The batch is in use when this share of it runs.
IN_USE_SHARE = 0.8
#: What a sleeping engine keeps of its memory: context, communicators, graphs (vLLM frees nine tenths and more).
ASLEEP_SHARE = 0.1
_DUST = 1e-9
_OF_CARDS = (Code.CARD_OWN, Code.CARD_LENT, Code.CARD_BORROWED, Code.CARD_MEMORY_KEPT)


class Demand(StrEnum):
    """What a workload wants of its card."""

    IDLE = "idle"  # proven: it lends
    OWN = "own"  # its own part is enough
    MORE = "more"  # its own part is in use
    DOUBT = "doubt"  # not known: it lends nothing, and keeps what it has


@frozen
class Member:
    """One workload of a card.

    ``share``: its own part, 0..1; ``batch``: what fills that; ``least`` and ``most``: the range of its batch (``most``
    None: not declared, so it borrows nothing); ``freed``: what it holds of its memory for certain, as a share of its
    own part (1.0 while it is awake). ``held``: its part as published last, None before the first. ``ours``: whether
    its part can be changed here and now.
    """

    name: str
    share: float
    batch: int
    least: int
    most: int | None
    preallocates: bool
    demand: Demand
    holds: float = 1.0
    held: CardPart | None = None
    ours: bool = True


def share_out(members: Sequence[Member]) -> dict[str, CardPart]:
    """The part of each member that is ``ours``. Published or not, in any order, the parts never exceed the card."""
    scale = 1.0 / max(1.0, sum(member.share for member in members))
    own = {member.name: member.share * scale for member in members}
    time, memory = _wanted(members, own)
    if not all(member.ours for member in members):
        time, memory = ({name: min(part, own[name]) for name, part in each.items()} for each in (time, memory))
    times = _reachable(members, own, time, {member.name: member.held.time for member in members if member.held})
    memories = _reachable(members, own, memory, {member.name: member.held.memory for member in members if member.held})
    return {
        member.name: CardPart(
            times[member.name],
            memories[member.name],
            own[member.name],
            _bound(member, own[member.name], times[member.name], memories[member.name]),
        )
        for member in members
        if member.ours
    }


def _wanted(members: Sequence[Member], own: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """(time, memory) that each should have, were all of them published at once."""
    hungry = [member for member in members if _room(member, own[member.name]) > 0]
    time = {member.name: own[member.name] for member in members}
    memory = dict(time)
    if not hungry:
        return time, memory
    for member in members:
        if member.demand is Demand.IDLE:
            name = member.name
            kept = own[name] * min(1.0, member.least / member.batch)
            time[name] = kept
            memory[name] = min(own[name] * member.holds, own[name] if member.preallocates else kept)
    growing = {member.name: _room(member, own[member.name]) for member in hungry if not member.preallocates}
    extra_memory = _poured(sum(own.values()) - sum(memory.values()), growing, own)
    rooms = {
        member.name: min(_room(member, own[member.name]), extra_memory.get(member.name, math.inf)) for member in hungry
    }
    extra_time = _poured(sum(own.values()) - sum(time.values()), rooms, own)
    for name, extra in extra_time.items():
        time[name] += extra
        if name in extra_memory:
            memory[name] += min(extra, extra_memory[name])
    return time, memory


def _room(member: Member, own: float) -> float:
    """How much more than its own part it can use; 0.0: it wants nothing more."""
    if member.demand is Demand.DOUBT:
        return max(0.0, (member.held.time if member.held else 0.0) - own)
    if member.demand is not Demand.MORE or member.most is None:
        return 0.0
    return max(0.0, own * (member.most / member.batch - 1.0))


def _poured(amount: float, rooms: Mapping[str, float], own: Mapping[str, float]) -> dict[str, float]:
    """``amount`` over ``rooms`` in proportion to ``own``; what one has no room for goes to the others."""
    filled = dict.fromkeys(rooms, 0.0)
    open_to = {name for name, room in rooms.items() if room > 0}
    while open_to and amount > _DUST:
        weight = sum(own[name] for name in open_to)
        shares = {name: amount * own[name] / weight for name in open_to}
        for name, share in shares.items():
            taken = min(share, rooms[name] - filled[name])
            filled[name] += taken
            amount -= taken
        still = {name for name in open_to if rooms[name] - filled[name] > _DUST}
        if still == open_to:
            break
        open_to = still
    return filled


def _reachable(
    members: Sequence[Member], own: Mapping[str, float], wanted: Mapping[str, float], held: Mapping[str, float]
) -> dict[str, float]:
    """``wanted``, as far as it can be had now: down at once, up out of what is free in what was published last (a part
    that is lowered in this very tick is free in the next), all in the same measure.

    Where some are decided elsewhere at the same moment, two might take the same free part. So then nobody rises unless
    everybody is at its own or below it, and is known to be; and nobody above it, so that all of them may.
    """
    published = {member.name: held.get(member.name, 0.0) for member in members}
    kept = {m.name: min(wanted[m.name], published[m.name]) if m.ours else published[m.name] for m in members}
    lacking = {m.name: wanted[m.name] - kept[m.name] for m in members if m.ours and wanted[m.name] > kept[m.name]}
    if all(member.ours for member in members):
        free, total = max(0.0, sum(own.values()) - sum(published.values())), sum(lacking.values())
        measure = min(1.0, free / total) if total > _DUST else 0.0
    else:
        unseen = any(not member.ours and member.name not in held for member in members)
        above = any(part > own[name] + _DUST for name, part in published.items())
        measure = 0.0 if unseen or above else 1.0
    return {name: part + lacking.get(name, 0.0) * measure for name, part in kept.items()}


def _bound(member: Member, own: float, time: float, memory: float) -> int:
    part = time if member.preallocates else min(time, memory)
    whole = math.floor(member.batch * part / own + 1e-6)
    most = member.most if member.most is not None else member.batch
    return max(member.least, min(whole, max(most, member.least)))


def demand_of(policy: Policy, decision: Decision, signals: Signals) -> Demand:
    """What the decision, and the signals it was made on, say of a workload's demand."""
    if not decision.targets.active or _is_idle(decision, signals):
        return Demand.IDLE
    if decision.state in (LoadState.UNKNOWN, LoadState.STALLED) or known_value(signals.running) is None:
        return Demand.DOUBT
    own = policy.gpu_group.batch or 1
    busiest = known_value(signals.busiest_running)
    running = busiest if busiest is not None else at_least(signals.running) / max(1, decision.ready or 1)
    queued = at_least(signals.waiting) + at_least(signals.pending)
    return Demand.MORE if running >= IN_USE_SHARE * own or queued > 0 else Demand.OWN


def _is_idle(decision: Decision, signals: Signals) -> bool:
    """Nobody asks, and nobody has for 15 s, all of it known. (Waiting for the state ``idle``, a window of 60 s, cost
    the next one in turn 14 points of attainment: lab, two models by turns. It is given back in a tick, so little is
    risked.) Where a source tells the window's arrivals alone, those.
    """
    recent = signals.arrivals_recent_per_second
    arrivals = signals.arrivals_per_second if isinstance(recent, Unknown) else recent
    demands = (arrivals, signals.running, signals.waiting, signals.pending, signals.wake_demand)
    quiet = all(is_zero(demand) for demand in demands) and not signals.counters_moved
    return quiet and decision.available and decision.state not in (LoadState.UNKNOWN, LoadState.STALLED)


def holds_of(decision: Decision, *, preallocates: bool) -> float:
    """How much of its own memory a workload surely holds, as a share: all of it while any replica may be awake."""
    if not decision.targets.active and decision.ready == 0 and not decision.asleep:
        return 0.0
    asleep = decision.targets.rung is Rung.ASLEEP and decision.asleep > 0 and decision.ready == 0
    return ASLEEP_SHARE if asleep and preallocates else 1.0


def member_of(
    name: str, policy: Policy, decision: Decision | None, signals: Signals | None, *, preallocates: bool,
    held: CardPart | None, ours: bool,
) -> Member:  # fmt: skip
    """The workload as its card sees it. Without a decision its demand is in doubt; nor does one lend or borrow whose
    batch is not ruled here (advisory mode).
    """
    group = policy.gpu_group
    assert group.share_ratio is not None
    assert group.batch is not None
    demand, holds = Demand.DOUBT, 1.0
    if decision is not None and signals is not None:
        demand = demand_of(policy, decision, signals) if decision.mode is not Mode.ADVISORY else Demand.OWN
        holds = holds_of(decision, preallocates=preallocates)
    return Member(
        name,
        group.share_ratio,
        group.batch,
        policy.batch.min,
        policy.batch.max,
        preallocates,
        demand,
        holds,
        held,
        ours,
    )


def bounded(targets: Targets, part: CardPart | None, policy: Policy) -> Targets:
    """``targets`` within the part of the card: what the world is told. The laws go on from their own."""
    if part is None or (targets.batch is not None and targets.batch <= part.bound):
        return targets
    return replace(targets, batch=part.bound, workers=workers_of(policy, part.bound))


def on_card(decision: Decision, part: CardPart, policy: Policy, others: Iterable[Member]) -> Decision:
    """``decision`` with the ``part`` that its workload has of the card, and why its batch is bounded so. What it says
    of an earlier part is replaced; a batch that was bounded by that is only ever bounded further.
    """
    memory = replace(decision.next_memory, card=part)
    if decision.mode is Mode.ADVISORY:
        return replace(decision, next_memory=memory)
    targets, wanted = bounded(decision.targets, part, policy), decision.targets.batch
    reasons = tuple(reason for reason in decision.reasons if reason.code not in _OF_CARDS)
    suppressed = tuple(held for held in decision.suppressed if held.code not in _OF_CARDS)
    if targets.batch == part.bound and (wanted != part.bound or len(reasons) < len(decision.reasons)):
        code = Code.CARD_BORROWED if part.time > part.own + _DUST else Code.CARD_OWN
        code = Code.CARD_LENT if part.time < part.own - _DUST else code
        reasons = (*reasons, Reason(code, Target.BATCH, "card_time_ratio", part.time, part.own))
    if part.time < part.own - _DUST and part.memory >= part.own - _DUST and _memory_is_wanted(others):
        suppressed = (*suppressed, Suppressed(Code.CARD_MEMORY_KEPT, Target.BATCH, None, None))
    return replace(decision, targets=targets, reasons=reasons, suppressed=suppressed, next_memory=memory)


def _memory_is_wanted(members: Iterable[Member]) -> bool:
    return any(member.demand is Demand.MORE and not member.preallocates for member in members)
