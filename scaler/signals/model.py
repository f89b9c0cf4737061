"""The tri-state signal, and the one table of canonical signals.

A signal is :class:`Known`, :class:`Stale`, :class:`Unknown` or :class:`NotApplicable`, never a bare number, because
the costliest mistakes of autoscalers come from reading "absent" as zero. What each status permits:

=================  ==================  ==================  ==========================
status             may raise           may lower           may prove idleness
=================  ==================  ==================  ==========================
``Known``          yes                 yes                 yes
``Stale``          its ``at_least``    no (it only holds)  no (timers freeze)
``Unknown``        no                  no                  no (timers freeze)
``NotApplicable``  no                  yes (it satisfies)  yes
=================  ==================  ==================  ==========================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Generic, Literal, TypeAlias, TypeVar

from scaler.value import frozen

T_co = TypeVar("T_co", covariant=True)


@frozen
class Known(Generic[T_co]):
    """A trustworthy value. ``at`` is the monotonic time (seconds) of its oldest contributing sample."""

    value: T_co
    at: float


@frozen
class Stale(Generic[T_co]):
    """The last trustworthy value, no longer fresh. It holds; it never lowers.

    ``at_least`` is the part that *was* measured just now (the endpoints that did answer): a lower bound of the truth,
    and so allowed to raise. 0.0 where nothing answered.
    """

    value: T_co
    at: float
    at_least: float = 0.0


@frozen
class Unknown:
    """Nothing trustworthy; ``reason`` says why, for a person."""

    reason: str


@frozen
class NotApplicable:
    """The quantity does not exist here (engine has no such metric, no traffic, no replica); ``reason`` says which."""

    reason: str


Signal: TypeAlias = Known[T_co] | Stale[T_co] | Unknown | NotApplicable

Status = Literal["known", "stale", "unknown", "not_applicable"]


def status(signal: Signal[object]) -> Status:
    """The word for a signal's status, as metrics, API and page spell it."""
    match signal:
        case Known():
            return "known"
        case Stale():
            return "stale"
        case Unknown():
            return "unknown"
        case NotApplicable():
            return "not_applicable"


def at_least(signal: Signal[float]) -> float:
    """The greatest value the signal certainly has now (0.0 when it says nothing): what may raise."""
    if isinstance(signal, Known):
        return signal.value
    return signal.at_least if isinstance(signal, Stale) else 0.0


def known_value(signal: Signal[T_co]) -> T_co | None:
    """The value if known, else None. None is never zero: callers decide what doubt means for them."""
    return signal.value if isinstance(signal, Known) else None


def is_zero(signal: Signal[float]) -> bool:
    """Whether the signal *proves* zero: known 0, or not applicable."""
    if isinstance(signal, Known):
        return signal.value == 0
    return isinstance(signal, NotApplicable)


@frozen
class Interval:
    """Where a histogram quantile certainly lies, seconds: ``low < q <= high``; ``high`` is inf in the last bucket."""

    low: float
    high: float

    @property
    def estimate(self) -> float:
        """One number for graphs: the middle, or the lower bound where there is no upper one."""
        return self.low if self.high == float("inf") else (self.low + self.high) / 2


#: ``infeasible`` is no comparison: no replica can keep the objective, however empty it is.
Verdict = Literal["met", "breached", "undecided", "infeasible"]


@frozen
class Latency:
    """One latency over the window: quantile intervals, exact mean (seconds) and how many samples stand behind them."""

    p50: Interval
    p95: Interval
    p99: Interval
    mean_seconds: float
    samples: float

    def against(self, objective_seconds: float, minimum_samples: int) -> Verdict:
        """P95 against a bound. ``breached`` only if even its lower bound is at or over it, ``met`` only if even its
        upper bound is within it; otherwise, or with too few samples, ``undecided``: a bucket's width is not evidence.
        """
        if self.samples < minimum_samples:
            return "undecided"
        if self.p95.low >= objective_seconds:
            return "breached"
        if self.p95.high <= objective_seconds:
            return "met"
        return "undecided"


@frozen
class ArrivalTrend:
    """A line through the arrivals of the latest stretch that one line explains (:mod:`scaler.signals.trend`).

    ``rate_per_second`` is the rate ``centre_seconds`` ago, ``slope_per_second`` by how much it grows each second;
    ``rate_variance`` and ``slope_variance`` say how well both are known; ``dispersion`` is φ of the noise around it,
    None while too little has been counted to tell.
    """

    rate_per_second: float
    centre_seconds: float
    slope_per_second: float
    rate_variance: float
    slope_variance: float
    dispersion: float | None

    def expected(self, ahead_seconds: float) -> tuple[float, float]:
        """(rate, its standard deviation) expected so many seconds from now."""
        distance = self.centre_seconds + ahead_seconds
        rate = self.rate_per_second + self.slope_per_second * distance
        return max(0.0, rate), math.sqrt(self.rate_variance + self.slope_variance * distance * distance)


@frozen
class SignalKind:
    """What a canonical signal means, its unit, how it combines over series and pods, and what needs it."""

    meaning: str
    unit: str
    combine: str
    required_for: tuple[str, ...] = ()


_DOWN = ("replicas down", "zero")

#: The one table of canonical signals; the fields of :class:`Signals` are exactly its keys.
CATALOG: Mapping[str, SignalKind] = {
    "arrivals_per_second": SignalKind("requests arriving, over the window", "req/s", "sum of per-series deltas", _DOWN),
    "arrivals_recent_per_second": SignalKind(
        "requests arriving, over the last 15 s", "req/s", "sum of per-series deltas"
    ),
    "arrivals_last_per_second": SignalKind(
        "requests arriving, between the last two reads", "req/s", "sum of per-series deltas"
    ),
    "finished_per_second": SignalKind("requests finished, over the window", "req/s", "sum of per-series deltas"),
    "running": SignalKind("sequences being computed", "requests", "sum; stalled replicas left out", _DOWN),
    "waiting": SignalKind("requests queued in the engine", "requests", "sum; stalled replicas left out", _DOWN),
    "pending": SignalKind(
        "requests held or refused at the gateway for want of a replica", "requests", "sum", ("zero",)
    ),
    "wake_demand": SignalKind("unanswered calls of /wake", "requests", "sum", ("zero",)),
    "busiest_running": SignalKind("sequences running in the busiest replica", "sequences", "max over replicas"),
    "queueing_replicas": SignalKind("replicas that serve and have requests waiting", "replicas", "count"),
    "saturated_sequences": SignalKind(
        "running in a replica that also queued, at both of the last two reads: its cap",
        "sequences",
        "max over replicas",
    ),
    "ready_replicas": SignalKind("replicas that report and serve", "replicas", "count", _DOWN),
    "stalled_replicas": SignalKind("replicas with work and no progress", "replicas", "count"),
    "asleep_replicas": SignalKind("replicas that report, and serve once they are woken", "replicas", "count"),
    "asked_replicas": SignalKind("replicas the target is asked to have", "replicas", "the target's own count"),
    "pending_replicas": SignalKind("replicas started and not yet ready", "replicas", "count; unschedulable left out"),
    "unschedulable_replicas": SignalKind("replicas that no node has room for: not loading", "replicas", "count"),
    "e2e_seconds": SignalKind("whole request, arrival to last token", "s", "per-pod bucket deltas, then sum"),
    "ttft_seconds": SignalKind("arrival to first token", "s", "per-pod bucket deltas, then sum"),
    "tpot_seconds": SignalKind("between two output tokens", "s", "per-pod bucket deltas, then sum"),
    "queue_seconds": SignalKind("waiting in the engine", "s", "per-pod bucket deltas, then sum"),
    "prefill_seconds": SignalKind("computing the prompt", "s", "per-pod bucket deltas, then sum"),
    "decode_seconds": SignalKind("computing the answer", "s", "per-pod bucket deltas, then sum"),
    "prompt_tokens_mean": SignalKind("prompt length of finished requests", "tokens", "sum / count"),
    "generation_tokens_mean": SignalKind("answer length of finished requests", "tokens", "sum / count"),
    "prompt_tokens_deviation": SignalKind("spread of prompt lengths", "tokens", "standard deviation, from buckets"),
    "generation_tokens_deviation": SignalKind("spread of answer lengths", "tokens", "standard deviation, from buckets"),
    "prefill_share_ratio": SignalKind(
        "share of requests' computing time that goes into their prompts", "0..1", "prefill / (prefill + decode)"
    ),
    "prompt_tokens_per_second": SignalKind("prompt tokens computed, over the window", "tokens/s", "sum"),
    "generation_tokens_per_second": SignalKind("answer tokens computed, over the window", "tokens/s", "sum"),
    "kv_use_ratio": SignalKind("KV-cache use of the fullest engine", "0..1", "max", ("batch cut by memory",)),
    "kv_use_mean_ratio": SignalKind("KV-cache use, mean over engines", "0..1", "mean"),
    "kv_capacity_tokens": SignalKind("KV-cache tokens of one replica", "tokens", "min over replicas"),
    "preemptions_recent": SignalKind(
        "sequences preempted over the last 15 s", "requests", "sum", ("batch cut by memory",)
    ),
    "gpu_busy_ratio": SignalKind("share of time a kernel ran", "0..1", "mean"),
    "sm_active_ratio": SignalKind("share of SM cycles in use", "0..1", "mean"),
    "gpu_memory_free_ratio": SignalKind(
        "free device memory of the fullest GPU", "0..1", "min", ("batch cut by memory",)
    ),
    "applied_batch": SignalKind(
        "batch size the engine reports it runs with", "sequences", "min over the replicas that report"
    ),
}

#: The signals that are not the engines' own: they exist where there is no replica, and do not come or go with one.
NOT_FROM_ENGINES = ("pending", "wake_demand", "asked_replicas", "pending_replicas", "unschedulable_replicas")

_NO_SOURCE = Unknown("no source gives this signal")


@frozen
class Applied:
    """What one replica said, ``age_seconds`` before it was read here, that it really runs with.

    ``batch_size``, ``token_budget`` and ``running`` (sequences) are None where it does not tell; ``generation`` is that
    of the published target it follows, None while it runs its own setting. ``rung`` is "awake" or "asleep", None where
    it knows no sleep, and ``wake_seconds`` how long its last wake took.
    """

    replica: str
    age_seconds: float
    batch_size: int | None
    token_budget: int | None = None
    admission: str = "open"
    running: int | None = None
    generation: int | None = None
    rung: str | None = None
    wake_seconds: float | None = None


@frozen
class Signals:
    """Every canonical signal of one workload at one tick. :data:`CATALOG` says what each means."""

    arrivals_per_second: Signal[float] = _NO_SOURCE
    arrivals_recent_per_second: Signal[float] = _NO_SOURCE
    arrivals_last_per_second: Signal[float] = _NO_SOURCE
    finished_per_second: Signal[float] = _NO_SOURCE
    running: Signal[float] = _NO_SOURCE
    waiting: Signal[float] = _NO_SOURCE
    pending: Signal[float] = _NO_SOURCE
    wake_demand: Signal[float] = _NO_SOURCE
    busiest_running: Signal[float] = _NO_SOURCE
    queueing_replicas: Signal[float] = _NO_SOURCE
    saturated_sequences: Signal[float] = _NO_SOURCE
    ready_replicas: Signal[float] = _NO_SOURCE
    stalled_replicas: Signal[float] = _NO_SOURCE
    asleep_replicas: Signal[float] = _NO_SOURCE
    asked_replicas: Signal[float] = _NO_SOURCE
    pending_replicas: Signal[float] = _NO_SOURCE
    unschedulable_replicas: Signal[float] = _NO_SOURCE
    e2e_seconds: Signal[Latency] = _NO_SOURCE
    ttft_seconds: Signal[Latency] = _NO_SOURCE
    tpot_seconds: Signal[Latency] = _NO_SOURCE
    queue_seconds: Signal[Latency] = _NO_SOURCE
    prefill_seconds: Signal[Latency] = _NO_SOURCE
    decode_seconds: Signal[Latency] = _NO_SOURCE
    prompt_tokens_mean: Signal[float] = _NO_SOURCE
    generation_tokens_mean: Signal[float] = _NO_SOURCE
    prompt_tokens_deviation: Signal[float] = _NO_SOURCE
    generation_tokens_deviation: Signal[float] = _NO_SOURCE
    prefill_share_ratio: Signal[float] = _NO_SOURCE
    prompt_tokens_per_second: Signal[float] = _NO_SOURCE
    generation_tokens_per_second: Signal[float] = _NO_SOURCE
    kv_use_ratio: Signal[float] = _NO_SOURCE
    kv_use_mean_ratio: Signal[float] = _NO_SOURCE
    kv_capacity_tokens: Signal[float] = _NO_SOURCE
    preemptions_recent: Signal[float] = _NO_SOURCE
    gpu_busy_ratio: Signal[float] = _NO_SOURCE
    sm_active_ratio: Signal[float] = _NO_SOURCE
    gpu_memory_free_ratio: Signal[float] = _NO_SOURCE
    applied_batch: Signal[float] = _NO_SOURCE
    #: Dispersion φ = variance / mean of 15 s arrival counts over 30 min; None until enough of them are seen.
    arrivals_dispersion: float | None = None
    #: What each replica's engine says it runs with, of those that report it.
    applied: tuple[Applied, ...] = ()
    #: Where arrivals stand and go; None until 15 s of them have been counted.
    arrivals_trend: ArrivalTrend | None = None
    #: What every replica that answered says it is, model and engine; None where they differ (a rollout) or none did.
    identity: str | None = None
    #: Whether any activity counter moved since the last tick (it restarts the idle proof even if gauges read 0).
    counters_moved: bool = False
    #: What a person should know about how the signals were read ("two models share the endpoint", ...).
    warnings: tuple[str, ...] = ()

    def items(self) -> list[tuple[str, Signal[float] | Signal[Latency]]]:
        """(name, signal) of every canonical signal, in the catalog's order."""
        return [(name, getattr(self, name)) for name in CATALOG]


assert set(CATALOG) <= {field.name for field in fields(Signals)}
