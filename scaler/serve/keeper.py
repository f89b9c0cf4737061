"""Ownership shared through Redis, as the loop, the API and KEDA's service see it: what is written, answered, told.

The reasons are in :mod:`scaler.serve.ownership`, what Redis must do in one step in :mod:`scaler.serve.lease`.
Everything here runs on the event loop; between two awaits nothing changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import structlog

from scaler.control.model import Override
from scaler.policy.metadata import storable
from scaler.serve.claims import STEADY_SECONDS, Claims
from scaler.serve.copies import Copies
from scaler.serve.holding import Held
from scaler.serve.inbox import TooManySourcesError
from scaler.serve.lease import LEASE_SECONDS, RETRY_SECONDS
from scaler.serve.membership import Membership
from scaler.serve.override_relay import OverrideRelay
from scaler.serve.ownership import OwnerUnheard, Superseded, Told, put
from scaler.serve.redis_link import RedisLink, RedisTrouble
from scaler.serve.redis_store import RedisStore
from scaler.serve.relay import Relay
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import StoredWorkload
from scaler.serve.workloads import Workload, Workloads
from scaler.serve.writes import Writes

log = structlog.get_logger(__name__)

#: How often everything is compared with Redis, for messages that were missed.
COMPARE_SECONDS = 5.0
#: Longest that a call waits for a write under way.
WRITE_SECONDS = 0.5
#: How long reports of replicas are gathered before they are fetched: a thousand of them report within 10 s.
APPLIED_SECONDS = 0.5
#: Longest that starting waits for Redis.
START_SECONDS = 3.0


class SharedOwnership:
    """This scaler among others, over ``link``. ``peers_port``: see :mod:`scaler.serve.peers`; ``steady_seconds``: see
    :mod:`scaler.serve.claims`.
    """

    def __init__(
        self, workloads: Workloads, link: RedisLink, *, peers_port: int = 0, steady_seconds: float = STEADY_SECONDS
    ) -> None:
        self._workloads = workloads
        self._link = link
        self._store = store = RedisStore(link)
        self._membership = Membership(link, store, workloads.mono, peers_port)
        self._lease = self._membership.lease
        self._held: dict[str, Held] = {}
        self._copies = Copies(workloads, store, self._membership, self._held.__contains__)
        self._writes = Writes(workloads, store, self._membership, self._copies, self._held)
        self._relay = Relay(store, self._membership)
        self._overrides = OverrideRelay(workloads, store)
        self._claims = Claims(
            workloads, store, self._membership, self._copies, self._relay, self._held, steady_seconds=steady_seconds
        )
        self._known: set[str] = set()
        #: Workloads whose metadata the others have yet to hear of.
        self._untold: set[str] = set()
        #: Whether another scaler has said that it was called about a workload; once for any number of them.
        self._to_learn = False
        #: Workloads of which gateways may have told what we have not read: nobody tells a wake twice.
        self._unheard: set[str] = set()
        #: Workloads whose replicas have reported to other scalers.
        self._to_take: set[str] = set()
        self._compare_due = workloads.mono()
        self._told_restarts = 0
        self._compared_at = math.inf
        #: Everything has been compared once, a beat since has told which of the owners met then have ended, and these
        #: have been looked at.
        self.joined = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def trouble(self) -> str | None:
        """Why Redis does not answer; None while it does."""
        return self._membership.trouble

    @property
    def deaf(self) -> bool:
        """Whether Redis does not answer: what others were asked we cannot hear."""
        return not self._lease.in_reach

    def owns(self, name: str) -> bool:
        """Whether we hold it, and the lease lasts or there is no Redis to give it to anybody else."""
        return name in self._held and self._lease.acts(self._workloads.mono())

    def notice(self, workload: Workload) -> None:
        """Tell the others of new metadata; see soon whether a workload without owner is to be ours."""
        if self._copies.is_news(workload):
            self._untold.add(workload.name)
        if workload.owner is None or workload.name in self._untold:
            self._membership.after_beat.set()

    async def publish(self, workload: Workload, snapshot: Snapshot, stored: Callable[[], StoredWorkload]) -> None:
        """Write under our token. Without an answer from Redis the decision stays unconfirmed, and is written again when
        Redis is back. Raises :class:`Superseded`.
        """
        held = self._held.get(workload.name)
        if held is None:
            raise Superseded
        held.decided(snapshot, stored())
        if self._lease.in_reach:
            with contextlib.suppress(RedisTrouble):
                await self._writes.write(workload.name, held)

    def at_hand(self, workload: Workload) -> Snapshot | None:
        """Ours, while it is certainly ours and what others may read says nothing else."""
        held = self._held.get(workload.name)
        if held is None or not self._lease.held(self._workloads.mono()):
            return None
        return workload.snapshot if self._may_tell(held, workload) else None

    async def answer(self, workload: Workload) -> Snapshot | None:
        """Ours while it is certainly ours; else the copy, once Redis has said that it is the last."""
        name, mono = workload.name, self._workloads.mono
        held = self._held.get(name)
        if held is not None and not held.told(workload.snapshot) and self._lease.held(mono()):
            await self._workloads.wait_change(workload, workload.version, WRITE_SECONDS)
            held = self._held.get(name)
        if held is not None and self._lease.held(mono()):
            if not self._may_tell(held, workload):
                raise OwnerUnheard(f"{name}: its last decision is not written to {self._link.where} yet")
            return workload.snapshot
        if held is not None and self._lease.alone(mono()):
            return workload.snapshot
        if not self._lease.in_reach:
            raise OwnerUnheard(f"{name}: its owner's last decision cannot be read: {self.trouble}")
        return await self._copies.latest(workload, self._answerable())

    def _may_tell(self, held: Held, workload: Workload) -> bool:
        """Whether what we say of a workload of ours is what was decided last, and nobody may read anything else. In a
        new session it may be another's by now: until Redis has taken a write of ours nothing is certain.
        """
        known = held.known_at == self._membership.restarts
        return known and held.told(workload.snapshot) and not held.contradicts()

    def _answerable(self) -> Collection[str] | None:
        """The sessions whose workloads can be answered for; None: all. An owner whose session has ended may have come
        to say something else meanwhile.
        """
        if not self.joined.is_set():
            return self._membership.beating
        if self._membership.settled and not self._membership.peers.act_alone:
            return None
        return frozenset(self._membership.living)

    async def tell(self, workload: Workload, told: Told) -> None:
        """Into Redis, where the owner of the moment and its successors find it; what is ours is heard at once, too."""
        if self.owns(workload.name):
            put(workload, told)
            self._run(self._relay.tell(workload, told))  # for a successor: we have heard it ourselves
            return
        try:
            if not self._lease.in_reach:
                raise OwnerUnheard(self.trouble)
            taken = await self._relay.tell(workload, told)
        except (RedisTrouble, OwnerUnheard) as trouble:
            raise OwnerUnheard(f"{workload.name}: its owner cannot be told: {trouble}") from trouble
        if not taken:
            raise TooManySourcesError("as many sources as are kept report already; give each one lasting name")

    async def set_override(self, workload: Workload, override: Override | None) -> None:
        """Into Redis, from where the owner takes it; from there to ours at once, where it is ours."""
        try:
            if not self._lease.in_reach:
                raise OwnerUnheard(self.trouble)
            await self._overrides.tell(workload.name, override)
            await self._overrides.take(filter(self.owns, (workload.name,)))
        except (RedisTrouble, OwnerUnheard) as trouble:
            raise OwnerUnheard(f"{workload.name}: its owner cannot be told: {trouble}") from trouble

    async def start(self) -> None:
        """Begin to beat, listen and follow; wait a little for the first contact, so that readiness means something."""
        keeping = (self._membership.keep(), self._membership.peers.watch(), self._listen(), self._copies.follow())
        for each in (*keeping, self._keep()):
            self._run(each)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self.joined.wait()

    async def stop(self) -> None:
        """End the session, so that the others need not wait for its end."""
        held = len(self._held)
        self._held.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._membership.leave()
        log.info("ownership given up", workloads=held)
        await self._link.close()

    # -- keeping -------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """See to ownership after each beat, and whenever there is a reason to."""
        while True:
            await self._membership.after_beat.wait()
            self._membership.after_beat.clear()
            if not self._lease.held(self._workloads.mono()):
                continue  # whatever we wrote would be owned by nobody who lives
            try:
                await self._see_to()
            except RedisTrouble:
                self._membership.doubt()
            except Exception:
                log.exception("keeping ownership failed")

    async def _see_to(self) -> None:
        """What we hold is written, what nobody asks for is let go, what is ours to take is taken."""
        beat_since = self._lease.answered_at > self._compared_at
        known = set(self._workloads.names())
        gone, self._known = self._known - known, known
        for name in gone:
            if name in self._held:
                await self._store.unregister(name)
                await self._claims.release(name)
            self._copies.forget(name)
        restarts = self._membership.restarts
        if restarts != self._told_restarts:
            await self._copies.tell_again()
            await self._overrides.tell_again(self._held)
            self._told_restarts, self._compare_due = restarts, self._workloads.mono()
        for name in [name for name, held in self._held.items() if held.confirmed_at != restarts]:
            self._run(self._writes.again(name))
        await asyncio.gather(*(self._register(name) for name in tuple(self._untold)))
        if self._to_learn:
            self._to_learn = False
            await self._copies.learn(just_asked=True)
        now = self._workloads.mono()
        if now >= self._compare_due:
            self._compare_due = now + COMPARE_SECONDS
            await self._copies.compare()
            await self._overrides.take(self._held)
            if self._compared_at == math.inf:
                self._compared_at = self._workloads.mono()
                self._membership.doubt()
            held = filter(None, map(self._workloads.get, self._held))
            self._untold |= {workload.name for workload in held if self._copies.is_news(workload)}
        unheard, self._unheard = self._unheard, set()
        await asyncio.gather(*(self._take_demand(name, evaluate=False) for name in unheard & self._held.keys()))
        await self._claims.balance(now)
        if beat_since:
            self.joined.set()

    async def _register(self, name: str) -> None:
        workload = self._workloads.get(name)
        if workload is not None and workload.metadata is not None:
            await self._store.register(name, storable(workload.metadata))
        self._untold.discard(name)

    # -- messages and demand -------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear the others for ever, over a new connection when one breaks or falls silent."""
        while True:
            with contextlib.suppress(RedisTrouble):
                async for words in self._link.events(LEASE_SECONDS):
                    self._hear(words)
            await asyncio.sleep(RETRY_SECONDS)

    def _hear(self, words: list[str]) -> None:
        session = self._membership.session
        match words:
            case ["listening"]:
                self._compare_due = self._workloads.mono()  # whatever was said before was missed
                self._unheard |= self._held.keys()
                self._membership.doubt()  # it may be another Redis: the beat tells, and what is compared is after it
            case ["published" | "owned", name, by] if by != session:
                self._copies.mark(name)
            case ["demand", name, by] if self.owns(name):
                # Ours is in the inbox and judged, unless it was read from Redis just before ours came there.
                self._run(self._take_demand(name, evaluate=by != session))
            case ["demand", name, _]:
                self._unheard.add(name)  # it may be being claimed at this moment, on what Redis held before
            case ["applied", name, by] if by != session and self.owns(name) and name not in self._to_take:
                self._to_take.add(name)
                self._run(self._take_applied(name))
            case ["override", name] if self.owns(name):
                self._run(self._overrides.take((name,)))
            case ["registered", _]:
                self._to_learn = True
                self._membership.after_beat.set()
            case ["released", name]:
                self._copies.freed(name)
                self._membership.after_beat.set()
            case ["gone", by]:
                self._membership.ended(by)
                self._membership.after_beat.set()
            case _:
                return

    async def _take_applied(self, name: str) -> None:
        """What replicas reported to others; once for the many that report within a moment."""
        await asyncio.sleep(APPLIED_SECONDS)
        self._to_take.discard(name)
        workload = self._workloads.get(name)
        if workload is not None:
            await self._relay.take_applied(workload)

    async def _take_demand(self, name: str, *, evaluate: bool) -> None:
        try:
            demand = await self._store.demand(name)
        except RedisTrouble:
            self._unheard.add(name)
            raise
        workload = self._workloads.get(name)
        if not self.owns(name):
            self._unheard.add(name)
        elif workload is not None:
            self._relay.put(workload, demand, ours=True)
            if evaluate:
                self._workloads.evaluate_soon(workload)

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        async def unless_in_trouble() -> None:
            with contextlib.suppress(RedisTrouble):
                await work

        task = asyncio.create_task(unless_in_trouble())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
