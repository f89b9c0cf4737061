"""What is kept of the past: at each tick the signals as they were measured, and how many replicas there were.

Kept packed: a week of ticks is a hundred thousand sets of signals that hardly differ from one to the next.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from scaler.lab.backtest.crowd import pace_point
from scaler.lab.backtest.replay import Seen
from scaler.policy.model import Policy
from scaler.signals.model import Known, Signals, Stale, known_value
from scaler.signals.window import History, fold

Kind = Literal["measured", "none ready", "gap"]
_BLOCK_TICKS: Final = 512


class Tick(NamedTuple):
    """One tick of the past. ``measured``: replicas served, and all or some of them were read; ``none ready``: certainly
    none served; ``gap``: nothing certain is known. ``ready`` are the replicas that served, ``paid`` those that held
    their GPUs (asked for, less those without a node, where kube-state-metrics tells it; else those that engines tell);
    None in a gap.
    """

    unix: float
    kind: Kind
    signals: Signals
    ready: float | None
    paid: float | None


@dataclass(slots=True)
class PackedTicks:
    """Ticks in a small part of the memory they would take, in order. ``len`` counts them."""

    _blocks: list[bytes] = field(default_factory=list)
    _open: list[Tick] = field(default_factory=list)
    _packed: int = 0

    def append(self, tick: Tick) -> None:
        """Keep one more."""
        self._open.append(tick)
        if len(self._open) == _BLOCK_TICKS:
            self._blocks.append(zlib.compress(pickle.dumps(self._open, pickle.HIGHEST_PROTOCOL), 1))
            self._packed += len(self._open)
            self._open = []

    def __len__(self) -> int:
        return self._packed + len(self._open)

    def __iter__(self) -> Iterator[Tick]:
        for block in self._blocks:
            yield from pickle.loads(zlib.decompress(block))  # our own, from this process' memory
        yield from self._open


@dataclass(slots=True)
class Measure:
    """Folds what was seen into signals, as the server does. ``counted``: whether kube-state-metrics ever told how many
    replicas were asked for; ``pace`` what each tick says of how replicas slow down under load.
    """

    policy: Policy
    tick_seconds: float
    counted: bool = False
    pace: list[tuple[float, float]] = field(default_factory=list)
    _history: History = field(default_factory=History)

    def __call__(self, seen: Seen) -> Tick:
        """The signals at this tick; ticks come in order."""
        self._history, signals = fold(
            self._history,
            seen.observation,
            seen.unix,
            self.policy,
            interval_seconds=self.tick_seconds,
            now_unix=seen.unix,
        )
        counts = seen.observation.replicas
        asked, serving = known_value(signals.asked_replicas), signals.ready_replicas
        ready = serving.value if isinstance(serving, Known | Stale) else None
        self.counted = self.counted or asked is not None
        stuck = counts.unschedulable if counts is not None and counts.unschedulable is not None else 0
        paid = float(seen.replicas) if asked is None else max(asked - stuck, 0.0)
        if point := pace_point(signals, ready, self.policy.objectives.minimum_samples):
            self.pace.append(point)
        if ready and seen.recorded and not (asked == 0 and isinstance(serving, Stale)):
            return Tick(seen.unix, "measured", signals, ready, paid)
        # No target at all, and the server was there to have one: at zero, or loading. All others may be an outage.
        if asked == 0 or (seen.recorded and not seen.replicas):
            return Tick(seen.unix, "none ready", signals, 0.0, paid)
        return Tick(seen.unix, "gap", signals, None, None)
