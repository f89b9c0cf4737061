"""What an adapter is: how one engine's batch is read and set. Everything beyond that is :mod:`scaler.consume.link`'s.

An adapter knows one engine's routes and nothing of targets, retries or time. It says what the engine *tells*, never
what was asked of it: a ``200 OK`` to a change is no proof of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class EngineError(Exception):
    """The engine did not answer, or not as it should; the text is for a person and says what would help."""


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
