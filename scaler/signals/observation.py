"""What one read of a workload's sources gave: raw values, before any window, rate or judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Buckets:
    """One histogram series as exposed: upper bounds (ascending, the last one inf), cumulative counts, sum, count."""

    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]
    sum: float
    count: float


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One successful read of one endpoint (one replica).

    ``at`` is the monotonic time of the read. ``gauges`` are combined inside the endpoint already (max over rank copies,
    then sum over data-parallel engines; ratios: max). Counters and histograms stay per series, keyed by the series'
    label text, because a reset shows only there. ``process_start_seconds`` is the engine's own start, Unix time.
    ``seconds`` is how long the read took.
    """

    at: float
    process_start_seconds: float | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, Buckets]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """One endpoint that could not be read; ``reason`` is for a person and names the URL's trouble, not the URL."""

    at: float
    reason: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """What gateways told us by ``/demand`` and ``/wake``, as it stands at ``at``.

    ``pending`` and ``arrivals_per_second`` are None where nobody reports (``reason`` says why): with a gateway that
    promised to report, silence is unknown; with one that only calls on demand, silence is 0 and comes as 0.0.
    """

    at: float
    pending: float | None
    wake_requested: bool
    arrivals_per_second: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything read for one workload in one tick. ``demand`` is None where no wake source is configured.

    ``endpoints`` has an entry for *every* endpoint the workload should have, read or not: a missing one must be seen.
    """

    at: float
    endpoints: Mapping[str, EngineSample | ReadFailure]
    demand: Demand | None = None
