"""Workloads nobody asks for at present: no ticks and no series, but what they had learned waits for who asks again.

A ScaledObject paused by annotation is one: KEDA stops calling. When it calls again, the memory, the timers and the
targets of before come back, as after a restart.
"""

from __future__ import annotations

from collections.abc import Callable

from scaler.serve.store import StoredWorkload

#: How long a memory waits, seconds. A service that nobody scaled for a week is best learned anew.
KEEP_SECONDS = 7 * 86_400.0
#: More than these are names that somebody makes up; the one put away first goes first.
MOST = 10_000


class Dormant:
    """Memories by ``namespace/name``. ``away`` says how long ago one was saved, seconds."""

    def __init__(self, away: Callable[[StoredWorkload], float]) -> None:
        self._away = away
        self._items: dict[str, StoredWorkload] = {}

    def put(self, name: str, stored: StoredWorkload) -> None:
        """Keep ``stored`` until it is taken or :data:`KEEP_SECONDS` old."""
        self._items[name] = stored

    def take(self, name: str) -> StoredWorkload | None:
        """What was put away under this name, no longer kept here; None where nothing was, or only something too old."""
        stored = self._items.pop(name, None)
        return None if stored is None or self._away(stored) > KEEP_SECONDS else stored

    def drop_old(self) -> list[str]:
        """Let go of what is too old or too much; the names, for the store to forget."""
        old = [name for name, stored in self._items.items() if self._away(stored) > KEEP_SECONDS]
        for name in old:
            del self._items[name]
        surplus = list(self._items)[: max(0, len(self._items) - MOST)]
        for name in surplus:
            del self._items[name]
        return old + surplus
