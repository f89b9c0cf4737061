"""What the world is told of one workload: one immutable value, replaced whole at each tick."""

from __future__ import annotations

from datetime import datetime

from scaler.control.model import Decision, Memory, Now, Targets
from scaler.policy.model import Policy
from scaler.signals.activity import Activity
from scaler.signals.model import Interval, Signals
from scaler.value import frozen


@frozen
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


@frozen
class Snapshot:
    """One workload after one tick. gRPC, ``/metrics``, the API and the page all answer from this and nothing else.

    ``generation`` rises by one whenever what the engine consumes (:func:`consumed`) changes;
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


def consumed(targets: Targets) -> tuple[object, ...]:
    """What the engine's side consumes: a change of any of it is another generation."""
    companions = targets.queue_limit, targets.workers
    return targets.batch, targets.token_budget, targets.admission.value, *companions, targets.rung.value


@frozen
class Performance:
    """How one window went: P95 intervals in seconds and throughput; None where it was not known."""

    ttft: Interval | None
    tpot: Interval | None
    e2e: Interval | None
    requests_per_second: float | None
    tokens_per_second: float | None


@frozen
class Effect:
    """The window ``before`` an adjustment made at ``made_mono``, and the first whole one ``after`` it (None: not over
    yet), read ``after_seconds`` later; ``overlapped`` where another target moved in between.
    """

    made_mono: float
    window_seconds: float
    before: Performance
    after: Performance | None = None
    after_seconds: float | None = None
    overlapped: bool = False


#: What a line of the log keeps of what was remembered: nothing. It grows with all that is learned, and nobody asks it.
NOT_KEPT = Memory()


@frozen
class Adjustment:
    """One line of the adjustment log: what changed, from what to what, with the decision that did it (but not what it
    remembered), and what came of it where a target moved (:mod:`scaler.serve.effects`).
    """

    at: datetime
    workload: str
    changes: tuple[tuple[str, object, object], ...]
    decision: Decision
    signal_values: tuple[tuple[str, str, float | None], ...]
    effect: Effect | None = None
