"""Cards shared by workloads, in the server: whose parts are decided here, and in which order they are told.

All members of a card prefer one scaler (:func:`scaler.serve.ownership.preferred` goes by the card), so that one decides
them together. While they have several owners, and until each of those we do not own has been heard since that began,
nobody goes above its own part (:mod:`scaler.control.card`). What a member holds is in its memory, which a restart and a
new owner go on from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from scaler.control.card import Member, member_of, on_card, share_out
from scaler.control.card_part import CardPart
from scaler.control.model import Decision
from scaler.policy.model import Policy
from scaler.serve.ownership import Superseded
from scaler.serve.snapshot import Snapshot
from scaler.serve.workloads import Workload, Workloads


class Cards:
    """The shared cards of ``workloads``. ``tell`` publishes another member's snapshot with its lower part."""

    def __init__(self, workloads: Workloads, tell: Callable[[Workload, Snapshot], Awaitable[None]]) -> None:
        self._workloads = workloads
        self._tell = tell
        self._locks: dict[str, asyncio.Lock] = {}
        #: Which members of each card were ours when looked at last, and since when.
        self._ours: dict[str, tuple[frozenset[str] | None, float]] = {}
        #: What members had before they gave something up that is not known to have got through.
        self._unconfirmed: dict[str, CardPart] = {}

    def turn(self, workload: Workload) -> AbstractAsyncContextManager[None]:
        """Held while a workload is decided and told: the members of one card one after another."""
        name = workload.resolved.policy.gpu_group.name
        return nullcontext() if name is None else self._locks.setdefault(name, asyncio.Lock())

    async def shared(self, workload: Workload, snapshot: Snapshot) -> Snapshot:
        """``snapshot``, just decided and not told yet, within its workload's part of its card.

        Whoever has to give something up is told so before. Where that did not get through, to Redis or because it has
        another owner meanwhile, nobody is raised on the strength of it.
        """
        name = workload.resolved.policy.gpu_group.name
        if name is None:
            return self._unshared(workload, snapshot)
        others = [other for other in self._sharing(name) if other is not workload]
        for _ in range(2):  # the second time with what the first has set free
            members = [self._member(workload, snapshot, name)]
            members += [self._member(other, other.snapshot, name) for other in others]
            parts = share_out(members)
            lowered = [each for each in others if each.name in parts and _lower(parts[each.name], each.memory.card)]
            for other in lowered:
                await self._give_up(other, parts[other.name], members)
            if not lowered:
                break
        part = parts.get(workload.name)
        if part is None:
            return snapshot
        decision = on_card(snapshot.decision, part, snapshot.policy, members[1:])
        workload.memory = replace(workload.memory, card=part)
        return replace(snapshot, decision=decision)

    def within(self, workload: Workload, decision: Decision) -> Decision:
        """A ``decision`` between two ticks, within the part that its workload has."""
        part = workload.memory.card
        return decision if part is None else on_card(decision, part, workload.resolved.policy, ())

    def _unshared(self, workload: Workload, snapshot: Snapshot) -> Snapshot:
        if workload.memory.card is None:
            return snapshot
        workload.memory = replace(workload.memory, card=None)
        return replace(snapshot, decision=replace(snapshot.decision, next_memory=workload.memory))

    async def _give_up(self, other: Workload, part: CardPart, members: list[Member]) -> None:
        last, before = other.snapshot, other.memory
        assert last is not None
        other.memory = replace(before, card=part)
        decision = on_card(replace(last.decision, next_memory=before), part, last.policy, members)
        try:
            await self._tell(other, replace(last, decision=decision))
        except Superseded:
            other.memory = before
            return
        if self._workloads.ownership.at_hand(other) is None and before.card is not None:
            self._unconfirmed[other.name] = before.card

    def _sharing(self, card: str) -> Iterator[Workload]:
        for name in self._workloads.names():
            known = self._workloads.get(name)
            if known is not None and known.resolved.policy.gpu_group.name == card:
                yield known

    def _member(self, workload: Workload, snapshot: Snapshot | None, card: str) -> Member:
        policy: Policy = workload.resolved.policy
        ours = self._workloads.ownership.owns(workload.name)
        held = workload.memory.card
        if ours and self._workloads.ownership.at_hand(workload) is None:
            held = self._unconfirmed.get(workload.name, held)
        else:
            self._unconfirmed.pop(workload.name, None)
        if not ours:
            heard = snapshot is not None and snapshot.decided_at.mono >= self._alone_since(card)
            held = snapshot.decision.next_memory.card if heard and snapshot is not None else None
        # One that was told its part before we started, and was not decided since, cannot be told another yet.
        ours = ours and (snapshot is not None or held is None)
        return member_of(
            workload.name,
            policy,
            None if snapshot is None else snapshot.decision,
            None if snapshot is None else snapshot.signals,
            preallocates=workload.preset.preallocates_gpu_memory,
            held=held,
            ours=ours,
        )

    def _alone_since(self, card: str) -> float:
        """Since when, by our monotonic clock, the members that are ours are these."""
        ours = frozenset(each.name for each in self._sharing(card) if self._workloads.ownership.owns(each.name))
        known, since = self._ours.get(card, (None, 0.0))
        if known != ours:
            since = self._workloads.mono()
            self._ours[card] = ours, since
        return since


def _lower(part: CardPart, held: CardPart | None) -> bool:
    return held is not None and (part.time < held.time or part.memory < held.memory)
