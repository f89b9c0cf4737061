"""Decisions of workloads that we own, written to Redis under our token, and the end of owning one that is another's."""

from __future__ import annotations

import contextlib

import structlog

from scaler.serve.copies import Copies
from scaler.serve.holding import Held
from scaler.serve.membership import Membership
from scaler.serve.ownership import Superseded
from scaler.serve.published_json import encode
from scaler.serve.redis_link import RedisTrouble
from scaler.serve.redis_store import RedisStore
from scaler.serve.succession import memory_text
from scaler.serve.workloads import Workloads

log = structlog.get_logger(__name__)


class Writes:
    """``held`` are the workloads that we own, by name; one that Redis gave to another scaler is taken out of it."""

    def __init__(
        self, workloads: Workloads, store: RedisStore, membership: Membership, copies: Copies, held: dict[str, Held]
    ) -> None:
        self._workloads = workloads
        self._store = store
        self._membership = membership
        self._copies = copies
        self._held = held

    async def write(self, name: str, held: Held) -> None:
        """Write the last decision. Raises :class:`Superseded` where the workload is no longer ours, RedisTrouble."""
        async with held.writing:
            if held.latest is None:
                return
            (snapshot, stored), restarts = held.latest, self._membership.restarts
            session, version = self._membership.session, held.next_version()
            decided_at = snapshot.decided_at.mono
            try:
                ours = await self._store.publish(
                    name,
                    session,
                    version,
                    encode(snapshot),
                    memory_text(name, stored),
                    age_seconds=max(0.0, self._workloads.mono() - decided_at),
                    served_at_ms=self._membership.redis_ms(decided_at) if snapshot.decision.ready else None,
                )
            except RedisTrouble:
                self._membership.doubt()
                raise
            if ours:
                held.confirm(snapshot, restarts)
                if self._held.get(name) is held:
                    self._copies.place(name, session, held.token, version)
                return
        if self._held.get(name) is held:
            del self._held[name]
            log.warning("workload lost to another scaler, its decision is dropped", workload=name)
            self._copies.lost(name)
        raise Superseded

    async def again(self, name: str) -> None:
        """Write what is not confirmed yet, unless a write is under way; without an answer from Redis it stays so."""
        if (held := self._held.get(name)) is not None and not held.writing.locked():
            with contextlib.suppress(Superseded, RedisTrouble):
                await self.write(name, held)
