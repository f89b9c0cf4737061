"""Keeps one engine on a wanted rung, awake or asleep, and says where it really is. Never raises.

A wake is tried at once and again every :data:`AGAIN_SECONDS`; what waits is only ever sleep. An engine with requests in
it is not put to sleep, nor one that does not tell how many it has. Both are believed when the engine itself says so. A
request for sleep is waited for before anything else is asked, for a wake that overtakes it would leave the engine
falling asleep with its doors open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from scaler.consume.contract import Rung
from scaler.consume.engine import EngineError, EngineSleep, NoSleepError, Sleeper

#: How often the engine is asked, changed or not; and how soon again after a failure.
LOOK_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Slept:
    """How the engine stands to the rung that was wanted of it last.

    ``rung`` is what it tells itself, None before it ever answered or while it does not. ``trouble`` says why it is not
    on the ``wanted`` one ("" where it is), ``changed`` whether it was brought there just now. ``wake_seconds`` is how
    long its last wake took, from the request until it said that it is awake; None: it was not woken yet.
    """

    wanted: Rung = "awake"
    rung: Rung | None = None
    trouble: str = ""
    changed: bool = False
    wake_seconds: float | None = None


class RungLink:
    """One engine, from one event loop. ``mono`` is the monotonic time."""

    def __init__(self, sleeper: Sleeper, *, mono: Callable[[], float]) -> None:
        self._sleeper = sleeper
        self._mono = mono
        self._next_at = float("-inf")
        self._put_to_sleep = False
        self.last = Slept()
        """What :meth:`follow` gave last."""

    async def follow(self, wanted: Rung, level: int = 1) -> Slept:
        """Bring the engine to ``wanted`` if it is not there; ``level``: how deep it sleeps. Cheap where there is
        nothing to do.
        """
        last = self.last
        if wanted == last.wanted and self._mono() < self._next_at:
            self.last = replace(last, changed=False)
            return self.last
        try:
            self.last = await self._brought(replace(last, wanted=wanted, trouble="", changed=False), level)
        except NoSleepError as error:
            trouble = "" if wanted == "awake" else str(error)
            self.last = replace(last, wanted=wanted, rung="awake", trouble=trouble, changed=False)
        except EngineError as error:
            self.last = replace(last, wanted=wanted, rung=None, trouble=str(error), changed=False)
        except Exception as error:  # noqa: BLE001 - an answer nobody thought of must not end the loop
            said = f"an answer that is not understood ({type(error).__name__}: {error})"
            self.last = replace(last, wanted=wanted, rung=None, trouble=said, changed=False)
        self._next_at = self._mono() + (AGAIN_SECONDS if self.last.trouble else LOOK_SECONDS)
        return self.last

    async def release(self) -> None:
        """Wake it if it was put to sleep from here, because nobody will look after it any longer."""
        if self._put_to_sleep:
            await self.follow("awake")

    async def _brought(self, before: Slept, level: int) -> Slept:
        seen = await self._sleeper.look()
        if before.wanted == _rung(seen):
            return replace(before, rung=before.wanted)
        if before.wanted == "awake":
            return await self._woken(before, seen)
        if seen.busy != 0:
            has = "it does not tell how many requests it has" if seen.busy is None else f"it has {seen.busy} requests"
            return replace(before, rung=_rung(seen), trouble=f"not put to sleep: {has}")
        self._put_to_sleep = True
        await self._sleeper.sleep(level)
        seen = await self._sleeper.look()
        trouble = "" if seen.asleep else "it took the request to sleep, and is awake"
        return replace(before, rung=_rung(seen), trouble=trouble, changed=seen.asleep)

    async def _woken(self, before: Slept, seen: EngineSleep) -> Slept:
        began = self._mono()
        await self._sleeper.wake(seen.level)
        seen = await self._sleeper.look()
        if seen.asleep:
            return replace(before, rung="asleep", trouble="it took the request to wake, and sleeps")
        self._put_to_sleep = False
        return replace(before, rung="awake", changed=True, wake_seconds=round(self._mono() - began, 3))


def _rung(seen: EngineSleep) -> Rung:
    return "asleep" if seen.asleep else "awake"
