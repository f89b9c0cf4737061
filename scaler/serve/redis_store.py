"""Redis (or Valkey) as what several scalers share: who lives, who owns what, what was decided, what gateways told.

Keys, all under ``loadtide:``:

- ``loadtide:members``: the sessions, each with the Redis time at which its lease ends (sorted set);
- ``loadtide:workloads``: the metadata of every workload that a call made known, less what came from the environment
  there (hash, name → JSON);
- ``loadtide:asked``: when each workload was last asked for at any scaler (hash, name → Redis time);
- ``loadtide:overrides``: operators' overrides (hash, name → JSON; empty: it was ended);
- ``loadtide:{NAMESPACE/NAME}``: owner, fencing token, number of the last write, its snapshot, its memory (hash);
- ``loadtide:{NAMESPACE/NAME}:demand``: the gateways' reports and a wake, each with its Redis time (hash);
- ``loadtide:{NAMESPACE/NAME}:applied``: what each replica reported to run with, likewise (hash).

The channel ``loadtide:DATABASE:events`` only says *that* something changed and is never believed further: who missed a
message finds out from the keys. URLs may hold secrets and whoever writes here decides on replicas, so this Redis wants
a password and, over a network that is not ours, TLS (``rediss://``).

"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from scaler.consume.contract import AppliedReport
from scaler.serve import lease, redis_values
from scaler.serve.applied import MAX_REPLICAS
from scaler.serve.demand_body import DemandReport
from scaler.serve.inbox import MAX_SOURCES
from scaler.serve.redis_link import Lane, RedisLink, RedisTrouble
from scaler.serve.redis_values import AppliedAt, Demand, Position, Version, Written
from scaler.value import frozen

log = structlog.get_logger(__name__)

#: What nobody has written for so long is of no workload any more.
KEPT_MS = 7 * 86_400_000

_MEMBERS, _WORKLOADS, _ASKED = "loadtide:members", "loadtide:workloads", "loadtide:asked"
OVERRIDES = "loadtide:overrides"
_POSITION = ("owner", "token", "version")


@frozen
class Beat:
    """The answer to a beat: Redis's time in ms, every session whose lease lasts, which Redis this is and since when."""

    now_ms: float
    sessions: frozenset[str]
    run_id: str
    uptime_seconds: float


@frozen
class Kept:
    """What a new owner goes on from. ``memory`` is text of :mod:`scaler.serve.store`, ``override`` one of
    :mod:`scaler.serve.override_relay`; None where none is kept.
    """

    written: Written | None
    memory: str | None
    memory_at_ms: float
    demand: Demand
    applied: AppliedAt
    override: str | None = None


class _Mended:
    """A lane in which a key that holds another kind of thing than loadtide keeps there is deleted, and the command
    asked again: all that is kept there is written again, and every question about it would fail for ever.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    async def ask(self, *command: Any) -> Any:
        """The answer to one command. Raises RedisTrouble."""
        try:
            return await self._lane.ask(*command)
        except RedisTrouble as trouble:
            if not trouble.wrong_kind:
                raise
        for key in command[3 : 3 + command[2]] if command[0] == "EVAL" else command[1:2]:
            if await self._lane.ask("EVAL", lease.MEND, 1, key, "zset" if key == _MEMBERS else "hash"):
                log.warning("a key in Redis held something that loadtide does not write, it is deleted", key=key)
        return await self._lane.ask(*command)


class RedisStore:
    """The shared state at the other end of ``link``. Every method may raise RedisTrouble."""

    def __init__(self, link: RedisLink) -> None:
        self._channel = link.channel
        # The beat must not wait behind anything, nor a call from KEDA behind snapshots.
        self._beats, self._calls, self._bulk = (_Mended(link.lane()) for _ in range(3))

    async def beat(self, session: str, *, begin: bool) -> Beat | None:
        """Renew the session's lease, or ``begin`` it; None where it has ended and another must be begun."""
        length, what = round(lease.LEASE_SECONDS * 1000), "begin" if begin else "renew"
        answer: Any
        info: Any
        answer, info = await asyncio.gather(
            self._beats.ask("EVAL", lease.BEAT, 1, _MEMBERS, session, length, what, self._channel),
            self._beats.ask("INFO", "server"),
            return_exceptions=True,
        )
        if isinstance(answer, BaseException):
            raise answer
        if answer[0] == "lost":
            return None
        if isinstance(info, BaseException):  # not permitted to us; that Redis was away tells of a restart as well
            info = {"uptime_in_seconds": math.inf}
        run_id, uptime = str(info.get("run_id", "")), float(info["uptime_in_seconds"])
        return Beat(float(answer[0]), frozenset(answer[1:]), run_id, uptime)

    async def reach(self) -> None:
        """Return once Redis has answered anything at all."""
        await self._beats.ask("ZSCORE", _MEMBERS, "")

    async def leave(self, session: str) -> None:
        """End the session at once: its workloads are free."""
        await self._beats.ask("ZREM", _MEMBERS, session)
        await self._beats.ask("PUBLISH", self._channel, f"gone {session}")

    async def position(self, name: str) -> Position | None:
        """Where the workload stands, asked for a call; None where nobody has ever owned it."""
        return redis_values.position(_key(name), *await self._calls.ask("HMGET", _key(name), *_POSITION))

    async def positions(self, names: Iterable[str]) -> dict[str, Position | None]:
        """Where many workloads stand."""
        wanted = list(names)
        answers = await asyncio.gather(*(self._bulk.ask("HMGET", _key(name), *_POSITION) for name in wanted))
        return {name: redis_values.position(_key(name), *answer) for name, answer in zip(wanted, answers, strict=True)}

    async def written(self, name: str, *, for_a_call: bool) -> Written | None:
        """The last write; None where there is none."""
        lane = self._calls if for_a_call else self._bulk
        return redis_values.written(_key(name), await lane.ask("HMGET", _key(name), *_POSITION, "snapshot", "at"))

    async def kept(self, name: str) -> Kept:
        """Everything known of the workload, for its new owner."""
        state, demand, applied, override = await asyncio.gather(
            self._bulk.ask("HMGET", _key(name), *_POSITION, "snapshot", "at", "memory", "memory_at"),
            self._bulk.ask("HGETALL", _demand_key(name)),
            self._bulk.ask("HGETALL", _applied_key(name)),
            self._bulk.ask("HGET", OVERRIDES, name),
        )
        written = redis_values.written(_key(name), state[:5])
        # A memory of unknown age is of now: time away that nobody knows of must not count as idle.
        memory_at = redis_values.moment_ms(_key(name), "memory_at", state[6])
        told, reported = redis_values.demand(demand), redis_values.applied(applied)
        return Kept(written, state[5], math.inf if memory_at is None else memory_at, told, reported, override)

    async def demand(self, name: str) -> Demand:
        """What gateways told of the workload."""
        return redis_values.demand(await self._calls.ask("HGETALL", _demand_key(name)))

    async def applied(self, name: str) -> AppliedAt:
        """What the workload's replicas reported to run with."""
        return redis_values.applied(await self._bulk.ask("HGETALL", _applied_key(name)))

    async def claim(self, name: str, session: str, taken_from: str | None, seen: int) -> int | None:
        """Become the owner instead of ``taken_from``: the fencing token, above ``seen``; None: another was faster."""
        answer = await self._bulk.ask(
            *("EVAL", lease.CLAIM, 1, _key(name), session, taken_from or "", seen, self._channel, name)
        )
        return int(answer) if answer else None

    async def release(self, name: str, token: int) -> None:
        """Give the workload up."""
        await self._bulk.ask("EVAL", lease.RELEASE, 1, _key(name), token, self._channel, name)

    async def publish(
        self,
        name: str,
        session: str,
        version: Version,
        snapshot: str,
        memory: str,
        *,
        age_seconds: float,
        served_at_ms: float | None,
    ) -> bool:
        """Write what was decided ``age_seconds`` ago, under the token in ``version``; ``memory`` "" leaves the one
        there. ``served_at_ms``: since then, by Redis's time, a replica is ready, which answers a wake of before; None:
        none is. False where a higher token is known: the workload is somebody else's now.
        """
        token, write = version
        answer = await self._bulk.ask(
            *("EVAL", lease.PUBLISH, 2, _key(name), _demand_key(name), token, session, write, snapshot, memory),
            *(round(age_seconds * 1000), "" if served_at_ms is None else round(served_at_ms), KEPT_MS),
            *(self._channel, name),
        )
        return bool(answer)

    async def tell_demand(self, name: str, report: DemandReport | None, kept_seconds: float, session: str) -> bool:
        """Keep a gateway's report, or a wake (None), for the owner; False where too many gateways report already."""
        field, text = redis_values.WAKE, ""
        if report is not None:
            arrivals = "-" if report.arrivals_per_second is None else repr(report.arrivals_per_second)
            field, text = f"{redis_values.REPORT}{report.source}", f"{report.pending!r} {arrivals}"
        answer = await self._calls.ask(
            *("EVAL", lease.TELL, 1, _demand_key(name), field, text, round(kept_seconds * 1000), MAX_SOURCES),
            *(self._channel, f"demand {name} {session}"),
        )
        return bool(answer)

    async def tell_applied(self, name: str, report: AppliedReport, kept_seconds: float, session: str) -> bool:
        """Keep a replica's report for the owner; False where too many replicas report already."""
        field, text = f"{redis_values.REPORT}{report.replica}", report.body().decode()
        answer = await self._bulk.ask(
            *("EVAL", lease.TELL, 1, _applied_key(name), field, text, round(kept_seconds * 1000), MAX_REPLICAS),
            *(self._channel, f"applied {name} {session}"),
        )
        return bool(answer)

    async def overrides(self) -> Mapping[str, str]:
        """What was last said of each workload's override: its text, or nothing for its end."""
        answer: Mapping[str, str] = await self._calls.ask("HGETALL", OVERRIDES)
        return answer

    async def set_override(self, name: str, text: str, *, replace: bool = True) -> None:
        """Keep the workload's override, or that it has ended (""); ``replace`` False: unless something is kept."""
        if not replace:
            await self._bulk.ask("HSETNX", OVERRIDES, name, text)
            return
        await self._calls.ask("HSET", OVERRIDES, name, text)
        await self._calls.ask("PUBLISH", self._channel, f"override {name}")

    async def registered(self) -> dict[str, dict[str, str]]:
        """The metadata of every workload that some call made known, by name."""
        answer: Mapping[str, str] = await self._bulk.ask("HGETALL", _WORKLOADS)
        return redis_values.registered(_WORKLOADS, answer)

    async def register(self, name: str, metadata: Mapping[str, str], *, replace: bool = True) -> None:
        """Make the workload known to every scaler; ``replace`` False: unless it is."""
        text = json.dumps(dict(metadata), sort_keys=True)
        if not replace:
            await self._bulk.ask("HSETNX", _WORKLOADS, name, text)
            return
        await self._calls.ask("HSET", _WORKLOADS, name, text)
        await self._calls.ask("PUBLISH", self._channel, f"registered {name}")

    async def asked(self, told: Mapping[str, float]) -> dict[str, float]:
        """When each workload was last asked for at any scaler, Redis time in ms, after adding ``told``."""
        if told:
            await self._bulk.ask("HSET", _ASKED, *(part for name, at in told.items() for part in (name, round(at))))
        answer: Mapping[str, str] = await self._bulk.ask("HGETALL", _ASKED)
        return redis_values.asked(_ASKED, answer)

    async def unregister(self, name: str) -> None:
        """Nobody asks for the workload any more. What it remembers stays, for who asks again."""
        await self._bulk.ask("HDEL", _WORKLOADS, name)
        await self._bulk.ask("HDEL", _ASKED, name)
        await self._bulk.ask("HDEL", OVERRIDES, name)


def _key(name: str) -> str:
    return f"loadtide:{{{name}}}"


def _demand_key(name: str) -> str:
    return f"loadtide:{{{name}}}:demand"


def _applied_key(name: str) -> str:
    return f"loadtide:{{{name}}}:applied"
