"""What a scaler knows of workloads from the others: metadata, owners, and a copy of each last decision."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

import structlog

from scaler.policy.metadata import completed, is_whole, storable
from scaler.serve.adjustments import adjustment_between
from scaler.serve.effects import measure_effects
from scaler.serve.membership import Membership
from scaler.serve.ownership import OwnerUnheard, member_of
from scaler.serve.published_json import decode
from scaler.serve.redis_link import RedisTrouble
from scaler.serve.redis_store import RedisStore
from scaler.serve.redis_values import UNWRITTEN, Position, Version, Written
from scaler.serve.snapshot import Snapshot
from scaler.serve.workloads import Workload, Workloads

log = structlog.get_logger(__name__)

#: Longest that a call of KEDA waits for Redis.
CALL_SECONDS = 0.5
#: Metadata of one workload that are known again when older data come back.
PAST = 5
#: A workload asked for here is told to have been asked for at most this often, seconds.
ASKED_SLACK_SECONDS = 1.0


class Copies:
    """Copies in ``workloads`` of what others write to ``store``. ``ours`` says of a name that we own it: of that one we
    are the original.
    """

    def __init__(
        self, workloads: Workloads, store: RedisStore, membership: Membership, ours: Callable[[str], bool]
    ) -> None:
        self._workloads = workloads
        self._store = store
        self._membership = membership
        self._ours = ours
        self._positions: dict[str, Position] = {}
        #: The version behind ``workload.snapshot``.
        self._copied: dict[str, Version] = {}
        self._registered: dict[str, dict[str, str]] = {}
        #: By workload, metadata that others have replaced.
        self._past: dict[str, deque[dict[str, str]]] = {}
        self._asked_told: dict[str, float] = {}
        self._marked: set[str] = set()
        self._mark = asyncio.Event()
        self._unreadable: set[str] = set()

    def owners(self) -> dict[str, str | None]:
        """Each known workload's owning session, as far as we have heard; None for nobody."""
        positions = self._positions
        return {name: positions[name].owner if name in positions else None for name in self._workloads.names()}

    def token_seen(self, name: str) -> int:
        """The highest fencing token we have seen for the workload."""
        return max(self._positions[name].token if name in self._positions else 0, self._copied.get(name, UNWRITTEN)[0])

    def place(self, name: str, owner: str | None, token: int, version: Version | None = None) -> None:
        """What is known of the workload's place, from our own doing or from Redis. ``version``: what we wrote."""
        if version is not None:
            self._copied[name] = version
        self._positions[name] = Position(owner, token, version or self._copied.get(name, UNWRITTEN))
        if owner is not None:
            self._membership.heard(owner)
        workload = self._workloads.get(name)
        if workload is not None:
            workload.owner = None if owner is None else member_of(owner)

    def freed(self, name: str) -> None:
        """Its owner has given the workload up."""
        if name in self._positions:
            self.place(name, None, self._positions[name].token)

    def lost(self, name: str) -> None:
        """We own it no longer, and what we decided last may never have been written."""
        self._copied.pop(name, None)
        self.mark(name)

    def forget(self, name: str) -> None:
        """The workload is no longer known here."""
        for known in (self._positions, self._copied, self._registered, self._past, self._asked_told):
            known.pop(name, None)

    # -- the copy ------------------------------------------------------------------------------------------------------

    async def latest(self, workload: Workload, answerable: Collection[str] | None) -> Snapshot | None:
        """The last decision that anyone can have answered from; None before the first.

        ``answerable``: the sessions that have come back since Redis did; a workload of any other is left unanswered,
        because its owner may have decided otherwise meanwhile. None: all. Raises :class:`OwnerUnheard`.
        """
        name = workload.name
        try:
            async with asyncio.timeout(CALL_SECONDS):
                position = await self._store.position(name)
                if position is not None and position.version > self._copied.get(name, UNWRITTEN):
                    self._take(name, await self._store.written(name, for_a_call=True))
        except (RedisTrouble, TimeoutError) as trouble:
            self._membership.doubt()
            why = str(trouble) or "no answer"
            raise OwnerUnheard(f"{name}: its owner's last decision cannot be read: {why}") from None
        copied = self._copied.get(name, UNWRITTEN)
        if position is None or position.version == UNWRITTEN:
            if copied != UNWRITTEN:
                raise OwnerUnheard(f"{name}: Redis has lost its last decision, and its owner has not written it again")
            return None
        if name in self._unreadable:
            raise OwnerUnheard(f"{name}: its owner runs a version of loadtide whose decisions this one cannot read")
        if position.version < copied or (answerable is not None and position.owner not in answerable):
            raise OwnerUnheard(f"{name}: its owner has not come back since Redis has")
        return workload.snapshot

    def take(self, workload: Workload, written: Written | None) -> Snapshot | None:
        """The snapshot of ``written`` as the workload's own, if it is newer; the one that others read in any case."""
        self._take(workload.name, written)
        return workload.snapshot if written is not None and workload.name not in self._unreadable else None

    def _take(self, name: str, written: Written | None) -> None:
        workload = self._workloads.get(name)
        if workload is None or written is None or self._ours(name):
            return
        position = written.position
        self.place(name, position.owner, position.token)
        if position.version <= self._copied.get(name, UNWRITTEN):
            return
        try:
            snapshot = decode(written.snapshot, self._membership.mono_at(written.at_ms))
        except ValueError as problem:
            if name not in self._unreadable:
                log.warning("another scaler's decision is unreadable here", workload=name, problem=str(problem)[:500])
            self._unreadable.add(name)
            return
        self._unreadable.discard(name)
        self._copied[name] = position.version
        before = workload.snapshot
        measure_effects(workload.adjustments, snapshot)
        # The same log as the owner's; it counts and writes them, or each would be counted once per scaler.
        if before is not None and (made := adjustment_between(before.decision.targets, before, snapshot)) is not None:
            workload.adjustments.append(made)
        self._workloads.publish(workload, snapshot)

    # -- following -----------------------------------------------------------------------------------------------------

    def mark(self, name: str) -> None:
        """Something was written of this workload: look soon."""
        self._marked.add(name)
        self._mark.set()

    async def follow(self) -> None:
        """Fetch what is marked, until cancelled."""
        while True:
            await self._mark.wait()
            self._mark.clear()
            marked, self._marked = self._marked, set()
            try:
                await asyncio.gather(*(self.look(name) for name in marked if not self._ours(name)))
            except RedisTrouble:
                self._membership.doubt()
            except Exception:
                log.exception("following the other scalers failed")

    async def look(self, name: str) -> None:
        """Fetch the last write of one workload. Raises RedisTrouble."""
        if self._workloads.get(name) is None:
            await self.learn()
        written = await self._store.written(name, for_a_call=False)
        if written is not None:
            self._take(name, written)
            return
        position = (await self._store.positions([name]))[name]
        if position is None:
            self._positions.pop(name, None)
        elif not self._ours(name):
            self.place(name, position.owner, position.token)

    async def compare(self) -> None:
        """Everything that messages tell, without the messages. Raises RedisTrouble."""
        await self._share_asked()
        await self.learn()
        for name, position in (await self._store.positions(self._workloads.names())).items():
            if position is None or self._ours(name):
                continue  # gone from Redis without a word: the owner of before will say so again, or a claim finds out
            self.place(name, position.owner, position.token)
            if position.version > self._copied.get(name, UNWRITTEN):
                self.mark(name)

    # -- metadata ------------------------------------------------------------------------------------------------------

    def is_news(self, workload: Workload) -> bool:
        """Whether the workload's metadata is something the others do not know; from now on they are taken to."""
        if workload.metadata is None or self._registered.get(workload.name) == storable(workload.metadata):
            return False
        self._replace(workload.name, storable(workload.metadata))
        return True

    def _replace(self, name: str, metadata: dict[str, str]) -> None:
        """From now on the others are taken to know these of the workload."""
        past, before = self._past.setdefault(name, deque(maxlen=PAST)), self._registered.get(name)
        if metadata in past:  # somebody has gone back to them
            past.remove(metadata)
        if before is not None and before != metadata:
            past.append(before)
        self._registered[name] = metadata

    async def learn(self, *, just_asked: bool = False) -> None:
        """Make known here what was made known anywhere; ``just_asked``: because of a call just now, elsewhere. Raises
        RedisTrouble.
        """
        before, told_by_redis = self._registered, await self._store.registered()
        self._registered = {name: metadata for name, metadata in before.items() if name in told_by_redis}
        for name, metadata in told_by_redis.items():
            workload = self._workloads.get(name)
            if workload is not None and before.get(name) == metadata:
                continue
            if name in before and metadata in self._past.get(name, ()) and not self._membership.settled:
                # A Redis that has just come back, with data from before the edit: it has less to say than we.
                await self._store.register(name, before[name])
                continue
            self._replace(name, metadata)
            same = workload is not None and workload.metadata is not None and storable(workload.metadata) == metadata
            told = metadata if workload is None or workload.metadata is None else completed(metadata, workload.metadata)
            if not is_whole(told) or same:
                continue  # what was withheld, only a call can tell us
            self._workloads.learn(name, told)
            learnt = self._workloads.get(name)
            if workload is None and learnt is not None and not just_asked and name in self._asked_told:
                learnt.asked_mono = self._membership.mono_at(self._asked_told[name])

    async def tell_again(self) -> None:
        """After another Redis has begun: tell it the metadata it does not know. Raises RedisTrouble."""
        workloads = filter(None, map(self._workloads.get, self._workloads.names()))
        await asyncio.gather(
            *(
                self._store.register(workload.name, storable(workload.metadata), replace=False)
                for workload in workloads
                if workload.metadata is not None
            )
        )

    async def _share_asked(self) -> None:
        """A workload that is asked for at any scaler is asked for."""
        told: dict[str, float] = {}
        for name in self._workloads.names():
            workload = self._workloads.get(name)
            if workload is not None and workload.metadata is not None:
                at = self._membership.redis_ms(workload.asked_mono)
                if at > self._asked_told.get(name, 0.0) + ASKED_SLACK_SECONDS * 1000:
                    told[name] = at
        for name, at in (await self._store.asked(told)).items():
            self._asked_told[name] = max(at, self._asked_told.get(name, 0.0))
            workload = self._workloads.get(name)
            if workload is not None:
                workload.asked_mono = max(workload.asked_mono, self._membership.mono_at(at))
