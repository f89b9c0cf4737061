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
import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from scaler.consume.contract import AppliedReport, ContractError, parse_report
from scaler.serve import lease
from scaler.serve.applied import MAX_REPLICAS
from scaler.serve.demand_body import DemandReport
from scaler.serve.inbox import MAX_SOURCES
from scaler.serve.redis_link import RedisLink
from scaler.value import frozen

#: What nobody has written for so long is of no workload any more.
KEPT_MS = 7 * 86_400_000

_MEMBERS, _WORKLOADS, _ASKED = "loadtide:members", "loadtide:workloads", "loadtide:asked"
_OVERRIDES = "loadtide:overrides"
_WAKE, _REPORT = "wake", "from:"
_POSITION = ("owner", "token", "version")


@frozen
class Beat:
    """The answer to a beat: Redis's time in ms, every session whose lease lasts, which Redis this is and since when."""

    now_ms: float
    sessions: frozenset[str]
    run_id: str
    uptime_seconds: float


#: Orders everything ever written of a workload: (fencing token of the writer, number of its write).
Version = tuple[int, int]
#: Nothing has been written yet.
UNWRITTEN: Version = (0, 0)


@frozen
class Position:
    """Where a workload stands in Redis: its owner's session (None: nobody's), the fencing token, the last write."""

    owner: str | None
    token: int
    version: Version


@frozen
class Demand:
    """What gateways told: reports and a wake, each with the Redis time in ms at which it came."""

    reports: tuple[tuple[DemandReport, float], ...] = ()
    wake_at_ms: float | None = None


#: What replicas reported to run with, each with the Redis time in ms at which it came.
AppliedAt = tuple[tuple[AppliedReport, float], ...]


@frozen
class Written:
    """The last write: its snapshot as text, and the Redis time in ms at which that was decided."""

    position: Position
    snapshot: str
    at_ms: float


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


class RedisStore:
    """The shared state at the other end of ``link``. Every method may raise RedisTrouble."""

    def __init__(self, link: RedisLink) -> None:
        self._channel = link.channel
        # The beat must not wait behind anything, nor a call from KEDA behind snapshots.
        self._beats, self._calls, self._bulk = link.lane(), link.lane(), link.lane()

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
        return _position(await self._calls.ask("HMGET", _key(name), *_POSITION))

    async def positions(self, names: Iterable[str]) -> dict[str, Position | None]:
        """Where many workloads stand."""
        wanted = list(names)
        answers = await asyncio.gather(*(self._bulk.ask("HMGET", _key(name), *_POSITION) for name in wanted))
        return {name: _position(answer) for name, answer in zip(wanted, answers, strict=True)}

    async def written(self, name: str, *, for_a_call: bool) -> Written | None:
        """The last write; None where there is none."""
        lane = self._calls if for_a_call else self._bulk
        return _written(await lane.ask("HMGET", _key(name), *_POSITION, "snapshot", "at"))

    async def kept(self, name: str) -> Kept:
        """Everything known of the workload, for its new owner."""
        state, demand, applied, override = await asyncio.gather(
            self._bulk.ask("HMGET", _key(name), *_POSITION, "snapshot", "at", "memory", "memory_at"),
            self._bulk.ask("HGETALL", _demand_key(name)),
            self._bulk.ask("HGETALL", _applied_key(name)),
            self._bulk.ask("HGET", _OVERRIDES, name),
        )
        written, memory_at = _written(state[:5]), float(state[6] or 0)
        return Kept(written, state[5], memory_at, _demand(demand), _applied(applied), override)

    async def demand(self, name: str) -> Demand:
        """What gateways told of the workload."""
        return _demand(await self._calls.ask("HGETALL", _demand_key(name)))

    async def applied(self, name: str) -> AppliedAt:
        """What the workload's replicas reported to run with."""
        return _applied(await self._bulk.ask("HGETALL", _applied_key(name)))

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
        field, text = _WAKE, ""
        if report is not None:
            arrivals = "-" if report.arrivals_per_second is None else repr(report.arrivals_per_second)
            field, text = f"{_REPORT}{report.source}", f"{report.pending!r} {arrivals}"
        answer = await self._calls.ask(
            *("EVAL", lease.TELL, 1, _demand_key(name), field, text, round(kept_seconds * 1000), MAX_SOURCES),
            *(self._channel, f"demand {name} {session}"),
        )
        return bool(answer)

    async def tell_applied(self, name: str, report: AppliedReport, kept_seconds: float, session: str) -> bool:
        """Keep a replica's report for the owner; False where too many replicas report already."""
        field, text = f"{_REPORT}{report.replica}", report.body().decode()
        answer = await self._bulk.ask(
            *("EVAL", lease.TELL, 1, _applied_key(name), field, text, round(kept_seconds * 1000), MAX_REPLICAS),
            *(self._channel, f"applied {name} {session}"),
        )
        return bool(answer)

    async def overrides(self) -> Mapping[str, str]:
        """What was last said of each workload's override: its text, or nothing for its end."""
        answer: Mapping[str, str] = await self._calls.ask("HGETALL", _OVERRIDES)
        return answer

    async def set_override(self, name: str, text: str, *, replace: bool = True) -> None:
        """Keep the workload's override, or that it has ended (""); ``replace`` False: unless something is kept."""
        if not replace:
            await self._bulk.ask("HSETNX", _OVERRIDES, name, text)
            return
        await self._calls.ask("HSET", _OVERRIDES, name, text)
        await self._calls.ask("PUBLISH", self._channel, f"override {name}")

    async def registered(self) -> dict[str, dict[str, str]]:
        """The metadata of every workload that some call made known, by name."""
        answer: Mapping[str, str] = await self._bulk.ask("HGETALL", _WORKLOADS)
        known = {}
        for name, text in answer.items():
            with contextlib.suppress(ValueError):  # one that cannot be read must keep nobody from hearing of the others
                known[name] = json.loads(text)
        return known

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
        return {name: float(at) for name, at in answer.items()}

    async def unregister(self, name: str) -> None:
        """Nobody asks for the workload any more. What it remembers stays, for who asks again."""
        await self._bulk.ask("HDEL", _WORKLOADS, name)
        await self._bulk.ask("HDEL", _ASKED, name)
        await self._bulk.ask("HDEL", _OVERRIDES, name)


def _key(name: str) -> str:
    return f"loadtide:{{{name}}}"


def _demand_key(name: str) -> str:
    return f"loadtide:{{{name}}}:demand"


def _applied_key(name: str) -> str:
    return f"loadtide:{{{name}}}:applied"


def _position(answer: list[str | None]) -> Position | None:
    owner, token, version = answer
    if token is None:
        return None
    by, _, number = (version or "0.0").partition(".")
    return Position(owner, int(token), (int(by), int(number)))


def _written(answer: list[str | None]) -> Written | None:
    position, snapshot, at = _position(answer[:3]), answer[3], answer[4]
    return None if position is None or not snapshot else Written(position, snapshot, float(at or 0))


def _demand(entries: Mapping[str, str]) -> Demand:
    reports, wake = [], None
    for field, text in entries.items():
        at, *told = text.split(" ")
        try:
            if field == _WAKE:
                wake = float(at)
            elif field.startswith(_REPORT):
                pending, arrivals = told
                flow = None if arrivals == "-" else float(arrivals)
                reports.append((DemandReport(float(pending), flow, field[len(_REPORT) :]), float(at)))
        except ValueError:  # of another version of loadtide; its gateway reports again
            continue
    return Demand(tuple(reports), wake)


def _applied(entries: Mapping[str, str]) -> AppliedAt:
    reports = []
    for text in entries.values():
        at, _, body = text.partition(" ")
        try:
            reports.append((parse_report(body), float(at)))
        except (ContractError, ValueError):  # of another version of loadtide; its replica reports again in seconds
            continue
    return tuple(reports)
