"""The last hour of one workload, for the page: what came, what was decided, how it went; in under 20 KB.

Two rows of moments, each bounded: *fine*, the last 10 minutes in slots of 3 s, and *coarse*, the last hour in slots of
30 s. What falls into one slot is merged so that a peak survives: the latest targets, the highest load and latency, the
most severe state. A moment is packed into 62 bytes, because hundreds of workloads each keep some 300 of them.

It lives in memory alone: after a restart it begins anew.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from scaler.control.model import LoadState
from scaler.serve.snapshot import Snapshot
from scaler.signals.model import Known, Latency, Signal

#: How far back each row reaches and how long its slots are, seconds.
FINE_SECONDS, FINE_SLOT = 600.0, 3.0
COARSE_SECONDS, COARSE_SLOT = 3600.0, 30.0
#: States by how much they ask for a person, the calmest first; a moment keeps a state's place in this list.
SEVERITY = (
    LoadState.IDLE,
    LoadState.LOW,
    LoadState.NORMAL,
    LoadState.HIGH,
    LoadState.UNKNOWN,
    LoadState.CRITICAL,
    LoadState.STALLED,
)
#: A count of 16 bits: this one says that there is none, and higher ones read as one less.
NO_COUNT = 0xFFFF

_PLACE = {state: place for place, state in enumerate(SEVERITY)}
_PACKED = struct.Struct("<dB?2H12f")
_NAN = math.nan


class Moment(NamedTuple):
    """One tick as the timeline keeps it. NaN: not known then, which is not zero.

    ``at`` is monotonic seconds, ``state`` a place in :data:`SEVERITY`, ``ready`` a count or :data:`NO_COUNT`.
    Latencies are the bounds of the window's P95, seconds; a high bound is infinite beyond the last bucket.
    """

    at: float
    state: int
    available: bool
    desired: int
    ready: int
    batch: float
    applied_batch: float
    arrivals_per_second: float
    running: float
    waiting: float
    kv_use_ratio: float
    ttft_low: float
    ttft_high: float
    tpot_low: float
    tpot_high: float
    e2e_low: float
    e2e_high: float


#: The fields of which a merged moment keeps the highest; of those before it keeps the latest.
_PEAKS_FROM = Moment._fields.index("arrivals_per_second")
_RUNNING, _WAITING = Moment._fields.index("running"), Moment._fields.index("waiting")


def moment(snapshot: Snapshot) -> Moment:
    """What the timeline keeps of a snapshot. A stale signal was not measured then, so it has no value."""
    decision, signals = snapshot.decision, snapshot.signals
    return Moment(
        snapshot.decided_at.mono,
        _PLACE[decision.state],
        decision.available,
        _count(decision.targets.replicas),
        _count(decision.ready),
        _NAN if decision.targets.batch is None else decision.targets.batch,
        _value(signals.applied_batch),
        _value(signals.arrivals_per_second),
        _value(signals.running),
        _value(signals.waiting),
        _value(signals.kv_use_ratio),
        *_p95(signals.ttft_seconds),
        *_p95(signals.tpot_seconds),
        *_p95(signals.e2e_seconds),
    )


def merged(one: Moment, later: Moment) -> Moment:
    """Both as one, at the time of the first."""
    peaks = map(_peak, one[_PEAKS_FROM:], later[_PEAKS_FROM:])
    worst = max(one.state, later.state), one.available and later.available
    return Moment(one.at, *worst, *later[3:_PEAKS_FROM], *peaks)  # type: ignore[arg-type]


class Timeline:
    """The moments of one workload, appended in the order of their time."""

    __slots__ = ("_coarse", "_fine")

    def __init__(self) -> None:
        self._fine, self._coarse = bytearray(), bytearray()

    def append(self, latest: Moment) -> None:
        """Take one tick's moment. One that is older than the last (a copy that came late) is dropped."""
        if self._fine and latest.at < _last(self._fine).at:
            return
        _put(self._fine, latest, FINE_SLOT, FINE_SECONDS)
        _put(self._coarse, latest, COARSE_SLOT, COARSE_SECONDS)

    def since(self, at: float) -> list[Moment]:
        """The moments from ``at`` on, oldest first: coarse ones, then fine ones as far as these reach back."""
        fine = [each for each in _unpacked(self._fine) if each.at >= at]
        # A coarse slot that reaches into the fine row would tell its end twice.
        edge = _slot(fine[0].at, COARSE_SLOT) if fine else math.inf
        coarse = [each for each in _unpacked(self._coarse) if each.at >= at and _slot(each.at, COARSE_SLOT) < edge]
        return coarse + fine

    def in_flight(self, now: float, slots: int) -> list[float | None]:
        """The most requests running and waiting in each of the last ``slots`` coarse slots, oldest first; None where
        what runs was not known.
        """
        found: list[float | None] = [None] * slots
        first = _slot(now, COARSE_SLOT) - slots + 1
        newest = memoryview(self._coarse)[-slots * _PACKED.size :]
        for packed in _PACKED.iter_unpack(newest):  # asked for all workloads at once: no Moment is made of it
            at, running, waiting = packed[0], packed[_RUNNING], packed[_WAITING]
            place = _slot(at, COARSE_SLOT) - first
            if 0 <= place < slots and running == running:
                found[place] = running + waiting if waiting == waiting else running
        return found

    def size_bytes(self) -> int:
        """What the moments take up."""
        return len(self._fine) + len(self._coarse)


def columns(moments: Sequence[Moment], now: float) -> dict[str, list[object]]:
    """The moments as columns of a JSON document: ``age_seconds`` before ``now``, states as words, what was not known
    as null, and the infinite high bound of a latency as the string ``inf``.
    """
    told: dict[str, list[object]] = {
        "age_seconds": [round(max(0.0, now - each.at), 1) for each in moments],
        "state": [SEVERITY[each.state].value for each in moments],
        "available": [each.available for each in moments],
        "desired": [each.desired for each in moments],
        "ready": [None if each.ready == NO_COUNT else each.ready for each in moments],
    }
    for place, name in enumerate(Moment._fields):
        if name not in told and name != "at":
            told[name] = [_told(each[place]) for each in moments]
    return told


def _value(signal: Signal[float]) -> float:
    return signal.value if isinstance(signal, Known) else _NAN


def _p95(signal: Signal[Latency]) -> tuple[float, float]:
    return (signal.value.p95.low, signal.value.p95.high) if isinstance(signal, Known) else (_NAN, _NAN)


def _count(count: int | None) -> int:
    return NO_COUNT if count is None else min(count, NO_COUNT - 1)


def _peak(one: float, other: float) -> float:
    """The higher; the one there is where the other is not known (NaN equals nothing, itself included)."""
    return one if other != other or one > other else other


def _put(row: bytearray, latest: Moment, slot: float, reach: float) -> None:
    """Append to the row, or merge into its last moment; drop from its head what is older than ``reach``."""
    if row and _slot((before := _last(row)).at, slot) == _slot(latest.at, slot):
        _PACKED.pack_into(row, len(row) - _PACKED.size, *merged(before, latest))
        return
    row += _PACKED.pack(*latest)
    too_old = 0
    while latest.at - _PACKED.unpack_from(row, too_old)[0] > reach:
        too_old += _PACKED.size
    del row[:too_old]


def _slot(at: float, seconds: float) -> int:
    return int(at // seconds)


def _last(row: bytearray) -> Moment:
    return Moment(*_PACKED.unpack_from(row, len(row) - _PACKED.size))


def _unpacked(row: bytearray) -> list[Moment]:
    return list(map(Moment._make, _PACKED.iter_unpack(row)))


def _told(value: float) -> object:
    if math.isnan(value):
        return None
    return "inf" if math.isinf(value) else _short(value)


def _short(value: float) -> float:
    """As many digits as 32 bits hold and a graph can show."""
    return float(f"{value:.5g}")
