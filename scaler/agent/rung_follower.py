"""Brings the rung that rules to the engine, in a loop of its own: waking a model can take a while, and neither the
batch nor the guard waits for it. Nor does a wake wait for a scaler that is slow to be told of the sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from scaler.agent.follow_and_tell import follow_and_tell
from scaler.agent.ruling import Ruling
from scaler.consume.contract import REPORT_EVERY_SECONDS, REPORT_LASTS_SECONDS, AppliedReport
from scaler.consume.rung_link import RungLink, Slept

log = structlog.get_logger(__name__)


class RungFollower:
    """Drives ``link``. ``ruling`` gives what rules now; ``report`` takes to the scaler what the engine runs with.

    Where somebody else reports for this replica (the plugin in the engine, through :meth:`completed`), the rung goes
    along with that, and there is no report of our own: two of one replica would take each other's place.
    """

    def __init__(
        self,
        link: RungLink,
        replica: str,
        ruling: Callable[[], Ruling],
        *,
        mono: Callable[[], float],
        report: Callable[[AppliedReport], Awaitable[bool]] | None = None,
    ) -> None:
        self._link = link
        self._replica = replica
        self._ruling = ruling
        self._report = report
        self._mono = mono
        self._wake = asyncio.Event()
        self._told: tuple[object, ...] = ()
        self._told_at = self._others_at = float("-inf")
        self._others: AppliedReport | None = None
        self.changes = 0
        """How often the engine was put to sleep or woken."""

    @property
    def slept(self) -> Slept:
        """How the engine stands to the rung that was wanted of it last."""
        return self._link.last

    def changed(self) -> None:
        """Look at once: another rung may rule."""
        self._wake.set()

    def completed(self, report: AppliedReport) -> AppliedReport:
        """Somebody else's ``report`` of this replica, with its rung."""
        self._others, self._others_at = report, self._mono()
        return self._with_rung(report)

    async def run(self) -> None:
        """Follow and tell until cancelled."""
        await follow_and_tell(self.follow, self.tell, self._wake)

    async def follow(self) -> None:
        """Bring the engine to the rung that rules now."""
        ruling, before = self._ruling(), self._link.last
        slept = await self._link.follow(ruling.rung, ruling.sleep_level or 1)
        self.changes += slept.changed
        if slept.changed:
            log.info("rung applied", rung=slept.rung, wake_seconds=slept.wake_seconds, generation=ruling.generation)
        elif slept.trouble and slept.trouble != before.trouble:
            log.warning("rung not applied", wanted=slept.wanted, rung=slept.rung, reason=slept.trouble)
        elif before.trouble and not slept.trouble:
            log.info("the engine is on its rung again", rung=slept.rung)

    async def release(self, seconds: float) -> None:
        """At the end: an engine that was put to sleep is woken, within ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._link.release()

    async def tell(self) -> None:
        """Tell the scaler on which rung the engine is, if that is new or due. What it does not tell is not reported."""
        slept = self._link.last
        if self._report is None or slept.rung is None:
            return
        now, told = self._mono(), (slept.rung, slept.wake_seconds)
        others = self._others if now - self._others_at <= REPORT_LASTS_SECONDS else None
        if told == self._told and (others is not None or now - self._told_at < REPORT_EVERY_SECONDS):
            return
        self._told, self._told_at = told, now
        await self._report(self._with_rung(others or AppliedReport(self._replica, None)))

    def _with_rung(self, report: AppliedReport) -> AppliedReport:
        slept = self._link.last
        return replace(report, rung=slept.rung, wake_seconds=slept.wake_seconds)
