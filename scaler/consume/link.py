"""Keeps one engine at a wanted batch, and says what it really runs with. Never raises, never believes a ``200 OK``.

What an adapter can do is small; what can go wrong is the same for all of them and is dealt with here: the batch is
clamped to what the engine can take, set only where it differs, and read back; a change that is not seen, an engine that
does not answer, or a fault in an adapter is a trouble with a reason, tried again after 1, 2, 4 .. 30 s; an engine that
restarted with its own setting is noticed at the next look; and an engine that must load its model anew for a change is
not asked to more often than ``reload_seconds``, nor while memory is short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from scaler.consume.engine import Adapter, EngineBatch, EngineError

#: How often the engine is asked what it runs with, changed or not, unless told otherwise.
LOOK_SECONDS: Final = 10.0
#: How long a change may take to show, and how often it is looked for meanwhile.
SHOW_SECONDS, SHOW_STEP_SECONDS = 10.0, 0.25
#: The first and the longest pause after a failure.
RETRY_SECONDS, RETRY_MOST_SECONDS = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Followed:
    """How the engine stands to what was wanted of it.

    ``wanted`` None: its own setting. ``batch`` is what it told last, None before it ever answered or while it does not.
    ``trouble`` says why it is not at ``wanted`` ("" where it is, or where there is nothing to do about it), and
    ``changed`` whether it was set to something else just now. ``held_seconds``: for how much longer a reload waits.
    """

    wanted: int | None
    batch: EngineBatch | None = None
    trouble: str = ""
    changed: bool = False
    held_seconds: float = 0.0

    @property
    def size(self) -> int | None:
        """The batch the engine runs with; None where it does not tell."""
        return self.batch.size if self.batch else None


class EngineLink:
    """One engine, from one event loop.

    ``look_seconds``: how often it is asked at least. ``reload_seconds``: the least time between two reloads, for an
    adapter that reloads. ``show_seconds``: how long a change may take to show. ``mono`` is the monotonic time.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        mono: Callable[[], float],
        look_seconds: float = LOOK_SECONDS,
        reload_seconds: float = 600.0,
        show_seconds: float = SHOW_SECONDS,
    ) -> None:
        self._adapter = adapter
        self._mono = mono
        self._look_seconds = look_seconds
        self._reload_seconds = reload_seconds
        self._show_seconds = show_seconds
        self._last = Followed(None)
        self._looked_at = self._changed_at = self._retry_at = float("-inf")
        self._failures = 0
        self._may_reload = True
        self._seen: EngineBatch | None = None

    @property
    def last(self) -> Followed:
        """What :meth:`follow` gave last."""
        return self._last

    async def follow(self, wanted: int | None, *, may_reload: bool = True) -> Followed:
        """Bring the engine to ``wanted`` (None: its own setting) if it is not there. Cheap where nothing is to do.

        ``may_reload`` False: memory is short, so no second copy of a model is loaded now.
        """
        now, last = self._mono(), self._last
        same = (wanted, may_reload) == (last.wanted, self._may_reload)
        looked = now < self._looked_at + min(self._look_seconds, last.held_seconds or self._look_seconds)
        if same and (now < self._retry_at or (looked and not (last.trouble and not last.held_seconds))):
            self._last = replace(last, changed=False)
            return self._last
        self._may_reload, self._seen = may_reload, None
        try:
            self._last = await self._brought(wanted, may_reload=may_reload)
            self._failures = 0
        except EngineError as error:
            self._last = self._failed(wanted, str(error))
        except Exception as error:  # noqa: BLE001 - an answer nobody thought of must not end the loop
            self._last = self._failed(wanted, f"an answer that is not understood ({type(error).__name__}: {error})")
        return self._last

    async def release(self, seconds: float) -> bool:
        """Go back to the engine's own setting, within ``seconds``, because nobody will look after it any longer.

        An engine that reloads is left as it is: its mark tells the next who looks. Returns whether it is at its own.
        """
        if self._adapter.reloads:
            return self._last.batch is not None and self._last.batch.follows_own
        try:
            async with asyncio.timeout(seconds):
                followed = await self.follow(None)
        except TimeoutError:
            return False
        return not followed.trouble

    async def _brought(self, wanted: int | None, *, may_reload: bool) -> Followed:
        batch = await self._read()
        if _is_there(batch, wanted):
            return Followed(wanted, batch)
        if batch.size is None:
            raise EngineError("the engine is being changed, or does not tell its batch; nothing is set meanwhile")
        if self._adapter.reloads:
            left = self._changed_at + self._reload_seconds - self._mono()
            if left > 0 or not may_reload:
                why = self._last.trouble if wanted == self._last.wanted else ""  # of the reload that failed
                return Followed(wanted, batch, why, held_seconds=max(left, 1.0) if may_reload else LOOK_SECONDS)
        return Followed(wanted, await self._set(batch, wanted), changed=True)

    async def _set(self, batch: EngineBatch, wanted: int | None) -> EngineBatch:
        """Set it and wait until the engine itself tells so. A request that failed may have taken effect anyway."""
        refusal: EngineError | None = None
        self._changed_at = self._mono()
        try:
            if wanted is None:
                await self._adapter.restore()
            else:
                await self._adapter.write(_possible(batch, wanted))
        except EngineError as error:
            refusal = error
        deadline = self._mono() + (0.0 if refusal else self._show_seconds)
        while True:
            seen = await self._read()
            if _is_there(seen, wanted):
                return seen
            if self._mono() >= deadline:
                asked = "its own setting" if wanted is None else _possible(batch, wanted)
                runs = "something it does not tell" if seen.size is None else seen.size
                raise refusal or EngineError(f"it took the request for {asked}, and runs with {runs}")
            await asyncio.sleep(SHOW_STEP_SECONDS)

    async def _read(self) -> EngineBatch:
        self._seen = await self._adapter.read()
        self._looked_at = self._mono()
        return self._seen

    def _failed(self, wanted: int | None, trouble: str) -> Followed:
        self._retry_at = self._mono() + min(RETRY_SECONDS * 2**self._failures, RETRY_MOST_SECONDS)
        self._failures += 1
        return Followed(wanted, self._seen, trouble)


def _possible(batch: EngineBatch, wanted: int) -> int:
    """``wanted`` within what the engine can take: at most ``most``, a multiple of ``step``, never nothing."""
    most = wanted if batch.most is None else min(wanted, batch.most)
    return max(most // batch.step * batch.step, batch.step)


def _is_there(batch: EngineBatch, wanted: int | None) -> bool:
    return batch.follows_own if wanted is None else batch.size == _possible(batch, wanted)
