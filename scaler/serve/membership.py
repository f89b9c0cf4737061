"""This scaler's place among the others: its session, the beats that keep it, and what Redis's silence means."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable

import structlog

from scaler.serve.lease import BEAT_SECONDS, LEASE_SECONDS, RETRY_SECONDS, Lease
from scaler.serve.peers import Peers, is_loopback
from scaler.serve.redis_link import RedisLink, RedisTrouble
from scaler.serve.redis_store import Beat, RedisStore

log = structlog.get_logger(__name__)

#: Sessions of long ago are let go of; a workload of one that is met again waits for one beat more.
_HEARD_SECONDS = 3600.0


class Membership:
    """Beats for one scaler over ``link`` and the ``store`` behind it; ``mono`` gives the monotonic time. Its door
    (:mod:`scaler.serve.peers`) is at ``peers_port``, 0 for any free one.

    After each answered beat ``after_beat`` is set. ``restarts`` rises whenever what was written before may not be there
    any more or not count any more: another session, another run of Redis.
    """

    def __init__(self, link: RedisLink, store: RedisStore, mono: Callable[[], float], peers_port: int = 0) -> None:
        self._link = link
        self._store = store
        self._mono = mono
        #: This scaler's name, for as long as its process lives; from the first contact on with the address of its door.
        self.member = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self.lease = Lease()
        self.peers = Peers(self.lease, mono, lambda: self.session, lambda: self.living, self.heard)
        self._peers_port = peers_port
        #: The sessions whose lease lasts, each with the time since when we know it.
        self.living: dict[str, float] = {}
        #: Those of the last beat alone, without who was only heard of.
        self.beating: frozenset[str] = frozenset()
        self._heard: dict[str, float] = {}
        self.restarts = 0
        self.after_beat = asyncio.Event()
        #: Why Redis does not answer, in words; None while it does.
        self.trouble: str | None = "no contact with Redis yet"
        self._sessions = 0
        self._run_id = ""
        self._redis_ms_at_zero = 0.0
        self._at_once = asyncio.Event()

    @property
    def session(self) -> str:
        """The name under which this scaler owns workloads at present."""
        return f"{self.member}#{self._sessions}"

    @property
    def settled(self) -> bool:
        """Whether Redis has run, and been in reach, for long enough that everybody has told it what it may not know."""
        return self.lease.settled(self._mono())

    def redis_ms(self, mono: float) -> float:
        """Redis's time, in ms, at a moment of ours."""
        return self._redis_ms_at_zero + mono * 1000

    def mono_at(self, redis_ms: float) -> float:
        """Our monotonic time at a moment of Redis's, never later than now."""
        return min(self._mono(), (redis_ms - self._redis_ms_at_zero) / 1000)

    def heard(self, session: str) -> None:
        """A session that owns something. One we have not heard of before lives until a beat, sent after this, tells
        otherwise: the last beat may have been answered before it began.
        """
        if session not in self._heard:
            self._heard[session] = self.living[session] = self._mono()

    def ended(self, session: str) -> None:
        """The session has said goodbye."""
        self.living.pop(session, None)
        self._heard[session] = self._mono() - LEASE_SECONDS  # before any beat that is still under way

    def doubt(self) -> None:
        """Some question was not answered, or who lives is not certain: let the next beat tell at once."""
        self._at_once.set()

    async def keep(self) -> None:
        """Beat until cancelled."""
        while True:
            self._at_once.clear()
            try:
                await self._beat()
            except RedisTrouble as trouble:
                await self._missed(trouble)
            except Exception:  # the beat goes on, whatever an answer looked like
                log.exception("beat failed", session=self.session)
            if not self.lease.in_reach:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._at_once.wait(), BEAT_SECONDS)

    async def leave(self) -> None:
        """End the session, so that the others need not wait for its end."""
        if self.lease.in_reach:
            with contextlib.suppress(RedisTrouble):
                await self._store.leave(self.session)
        self.lease.lost(self._mono())
        await self.peers.close()

    async def _beat(self) -> None:
        sent = self._mono()
        beat = None if self._sessions == 0 else await self._store.beat(self.session, begin=False)
        if beat is None:
            if self._sessions:
                log.warning("the lease has ended, another is begun", session=self.session)
            else:
                await self._store.reach()  # before that its name may have no address, and our door would have none
                self.member = await self.peers.open(self.member, await self._link.our_address(), self._peers_port)
            self.lease.lost(sent)
            self._sessions += 1
            self.restarts += 1
            sent = self._mono()
            beat = await self._store.beat(self.session, begin=True)
        if beat is not None:
            self._answered(sent, beat)

    def _answered(self, sent: float, beat: Beat) -> None:
        now = self._mono()
        if not self.lease.in_reach:
            log.info("Redis answers", where=self._link.where, session=self.session)
        self.trouble = None
        self.lease.beaten(sent, now, beat.uptime_seconds)
        self._redis_ms_at_zero = beat.now_ms - now * 1000
        self.beating = beat.sessions
        begun_since = {session for session, at in self._heard.items() if at >= sent}
        self.living = {session: self.living.get(session, now) for session in beat.sessions | begun_since}
        self._heard = {session: at for session, at in self._heard.items() if now - at < _HEARD_SECONDS}
        self._heard |= dict.fromkeys(self.living.keys() - self._heard.keys(), now)
        if beat.run_id != self._run_id:
            self._run_id = beat.run_id
            self.restarts += 1
        self.after_beat.set()

    async def _refuses_all(self) -> bool:
        """Whether Redis's address refuses everybody. One on loopback is a proxy of ours, where others are elsewhere."""
        if not await self._link.refuses():
            return False
        return not (self.peers.elsewhere() and is_loopback(await self._link.our_address()))

    async def _missed(self, trouble: RedisTrouble) -> None:
        """No answer. Whether there is a Redis at all decides what an owner may do."""
        refused = trouble.loading or await self._refuses_all()
        if self.lease.in_reach or self.trouble is None:
            log.warning("Redis does not answer", where=self._link.where, problem=str(trouble), refused=refused)
        self.trouble = str(trouble)
        if refused:
            self.lease.refused(self._mono())
        else:
            self.lease.missed()
