"""The last adjustments of one workload, packed.

An adjustment holds a whole decision and the value of every signal, some 2 KiB of objects; two hundred of them, a day of
a busy workload, were six times as much as all the rest of it. Packed they take a fifth, and only who reads the log pays
for that. Of the newest, when it was made and its effect are kept beside it: every tick looks whether that has shown.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from typing import overload

from scaler.control.decide import decide
from scaler.control.model import Memory, Now
from scaler.policy.model import Policy
from scaler.serve.snapshot import NOT_KEPT, Adjustment, Effect, Performance
from scaler.signals.model import CATALOG, Signals

#: Adjustments kept for ``/decisions`` and ``explain``.
KEPT = 200


class AdjustmentLog(Sequence[Adjustment]):
    """At most ``kept`` adjustments, oldest first; one more drops the oldest."""

    __slots__ = ("_kept", "_newest", "_packed")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._packed: list[bytes] = []
        self._newest: tuple[datetime, Effect | None] | None = None

    def append(self, made: Adjustment) -> None:
        """Take the newest."""
        self._packed.append(_packed(made))
        self._newest = made.at, made.effect
        if len(self) > self._kept:
            del self._packed[0]

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, place: int) -> Adjustment: ...
    @overload
    def __getitem__(self, place: slice) -> list[Adjustment]: ...
    def __getitem__(self, place: int | slice) -> Adjustment | list[Adjustment]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return _unpacked(self._packed[place])

    def __setitem__(self, place: int, adjustment: Adjustment) -> None:
        """Replace one: its effect is known now."""
        place = range(len(self))[place]
        self._packed[place] = _packed(adjustment)
        if place == len(self) - 1:
            self._newest = adjustment.at, adjustment.effect

    def effect(self, place: int) -> tuple[datetime, Effect | None]:
        """When the adjustment at ``place`` was made, and its effect. The newest's is at hand."""
        if self._newest is not None and place == len(self) - 1:
            return self._newest
        entry = self[place]
        return entry.at, entry.effect

    def size_bytes(self) -> int:
        """What the packed ones take up."""
        return sum(map(len, self._packed))


class _Packer(pickle.Pickler):
    """Writes the memory that no line keeps as a mark: its fields would take up a tenth of the line."""

    def persistent_id(self, each: object) -> str | None:
        return "not kept" if each is NOT_KEPT else None


class _Unpacker(pickle.Unpickler):
    def persistent_load(self, mark: str) -> Memory:  # noqa: ARG002
        return NOT_KEPT


def _plainly(adjustment: Adjustment) -> bytes:
    written = BytesIO()
    _Packer(written, pickle.HIGHEST_PROTOCOL).dump(adjustment)
    return written.getvalue()


def _packed(adjustment: Adjustment) -> bytes:
    packing = zlib.compressobj(zdict=_usual())
    return packing.compress(_plainly(adjustment)) + packing.flush()


def _unpacked(packed: bytes) -> Adjustment:
    # Not read from anywhere: these bytes were made by this process and never left it.
    adjustment: Adjustment = _Unpacker(BytesIO(zlib.decompressobj(zdict=_usual()).decompress(packed))).load()
    return adjustment


@cache
def _usual() -> bytes:
    """What is the same in all of them, for the packing to refer to: the names of everything."""
    now = Now(datetime(2026, 1, 5, tzinfo=UTC), 0.0)
    decision = decide(Policy(), Memory(), Signals(), now)
    changes = tuple(
        (name, None, None) for name in ("replicas", "active", "batch", "token_budget", "state", "available")
    )
    values = tuple((name, "known", 1.0) for name in CATALOG)
    nothing = Performance(*[None] * len(fields(Performance)))
    effect = Effect(0.0, 60.0, nothing, nothing, 60.0)
    return _plainly(Adjustment(now.utc, "", changes, replace(decision, next_memory=NOT_KEPT), values, effect))
