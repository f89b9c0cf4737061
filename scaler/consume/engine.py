"""What an adapter is: how one engine's batch is read and set. Everything beyond that is :mod:`scaler.consume.link`'s.

An adapter knows one engine's routes and nothing of targets, retries or time. It says what the engine *tells*, never
what was asked of it: a ``200 OK`` to a change is no proof of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class EngineError(Exception):
    """The engine did not answer, or not as it should; the text is for a person and says what would help."""


class NoSleepError(EngineError):
    """The engine can't be put to sleep as it was started; then it is awake."""


@dataclass(frozen=True, slots=True)
class EngineBatch:
    """The batch as an engine tells it now, in sequences at once, of the whole replica.

    ``size``: what it runs with; None while it does not tell (a change is under way). ``own``: its own setting, to which
    it goes back; None where only the operator knows. ``most``: the most it can be set to. ``step``: it can be set to
    multiples of this only (several schedulers share the batch). ``follows_own``: nobody has set it to anything else.
    ``running``: sequences in it now, and ``waiting``: those that wait outside of it for a place, where the same answer
    tells.
    """

    size: int | None
    own: int | None = None
    most: int | None = None
    step: int = 1
    follows_own: bool = True
    running: int | None = None
    waiting: int | None = None


class Adapter(Protocol):
    """One engine. Every method may raise :class:`EngineError`, and nothing else that an engine can cause."""

    @property
    def engine(self) -> str:
        """Its name, for logs and labels."""

    @property
    def reloads(self) -> bool:
        """Whether a change loads the model anew beside the old one: slow, and it needs room for both."""

    async def read(self) -> EngineBatch:
        """What it runs with, from itself."""

    async def write(self, size: int) -> None:
        """Set the batch to ``size``, a multiple of ``step`` from ``step`` to ``most``."""

    async def restore(self) -> None:
        """Go back to the engine's own setting."""


@dataclass(frozen=True, slots=True)
class EngineSleep:
    """What an engine tells of its sleep. ``level``: how deep, 0 where its memory is held all the same, None while it
    is awake or does not tell; ``busy``: requests in it (running and waiting), None where that is not told. In its sleep
    that count stands still.
    """

    asleep: bool
    level: int | None = None
    busy: int | None = None


class Sleeper(Protocol):
    """An engine that can be put to sleep and woken. Every method may raise :class:`EngineError`."""

    @property
    def engine(self) -> str:
        """Its name, for logs and labels."""

    async def look(self) -> EngineSleep:
        """How it is now, from itself."""

    async def sleep(self, level: int) -> None:
        """Put it to sleep; it has no requests. Returns once it has answered."""

    async def wake(self, level: int | None) -> None:
        """Wake it from a sleep of this level (None: not known), ready to serve."""
