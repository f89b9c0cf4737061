"""What the world is told of one workload: one immutable value, replaced whole at each tick."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from scaler.control.model import Decision, Now
from scaler.policy.model import Policy
from scaler.signals.activity import Activity
from scaler.signals.model import Signals


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How one endpoint of one source answered in this tick. ``no_progress_seconds``: for how long a replica has had
    work and made no progress (0.0 without work); None for what is no replica, or was never read.
    """

    source: str
    endpoint: str
    ok: bool
    detail: str
    seconds: float
    no_progress_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One workload after one tick. gRPC, ``/metrics``, the API and the page all answer from this and nothing else.

    ``generation`` rises by one whenever what the engine consumes (batch, token budget, admission) changes;
    ``valid_until`` is when a consumer must fall back to the engine's own setting. ``warnings`` concern the
    configuration ("nothing can wake this workload, ..."). ``activity`` is what last showed that it is wanted; None:
    nothing has, since this scaler judges it.
    """

    workload: str
    policy: Policy
    signals: Signals
    decision: Decision
    decided_at: Now
    generation: int
    valid_until: datetime
    health: tuple[SourceHealth, ...]
    warnings: tuple[str, ...]
    tick_seconds: float
    activity: Activity | None = None


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One line of the adjustment log: what changed, from what to what, with the decision that did it."""

    at: datetime
    workload: str
    changes: tuple[tuple[str, object, object], ...]
    decision: Decision
    signal_values: tuple[tuple[str, str, float | None], ...]
