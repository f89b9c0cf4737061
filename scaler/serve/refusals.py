"""Metadata that was refused lately: KEDA asks again at every poll, and reading what is wrong again costs every time."""

from __future__ import annotations

from collections.abc import Mapping

from scaler.policy.errors import PolicyError
from scaler.policy.metadata import fingerprint

#: More names than this are made up by a caller; the oldest goes.
MOST = 1_000


class Refusals:
    """The last refusal of each ScaledObject, by ``namespace/name``."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, list[str]]] = {}

    def again(self, name: str, metadata: Mapping[str, str]) -> None:
        """Raise the same :class:`PolicyError` as before for the same metadata."""
        kept = self._kept.get(name)
        if kept is not None and kept[0] == fingerprint(metadata):
            raise PolicyError(kept[1])

    def keep(self, name: str, metadata: Mapping[str, str], error: PolicyError) -> None:
        """Remember that ``metadata`` was refused with ``error``."""
        self._kept.pop(name, None)
        self._kept[name] = fingerprint(metadata), error.problems
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]

    def forget(self) -> None:
        """Start anew: the policy file has changed, and what was refused may now be right."""
        self._kept.clear()
