"""Who ticks what. One scaler alone owns everything; several share the workloads through Redis.

What must hold with several, whatever dies or freezes:

1. *One owner*: a workload is read, judged and written by one scaler at a time.
2. *One answer*: no two scalers answer KEDA ``true`` and ``false`` by turns.
3. *Going on*: an owner that dies is replaced in under 5 s; without Redis nobody is, and every owner goes on.

**The owner** acts while its lease lasts by its own clock, counted from when it asked for it; Redis counts the same
seconds from later, so nobody can have taken over before the owner has stopped (:mod:`scaler.serve.lease`). It writes
each decision under its fencing token *before* anyone is told of it, and holds back calls for this workload while the
write is under way. A write that is refused means that another scaler owns the workload: what was just decided is
dropped. A thawed owner's lease is over by its own clock before it answers anything, so it asks Redis like any other.

**Everyone else**, at each of KEDA's calls, asks Redis for the number of the last write (calls at one moment ask
together), and answers from the copy it holds if that is the one, else it fetches it first. So an answer, whoever gives
it, is never older than one given before by anybody: reading a copy without asking would be faster by a round trip, and
would say ``false`` for some milliseconds after the owner has said ``true``. Without an answer from Redis it says
``UNAVAILABLE`` at once, and KEDA keeps what it has. ``/metrics`` and the API show the copy as it is, milliseconds old.

**Without Redis** an owner cannot renew its lease. It must not simply go on: if only *it* is cut off, its workloads have
a new owner after 3 s. It goes on if Redis's address *refuses* connections (or its name has no address, or it is still
loading its data): then no Redis runs that could have given anything away. Silence (a time limit, no route) proves that
only where every other scaler says that it hears nothing either (:mod:`scaler.serve.peers`); and so does a refusal on
loopback while a scaler of another host lives: that is a proxy of its own. Else a lease that ends in silence ends the
ownership: its share of calls is ``UNAVAILABLE`` until Redis answers. In the first 3.5 s an owner whose writes are not
confirmed does not say anything that contradicts its last confirmed answer: Redis may come back with that, in its old
lease.

**When Redis is back**, with its data, with older data or with none, the owners write what they hold, under the tokens
they have; these are higher than any that Redis can know (a token is at least the time of day in milliseconds). Nobody
takes what it did not own before until Redis has run, and been in reach, for 4 s: an owner acting alone has noticed by
then, because it looks every 0.25 s and believes a refusal, or the others' word, for 1 s. Nor does anybody take from a
scaler that says, when asked, that it acts. Until an owner is back, nobody answers from what Redis had kept of it. A
Redis that is emptied under way is treated like one that has restarted.

**What is left**: a Redis that refuses one scaler and serves another for longer than that (two addresses behind one
name); a network in two halves, with Redis and a scaler that has just started in one, and all the others in the other;
or a jump of Redis's clock, which ends every lease early, costs rule 2 for as long as it lasts. No write is lost:
tokens are compared with tokens only. A Redis that answers and will not write (full, read-only) is as one in silence.
Give it ``noeviction``: an evicted workload loses its timers.

**A new owner** goes on from the memory of the last write: timers, targets, cooldowns, batch, generation. The time since
then counts as idle only under the rule for restarts (no engine did anything meanwhile), and it is the lesser of what
Redis's clock and the scalers' own clocks say; these clocks may differ between hosts. Demand that gateways reported to
any scaler lies in Redis with its age, so it reaches the owner of the moment at once, and its successor as well.

**Balance**: each workload prefers one scaler of those that live (highest hash of both names), so that a scaler that
dies or joins moves only its own share. A living owner hands over to the preferred scaler only once that one has lived
for a while: moving costs the measurements of a window, and a scaler that crashes again and again must not cause it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol, TypeAlias

from scaler.consume.contract import AppliedReport
from scaler.control.model import Override
from scaler.serve.demand_body import DemandReport
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import StoredWorkload
from scaler.value import frozen

if TYPE_CHECKING:  # the registry of workloads begins with a sole owner
    from scaler.serve.workloads import Workload


#: What callers push: a gateway's report of demand, a replica's of what it applied, or a wake (None).
Told: TypeAlias = DemandReport | AppliedReport | None


class Superseded(Exception):  # noqa: N818 -- it names what happened
    """The workload has another owner; what was decided here is to be dropped."""


class OwnerUnheard(Exception):  # noqa: N818
    """There is no answer to be sure of, or no way to reach the owner; the text says why."""


class Ownership(Protocol):
    """What the loop, the API and KEDA's service ask about who owns what."""

    @property
    def deaf(self) -> bool:
        """Whether workloads may be asked for elsewhere at present without our hearing of it."""

    @property
    def joined(self) -> asyncio.Event:
        """Set, for good, once it is known who owns what: until then whoever is sent to us is answered by nobody."""

    def owns(self, name: str) -> bool:
        """Whether the workload is to be ticked here, now."""

    def notice(self, workload: Workload) -> None:
        """A call has made this workload known, changed its metadata, or wants it evaluated."""

    async def publish(self, workload: Workload, snapshot: Snapshot, stored: Callable[[], StoredWorkload]) -> None:
        """Write a decision where the other scalers see it, before anyone is told; ``stored`` gives what a successor
        goes on from. Raises :class:`Superseded`.
        """

    def at_hand(self, workload: Workload) -> Snapshot | None:
        """What :meth:`answer` would give, where it need neither ask nor wait; None where it must, or has none."""

    async def answer(self, workload: Workload) -> Snapshot | None:
        """The snapshot to answer KEDA from; None before the first. Raises :class:`OwnerUnheard`."""

    async def tell(self, workload: Workload, told: Told) -> None:
        """Bring what was pushed to the owner. Raises
        :class:`scaler.serve.inbox.TooManySourcesError` and :class:`OwnerUnheard`.
        """

    async def set_override(self, workload: Workload, override: Override | None) -> None:
        """Let an operator's override rule from the next tick on, None: end it. Raises :class:`OwnerUnheard`."""

    async def start(self) -> None:
        """Take part. Returns soon, with or without the others in reach."""

    async def stop(self) -> None:
        """Give up what is owned, so that others need not wait for a lease to end."""

    @property
    def trouble(self) -> str | None:
        """What is wrong with what the scalers share, in words; None while all is well."""


class SoleOwner:
    """The one scaler: it owns everything and asks nobody."""

    trouble: str | None = None
    deaf = False

    def __init__(self) -> None:
        self.joined = asyncio.Event()
        self.joined.set()

    def owns(self, name: str) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def notice(self, workload: Workload) -> None:
        """Nobody else needs to know."""

    async def publish(self, workload: Workload, snapshot: Snapshot, stored: Callable[[], StoredWorkload]) -> None:
        """Nobody else needs to see it."""

    def at_hand(self, workload: Workload) -> Snapshot | None:
        """What was decided last."""
        return workload.snapshot

    async def answer(self, workload: Workload) -> Snapshot | None:
        """What was decided last."""
        return workload.snapshot

    async def tell(self, workload: Workload, told: Told) -> None:
        """Into the workload's inbox, or among its reports."""
        put(workload, told)

    async def set_override(self, workload: Workload, override: Override | None) -> None:
        """Into the workload's memory."""
        workload.memory = replace(workload.memory, override=override)

    async def start(self) -> None:
        """Nothing to take part in."""

    async def stop(self) -> None:
        """Nothing to give up."""


def put(workload: Workload, told: Told) -> None:
    """Put what was pushed where the workload's next tick finds it. Raises TooManySourcesError."""
    match told:
        case None:
            workload.inbox.wake()
        case AppliedReport():
            workload.applied.report(told)
        case DemandReport(pending=pending, arrivals_per_second=arrivals, source=source):
            workload.inbox.report(pending, arrivals, source)


def is_demand(told: Told) -> bool:
    """Whether it tells of requests, which should not wait for the next tick."""
    return not isinstance(told, AppliedReport)


def member_of(session: str) -> str:
    """The scaler behind a session: it keeps its name when a session ends and it begins another."""
    return session.rpartition("#")[0]


def preferred(name: str, members: Iterable[str]) -> str | None:
    """The member that a workload prefers: rendezvous hashing. None where there is no member."""

    def weight(member: str) -> tuple[bytes, str]:
        return blake2b(f"{member} {name}".encode(), digest_size=8).digest(), member

    return max(members, key=weight, default=None)


@frozen
class Plan:
    """What to do about ownership now: workloads to claim, and workloads to hand over."""

    claim: tuple[str, ...] = ()
    hand_over: tuple[str, ...] = ()


def plan(
    session: str,
    owners: Mapping[str, str | None],
    *,
    held: frozenset[str],
    living: frozenset[str],
    steady: frozenset[str],
    settled: bool,
    patience_over: frozenset[str] = frozenset(),
    together: Mapping[str, str] | None = None,
) -> Plan:
    """What the scaler of ``session`` should do.

    ``owners``: each known workload's owning session, None for nobody. ``held``: what we own and hold the token of.
    ``living``: the sessions whose lease lasts. ``steady``: those that have lived long enough to be handed workloads.
    ``settled``: whether workloads of the dead may be taken at all. ``patience_over``: workloads free for so long that
    whoever they prefer seems unable to take them. ``together``: by the workload's name, that of the card it shares:
    the workloads of one card prefer one scaler.
    """
    us = member_of(session)
    members = {member_of(each) for each in living}
    steady_members = {member_of(each) for each in steady & living}
    claim, hand_over = [], []
    for name, owner in owners.items():
        choice = preferred((together or {}).get(name, name), members)
        if name in held:
            if choice != us and choice in steady_members:
                hand_over.append(name)
        # A session of ours without the token: the answer to our claim was lost.
        elif (owner not in living or owner == session) and settled and (choice == us or name in patience_over):
            claim.append(name)
    return Plan(tuple(claim), tuple(hand_over))
