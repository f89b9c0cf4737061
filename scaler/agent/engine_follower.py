"""Brings what rules to the engine, and the engine's answer to the scaler: one engine, whose adapter we drive.

In loops of their own, so that a slow engine does not hold back the guard, nor a slow scaler what the guard wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from scaler.agent.follow_and_tell import follow_and_tell
from scaler.agent.ruling import Ruling
from scaler.consume.contract import REPORT_EVERY_SECONDS, AppliedReport
from scaler.consume.link import EngineLink, Followed

log = structlog.get_logger(__name__)

#: How often waiting requests are told while there are any. A report of them counts for 60 s (``demand_ttl_seconds``).
DEMAND_EVERY_SECONDS: Final = 5.0


class EngineFollower:
    """Drives ``link``. ``ruling`` gives what rules now, ``report`` takes what was applied to the scaler, and ``demand``
    how many requests wait outside the engine (None: nobody is told); ``running`` gives the sequences in the engine
    where the adapter does not tell.
    """

    def __init__(
        self,
        link: EngineLink,
        replica: str,
        ruling: Callable[[], Ruling],
        *,
        mono: Callable[[], float],
        report: Callable[[AppliedReport], Awaitable[bool]] | None = None,
        demand: Callable[[int, str], Awaitable[bool]] | None = None,
        running: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._link = link
        self._replica = replica
        self._ruling = ruling
        self._report = report
        self._demand = demand
        self._running = running
        self._mono = mono
        self._wake = asyncio.Event()
        self._ruled = Ruling()
        self._told: AppliedReport | None = None
        self._told_at = self._waiting_at = float("-inf")
        self._waiting_told: int | None = None
        self.changes = 0
        """How often the engine was set to something else."""

    @property
    def followed(self) -> Followed:
        """How the engine stands to what was wanted of it last."""
        return self._link.last

    def changed(self) -> None:
        """Look at once: something else may rule."""
        self._wake.set()

    async def run(self) -> None:
        """Follow and tell until cancelled."""
        await follow_and_tell(self.follow, self.tell, self._wake)

    async def follow(self) -> None:
        """Bring the engine to what rules now."""
        ruling, before = self._ruling(), self._link.last
        followed = await self._link.follow(ruling.batch_size, may_reload=ruling.may_reload)
        self._ruled = ruling
        self._log(before, followed, ruling)
        self.changes += followed.changed

    async def tell(self) -> None:
        """Tell the scaler how the engine stands to what ruled last, if that is new or due."""
        followed = self._link.last
        await self._tell(followed, self._ruled)
        await self._tell_waiting(followed)

    async def release(self, seconds: float) -> None:
        """At the end: back to the engine's own setting."""
        released = await self._link.release(seconds)
        log.info("the engine is left alone", at_its_own_setting=released, batch_size=self._link.last.size)

    async def _tell(self, followed: Followed, ruling: Ruling) -> None:
        """What cannot be read is not reported: a report that is not renewed is forgotten, which is the truth."""
        if self._report is None or followed.batch is None or followed.size is None:
            return
        running = self._running() if followed.batch.running is None else followed.batch.running
        follows = ruling.ruler != "own" and not followed.trouble and not followed.held_seconds
        report = AppliedReport(
            replica=self._replica,
            batch_size=followed.size,
            running=running,
            generation=ruling.generation if follows else None,
        )
        same = self._told is not None and (report.batch_size, report.generation) == (
            self._told.batch_size,
            self._told.generation,
        )
        now = self._mono()
        if same and now - self._told_at < REPORT_EVERY_SECONDS:
            return
        self._told, self._told_at = report, now
        await self._report(report)

    async def _tell_waiting(self, followed: Followed) -> None:
        """Requests that the adapter keeps waiting: no metric of the engine's shows them, and replicas are their cure.
        Told while there are any, and once when there are none any longer.
        """
        waiting = followed.batch.waiting if followed.batch else None
        now = self._mono()
        due = self._waiting_told is None or now - self._waiting_at >= DEMAND_EVERY_SECONDS
        if self._demand is None or waiting is None or not due or (waiting == 0 and not self._waiting_told):
            return
        self._waiting_told, self._waiting_at = waiting, now
        await self._demand(waiting, self._replica)

    def _log(self, before: Followed, followed: Followed, ruling: Ruling) -> None:
        if followed.changed:
            log.info(
                "batch applied",
                batch_size=followed.size,
                before=before.size,
                wanted=followed.wanted,
                ruler=ruling.ruler,
                generation=ruling.generation,
            )
        if followed.trouble and followed.trouble != before.trouble:
            log.warning("batch not applied", wanted=followed.wanted, batch_size=followed.size, reason=followed.trouble)
        elif before.trouble and not followed.trouble:
            log.info("the engine follows again", batch_size=followed.size)
        if followed.held_seconds and not before.held_seconds:
            log.info(
                "reload held back",
                wanted=followed.wanted,
                batch_size=followed.size,
                seconds=round(followed.held_seconds),
                memory_is_short=not ruling.may_reload,
            )
