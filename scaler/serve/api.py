"""``/v1``: what readers may know of workloads; demand and wakes, what engines applied, and overrides."""

from __future__ import annotations

import asyncio
import hashlib
import math
from itertools import islice
from typing import Any

from aiohttp import web

from scaler import __version__
from scaler.consume.contract import VALID_SECONDS_HEADER, VALID_UNTIL_HEADER, ContractError, ServedTarget, parse_report
from scaler.control.model import Override
from scaler.serve.access import is_token
from scaler.serve.decision_document import adjustment
from scaler.serve.demand_body import DemandBodyError, parse_demand
from scaler.serve.inbox import TooManySourcesError
from scaler.serve.limits import LimitReached, Limits, Seats
from scaler.serve.override_body import OverrideBodyError, parse_override
from scaler.serve.ownership import OwnerUnheard, Told
from scaler.serve.plain_json import instant
from scaler.serve.published import PublishedWorkload, PublishedWorkloads
from scaler.serve.render import (
    Document,
    override_document,
    served_target,
    workload_detail,
    workload_summary,
)
from scaler.serve.snapshot import Snapshot, consumed
from scaler.serve.timeline import COARSE_SECONDS, COARSE_SLOT, columns

#: Longest that a request for a target may wait for the next one, seconds: below the idle limits of common proxies.
WAIT_SECONDS = 60.0
#: Log lines told when a request names no ``limit``, and the most it may name.
DECISIONS_TOLD, DECISIONS_MOST = 50, 1000
#: How far back a timeline reaches.
MINUTES_KEPT = COARSE_SECONDS / 60
#: Names told to someone who asks for a workload that is not there.
NAMES_TOLD = 20
#: A body is a few bytes; a caller that takes longer than this to send it is not sending it.
BODY_SECONDS = 10.0


class ApiError(Exception):
    """A request that is answered with ``status`` and ``{"error": text, ...}``."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(text)
        self.status = status
        self.document = {"error": text, **more}
        self.headers = headers or {}


class Api:
    """The handlers over ``workloads``. ``token``: what gateways and operators must show, None where none is configured.

    Once ``stopping`` is set, requests that wait are answered at once.
    """

    def __init__(
        self,
        workloads: PublishedWorkloads,
        token: str | None,
        stopping: asyncio.Event,
        limits: Limits = Limits(),  # noqa: B008  a frozen value
    ) -> None:
        self._waiting = Seats("waiting requests", limits.waiting_reads_per_workload, limits.waiting_reads)
        self._workloads = workloads
        self._token = token
        self._stopping = stopping

    def routes(self) -> list[web.RouteDef]:
        """Every route of ``/v1``."""
        one = "/v1/workloads/{namespace}/{name}"
        return [
            web.get("/v1/workloads", self.list_workloads),
            web.get(one, self.show_workload),
            web.get(f"{one}/target", self.show_target),
            web.get(f"{one}/decisions", self.list_decisions),
            web.get(f"{one}/timeline", self.show_timeline),
            web.post(f"{one}/demand", self.take_demand),
            web.post(f"{one}/wake", self.take_wake),
            web.post(f"{one}/applied", self.take_applied),
            web.put(f"{one}/override", self.put_override),
            web.delete(f"{one}/override", self.delete_override),
        ]

    async def list_workloads(self, request: web.Request) -> web.Response:
        """Every workload at a glance, by name. With ``trend_minutes`` also the requests in flight over so long, the
        most in each slot of ``trend_slot_seconds``, oldest first.
        """
        slots = int(_number(request, "trend_minutes", 0.0, least=0.0, most=MINUTES_KEPT) * 60 // COARSE_SLOT)
        known = filter(None, map(self._workloads.get, sorted(self._workloads.names())))
        mono = self._workloads.mono()
        told = []
        for workload in known:
            told.append(workload_summary(workload, mono, current=self._is_current(workload.snapshot)))
            if slots:
                told[-1]["in_flight_trend"] = workload.timeline.in_flight(mono, slots)
        document: Document = {
            "version": __version__,
            "now": instant(self._workloads.utc()),
            "tick_seconds": self._workloads.tick_seconds,
            "trend_slot_seconds": COARSE_SLOT if slots else None,
            "workloads": told,
        }
        return web.json_response(document)

    async def show_workload(self, request: web.Request) -> web.Response:
        """One workload whole: signals, state, decision, reasons, sources."""
        workload = self._named(request)
        current = self._is_current(workload.snapshot)
        mono, sharing = self._workloads.mono(), self._sharing(workload)
        return web.json_response(workload_detail(workload, mono, current=current, sharing=sharing))

    def _sharing(self, workload: PublishedWorkload) -> list[PublishedWorkload]:
        """All who share the workload's card, by name; nobody where it shares none."""
        card = workload.resolved.policy.gpu_group.name
        if card is None:
            return []
        known = filter(None, map(self._workloads.get, sorted(self._workloads.names())))
        return [each for each in known if each.resolved.policy.gpu_group.name == card]

    async def list_decisions(self, request: web.Request) -> web.Response:
        """The adjustment log, newest first."""
        workload = self._named(request)
        limit = int(_number(request, "limit", DECISIONS_TOLD, least=1.0, most=DECISIONS_MOST))
        newest = islice(reversed(workload.adjustments), limit)
        return web.json_response({"workload": workload.name, "decisions": [adjustment(entry) for entry in newest]})

    async def show_timeline(self, request: web.Request) -> web.Response:
        """The last ``minutes`` of one workload as columns, oldest first; it is kept since this scaler started."""
        workload = self._named(request)
        minutes = _number(request, "minutes", MINUTES_KEPT, least=0.0, most=MINUTES_KEPT)
        mono = self._workloads.mono()
        document: Document = {
            "workload": workload.name,
            "now": instant(self._workloads.utc()),
            "minutes": minutes,
            "tick_seconds": self._workloads.tick_seconds,
            **columns(workload.timeline.since(mono - minutes * 60), mono),
        }
        return web.json_response(document)

    async def show_target(self, request: web.Request) -> web.Response:
        """What the engine consumes. With ``If-None-Match`` of the target it has: 304, after waiting up to ``wait``
        seconds for another; ``Loadtide-Valid-Seconds`` renews the target on 304 too.
        """
        wait = min(_number(request, "wait", 0.0, least=0.0, most=math.inf), WAIT_SECONDS)
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            workload = self._named(request)
            self._workloads.asked(workload)  # while an engine follows our target, it is to be a living one
            version, snapshot = workload.version, workload.snapshot
            if snapshot is not None and target_tag(snapshot) not in known:
                target = served_target(snapshot, self._workloads.mono())
                return web.json_response(target.document(), headers=_target_headers(snapshot, target))
            left = deadline - loop.time()
            if left <= 0 or self._stopping.is_set():
                break
            try:
                with self._waiting.take(workload.name):
                    await self._next_tick(workload, version, left)
            except LimitReached as error:
                raise ApiError(503, f"{error}; or ask without ?wait", {"Retry-After": "5"}) from None
        if snapshot is None:
            raise ApiError(
                503, f"{workload.name} has no target yet: its first tick is being made", {"Retry-After": "1"}
            )
        target = served_target(snapshot, self._workloads.mono())
        return web.Response(status=304, headers=_target_headers(snapshot, target))

    async def take_demand(self, request: web.Request) -> web.Response:
        """A gateway's report of requests it holds or refused; the workload is evaluated at once."""
        workload = self._pushable(request)
        try:
            report = parse_demand(await _body(request))
        except DemandBodyError as error:
            raise ApiError(400, str(error)) from None
        return await self._told(workload, report)

    async def take_wake(self, request: web.Request) -> web.Response:
        """Somebody wants the workload. A body is read and ignored: there is nothing to add to that."""
        workload = self._pushable(request)
        await _body(request)
        return await self._told(workload, None)

    async def take_applied(self, request: web.Request) -> web.Response:
        """A replica's report of what it really runs with; the next tick reads it."""
        workload = self._authorised(request)
        try:
            report = parse_report(await _body(request))
        except ContractError as error:
            raise ApiError(400, str(error)) from None
        return await self._told(workload, report)

    async def _told(self, workload: PublishedWorkload, told: Told) -> web.Response:
        try:
            await self._workloads.tell(workload, told)
        except TooManySourcesError as error:
            raise ApiError(429, str(error)) from None
        except OwnerUnheard as error:
            raise ApiError(503, f"{error}; try again, or another replica", {"Retry-After": "1"}) from None
        return web.json_response({"accepted": True}, status=202)

    async def put_override(self, request: web.Request) -> web.Response:
        """An operator's word on replicas, batch or both, until its time; it takes the place of any before it."""
        workload, utc = self._authorised(request), self._workloads.utc()
        try:
            override = parse_override(await _body(request), workload.resolved.policy, utc)
        except OverrideBodyError as error:
            raise ApiError(400, str(error)) from None
        return await self._override(workload, override)

    async def delete_override(self, request: web.Request) -> web.Response:
        """No override any more; it is no error that there was none."""
        return await self._override(self._authorised(request), None)

    async def _override(self, workload: PublishedWorkload, override: Override | None) -> web.Response:
        try:
            await self._workloads.set_override(workload, override)
        except OwnerUnheard as error:
            raise ApiError(503, f"{error}; try again, or another replica", {"Retry-After": "1"}) from None
        document = {"workload": workload.name, "override": override_document(override, self._workloads.utc())}
        return web.json_response(document)

    def _is_current(self, snapshot: Snapshot | None) -> bool:
        return snapshot is not None and self._workloads.is_current(snapshot)

    def _named(self, request: web.Request) -> PublishedWorkload:
        name = f"{request.match_info['namespace']}/{request.match_info['name']}"
        workload = self._workloads.get(name)
        if workload is None:
            known = sorted(self._workloads.names())
            told = ", ".join(known[:NAMES_TOLD]) + (", ..." if len(known) > NAMES_TOLD else "")
            text = f"no workload {name!r}; " + (f"known: {told}" if known else "none is known yet")
            raise ApiError(404, text, known=known[:NAMES_TOLD])
        return workload

    def _pushable(self, request: web.Request) -> PublishedWorkload:
        """The workload, for a gateway that may push demand to it."""
        workload = self._authorised(request)
        if not workload.resolved.policy.push.enabled:
            raise ApiError(409, f"{workload.name} takes no pushed demand; write push.enabled: true in its policy")
        return workload

    def _authorised(self, request: web.Request) -> PublishedWorkload:
        """The workload, for a caller with the token. The token is asked for first: without it nothing is told."""
        if self._token is None:
            raise ApiError(503, "pushing needs a token and none is configured: set --token-file or LOADTIDE_TOKEN")
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not is_token(given.strip(), self._token):
            text = "a wrong token" if given else "no token; send the header Authorization: Bearer TOKEN"
            raise ApiError(401, text, {"WWW-Authenticate": 'Bearer realm="loadtide"'})
        return self._named(request)

    async def _next_tick(self, workload: PublishedWorkload, version: int, seconds: float) -> None:
        """Return after the workload's next tick, at ``seconds``, or when the server stops, whichever is first."""
        changed = asyncio.ensure_future(self._workloads.wait_change(workload, version, seconds))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((changed, stopping), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            stopping.cancel()


def target_tag(snapshot: Snapshot) -> str:
    """The entity tag of a target: its generation, and a digest, because a generation that starts anew after a restart
    without stored memory may meet an engine that still holds another target of the same number.
    """
    what = " ".join(map(str, consumed(snapshot.decision.targets)))
    return f'"{snapshot.generation}-{hashlib.blake2s(what.encode(), digest_size=4).hexdigest()}"'


def _target_headers(snapshot: Snapshot, target: ServedTarget) -> dict[str, str]:
    """As headers, so that ``304 Not Modified`` renews the target too."""
    return {
        "ETag": target_tag(snapshot),
        VALID_UNTIL_HEADER: instant(target.valid_until),
        VALID_SECONDS_HEADER: f"{target.valid_seconds:.3f}",
    }


def _number(request: web.Request, name: str, default: float, *, least: float, most: float) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        limits = f"{least:g} or more" if math.isinf(most) else f"{least:g} .. {most:g}"
        raise ApiError(400, f"?{name}={text[:40]} is not a number in its range; write {limits}")
    return value


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {BODY_SECONDS:g} s") from None
    except web.RequestPayloadError as error:
        raise ApiError(400, f"the body cannot be read ({error})") from None
