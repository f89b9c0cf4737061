"""One workload that this scaler owns: its fencing token, the last decision, and what of it Redis has confirmed."""

from __future__ import annotations

import asyncio

from scaler.serve.redis_values import Version
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import StoredWorkload

#: What a caller can tell apart for the worse: active or not, answered or UNAVAILABLE.
_Saying = tuple[bool, bool]


class Held:
    """Owned under ``token``, which Redis gave out at membership's ``restarts``. ``writing`` is held while a write is
    under way.

    ``heir_of`` is the snapshot that was last written before, by whomever.
    """

    def __init__(self, token: int, heir_of: Snapshot | None, restarts: int) -> None:
        self.token = token
        #: Membership's ``restarts`` when Redis last knew us for the owner.
        self.known_at = restarts
        self.writing = asyncio.Lock()
        #: What was decided last, whether written or not.
        self.latest: tuple[Snapshot, StoredWorkload] | None = None
        #: Membership's ``restarts`` when ``latest`` was confirmed; None: it is not.
        self.confirmed_at: int | None = None
        self._writes = 0
        #: What Redis may hold now: what was last confirmed, and every decision since.
        self._may_say: set[_Saying] = set() if heir_of is None else {_saying(heir_of)}

    def decided(self, snapshot: Snapshot, stored: StoredWorkload) -> None:
        """Another decision was made; it is not confirmed yet."""
        self.latest, self.confirmed_at = (snapshot, stored), None
        self._may_say.add(_saying(snapshot))

    def told(self, snapshot: Snapshot | None) -> bool:
        """Whether our last decision is the one that is being told, ``snapshot``: it is not while it is written."""
        return self.latest is None or self.latest[0] is snapshot

    def next_version(self) -> Version:
        """The version for a write that begins now."""
        self._writes += 1
        return self.token, self._writes

    def confirm(self, snapshot: Snapshot, restarts: int) -> None:
        """``snapshot`` is written."""
        self.known_at = restarts
        if self.latest is not None and self.latest[0] is snapshot:
            self.confirmed_at = restarts
            self._may_say = {_saying(snapshot)}

    def contradicts(self) -> bool:
        """Whether what others may read in Redis says something else than our last decision."""
        return len(self._may_say) > 1


def _saying(snapshot: Snapshot) -> _Saying:
    return snapshot.decision.targets.active, snapshot.decision.available
