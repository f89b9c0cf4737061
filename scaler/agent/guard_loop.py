"""The memory guard's loop: look at the engine once a second, and let the pure guard judge. No scaler is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from scaler.agent.engine_watch import EVERY_SECONDS, EngineWatch
from scaler.agent.local_guard import LocalGuard, watch
from scaler.control.model import Now
from scaler.policy.model import Policy

log = structlog.get_logger(__name__)


class GuardLoop:
    """Keeps ``guard`` for one engine. ``in_force`` gives the batch that rules without it; ``changed`` is called when
    the guard begins to judge otherwise.
    """

    def __init__(
        self,
        engine: EngineWatch,
        policy: Policy,
        *,
        mono: Callable[[], float],
        in_force: Callable[[], int | None],
        changed: Callable[[], None],
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.engine = engine
        self._policy = policy
        self._mono = mono
        self._utc = utc
        self._in_force = in_force
        self._changed = changed
        self._trouble: str | None = None
        self.guard = LocalGuard()
        self.lowered = self.raised = 0
        """How often the limit was moved down and up."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY_SECONDS)

    async def look(self) -> None:
        """Look once."""
        signals = await self.engine.look()
        before, now = self.guard, Now(self._utc(), self._mono())
        self.guard = watch(before, self._policy, signals, now, in_force=self._in_force())
        if self.engine.trouble != self._trouble:
            self._tell_trouble(self.engine.trouble)
        if self.guard.limit != before.limit:
            down = self.guard.limit is not None and (before.limit is None or self.guard.limit < before.limit)
            self.lowered += down
            self.raised += not down
            log.info(
                "memory guard",
                limit=self.guard.limit,
                before=before.limit,
                reasons=[
                    {
                        "code": reason.code,
                        "signal": reason.signal,
                        "value": reason.value,
                        "threshold": reason.threshold,
                    }
                    for reason in self.guard.reasons
                ],
            )
        if (self.guard.limit, self.guard.pressed) != (before.limit, before.pressed):
            self._changed()

    def _tell_trouble(self, trouble: str) -> None:
        if trouble:
            log.warning("the engine's metrics cannot be read", reason=trouble)
        else:
            log.info("the engine's metrics are read")
        self._trouble = trouble
