"""Claims and hand-overs: which workloads this scaler takes and gives up, and what it goes on from when it takes one."""

from __future__ import annotations

import asyncio

import structlog

from scaler.serve.copies import Copies
from scaler.serve.holding import Held
from scaler.serve.membership import Membership
from scaler.serve.override_relay import overrule
from scaler.serve.ownership import member_of, plan
from scaler.serve.redis_store import RedisStore
from scaler.serve.relay import Relay
from scaler.serve.succession import inherit
from scaler.serve.workloads import Workloads

log = structlog.get_logger(__name__)

#: How long a scaler has lived before living owners hand it what prefers it.
STEADY_SECONDS = 20.0
#: How long a free workload waits for the scaler it prefers before any other takes it.
PATIENCE_SECONDS = 1.5
#: Workloads taken or handed over in one go.
AT_ONCE = 50


class Claims:
    """Keeps ``held``, what this scaler owns, as :func:`scaler.serve.ownership.plan` says. Every method may raise
    RedisTrouble.
    """

    def __init__(
        self,
        workloads: Workloads,
        store: RedisStore,
        membership: Membership,
        copies: Copies,
        relay: Relay,
        held: dict[str, Held],
        *,
        steady_seconds: float = STEADY_SECONDS,
    ) -> None:
        self._workloads = workloads
        self._store = store
        self._membership = membership
        self._copies = copies
        self._relay = relay
        self._held = held
        self._steady_seconds = steady_seconds
        self._free_since: dict[str, float] = {}

    async def balance(self, now: float) -> None:
        owners, living = self._copies.owners(), self._membership.living
        settled = self._membership.settled
        free = [name for name, owner in owners.items() if owner not in living and name not in self._held]
        self._free_since = {name: self._free_since.get(name, now) for name in free} if settled else {}
        todo = plan(
            self._membership.session,
            owners,
            held=frozenset(self._held),
            living=frozenset(living),
            steady=frozenset(each for each, since in living.items() if now - since >= self._steady_seconds),
            settled=settled,
            patience_over=frozenset(name for name, at in self._free_since.items() if now - at > PATIENCE_SECONDS),
            together=self._cards(),
        )
        for name in todo.hand_over[:AT_ONCE]:
            await self.release(name)
        peers, us = self._membership.peers, self._membership.member
        ended = {owner for name in todo.claim if (owner := owners[name]) is not None and member_of(owner) != us}
        await peers.look_at_ended(ended)
        ours = [name for name in todo.claim if owners[name] not in peers.act_alone]
        await asyncio.gather(*(self._claim(name, owners[name]) for name in ours[:AT_ONCE]))
        if len(ours) > AT_ONCE:
            self._membership.after_beat.set()

    def _cards(self) -> dict[str, str]:
        """The card of each workload that shares one."""
        known = filter(None, map(self._workloads.get, self._workloads.names()))
        cards = {each.name: each.resolved.policy.gpu_group.name for each in known}
        return {name: card for name, card in cards.items() if card is not None}

    async def _claim(self, name: str, taken_from: str | None) -> None:
        """Become the owner and go on from what was last written."""
        session, restarts = self._membership.session, self._membership.restarts
        token = await self._store.claim(name, session, taken_from, self._copies.token_seen(name))
        if token is None:
            await self._copies.look(name)
            return
        kept = await self._store.kept(name)
        workload = self._workloads.get(name)
        if workload is None:
            return
        self._relay.put(workload, kept.demand, ours=False)
        self._relay.put_applied(workload, kept.applied)
        away = self._workloads.mono() - self._membership.mono_at(kept.memory_at_ms)
        inherit(workload, kept.memory, away, self._workloads.utc())
        overrule(workload, kept.override, self._workloads.utc())
        self._held[name] = Held(token, self._copies.take(workload, kept.written), restarts)
        self._copies.place(name, session, token)
        log.info(
            "workload taken",
            workload=name,
            taken_from=taken_from,
            state=workload.memory.state,
            idle_seconds=round(workload.memory.idle_seconds, 1),
            away_seconds=round(workload.away_seconds, 1),
        )
        self._workloads.evaluate_soon(workload)

    async def release(self, name: str) -> None:
        """Give up a workload that we hold."""
        held = self._held.pop(name)
        log.info("workload given up", workload=name)
        self._copies.place(name, None, held.token + 1)
        await self._store.release(name, held.token)
