"""One workload's live state: what it is, what it remembers, what was last read and decided."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from scaler.control.model import Memory
from scaler.policy.layers import Resolved
from scaler.policy.model import Policy
from scaler.serve.adjustment_log import AdjustmentLog
from scaler.serve.applied import AppliedReports
from scaler.serve.externalscaler_pb2 import ScaledObjectRef
from scaler.serve.inbox import DemandInbox
from scaler.serve.snapshot import Snapshot
from scaler.serve.timeline import Timeline
from scaler.signals.observation import Observation
from scaler.signals.preset import Preset
from scaler.signals.window import History

#: An edited ScaledObject changes its metadata once, to and fro for a moment where a request of before the edit is still
#: under way: changes within one tick count as one. Metadata that changes this often within this long comes from two
#: triggers of one ScaledObject, which would be answered from two policies and added up by nobody.
CONFLICT_CHANGES, CONFLICT_SECONDS = 3, 180.0


@dataclass(slots=True, eq=False)
class Workload:
    """One workload's live state. ``version`` rises with every tick; wait for it with ``Workloads.wait_change``.

    ``away_seconds`` is set after a restart: how long the scaler was away, still to be credited to the idle timer or
    not, as ``watermark`` (what the activity counters read when last stored) will tell once they are read again.
    ``metadata`` is what ``resolved`` was made of, ``seen`` what the last call carried: others while two triggers
    disagree. ``observed`` is what was last read, and under which policy; ``reading`` while that is under way.
    ``asked_mono`` is when somebody last asked for it, monotonic seconds (``Workloads.forget_unasked``).
    ``called`` is what the last good call of KEDA carried, while metadata and policy are still those.
    ``guarded_mono`` is when the memory guard last read it between two ticks.
    ``owner`` names the scaler that ticks it, where several share them; None: nobody yet, or there is only one.
    """

    name: str
    resolved: Resolved
    preset: Preset
    metadata: dict[str, str] | None
    seen: dict[str, str] | None
    inbox: DemandInbox
    applied: AppliedReports
    asked_mono: float
    owner: str | None = None
    memory: Memory = field(default_factory=Memory)
    history: History = field(default_factory=History)
    snapshot: Snapshot | None = None
    version: int = 0
    generation: int = 0
    watermark: dict[str, list[object]] | None = None
    away_seconds: float = 0.0
    guarded_mono: float | None = None
    adjustments: AdjustmentLog = field(default_factory=AdjustmentLog)
    decisions_total: dict[tuple[str, str, str], int] = field(default_factory=dict)
    dropped_series_total: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    observed: tuple[Policy, Observation] | None = None
    reading: bool = False
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiters: set[asyncio.Future[None]] = field(default_factory=set)
    called: ScaledObjectRef | None = None
    metadata_changes: tuple[float, ...] = ()
