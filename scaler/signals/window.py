"""The window fold: history and one observation in, history and canonical signals out. Pure; the server and the lab
share it, so that what the lab proves is what runs.

Work per fold grows with endpoints plus intervals in the window, never with their product: what each endpoint counted is
summed at once (:mod:`scaler.signals.flow`), and only its last sample is kept (:mod:`scaler.signals.endpoint`). How an
endpoint's silence becomes known, stale or unknown is in :mod:`scaler.signals.coverage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scaler.policy.model import Policy
from scaler.signals.coverage import Coverage, asleep_count, count, counts_arrivals, cover, gauge
from scaler.signals.flow import ARRIVALS, FINISHED, GENERATION_TOKENS, PREEMPTIONS, PROMPT_TOKENS, RECENT_SECONDS
from scaler.signals.history import History
from scaler.signals.horizon import look_back
from scaler.signals.model import (
    CATALOG,
    NOT_FROM_ENGINES,
    Known,
    Latency,
    NotApplicable,
    Signal,
    Signals,
    Stale,
    Unknown,
    is_zero,
)
from scaler.signals.observation import Demand, EngineSample, Observation
from scaler.signals.replica_counts import counted_replicas, some_asked_for
from scaler.signals.watermark import activity_watermark, unchanged_since

__all__ = ["History", "activity_watermark", "fold", "unchanged_since"]

_NO_WAKE_SOURCE = NotApplicable("no wake source is configured")
_EMPTY_MEANS_ZERO = NotApplicable("empty means zero")

#: The signals that are made of one family alone: they do not exist where the engine lacks it, whoever else reports it
#: (a full card of an engine that preallocates is no memory pressure).
_SIGNALS_OF: Mapping[str, tuple[str, ...]] = {
    "arrivals": ("arrivals_per_second", "arrivals_recent_per_second", "arrivals_last_per_second"),
    "finished": ("finished_per_second",),
    "running": ("running",),
    "waiting": ("waiting",),
    "ttft": ("ttft_seconds",),
    "tpot": ("tpot_seconds",),
    "e2e": ("e2e_seconds",),
    "queue": ("queue_seconds",),
    "prefill": ("prefill_seconds", "prefill_share_ratio"),
    "decode": ("decode_seconds", "prefill_share_ratio"),
    "prompt_length": ("prompt_tokens_mean", "prompt_tokens_deviation"),
    "generation_length": ("generation_tokens_mean", "generation_tokens_deviation"),
    "prompt_tokens": ("prompt_tokens_per_second",),
    "generation_tokens": ("generation_tokens_per_second",),
    "kv_use": ("kv_use_ratio", "kv_use_mean_ratio"),
    "kv_capacity_tokens": ("kv_capacity_tokens",),
    "preemptions": ("preemptions_recent",),
    "gpu_memory_free": ("gpu_memory_free_ratio",),
    "awake_engines": ("asleep_replicas",),
}


def fold(
    history: History,
    observation: Observation,
    now_mono: float,
    policy: Policy,
    *,
    interval_seconds: float,
    now_unix: float | None = None,
) -> tuple[History, Signals]:
    """Take one observation into ``history`` and say what every canonical signal is at ``now_mono`` (monotonic seconds).

    ``interval_seconds`` is how often the sources are read; a sample older than three of it is not fresh. ``now_unix``
    (Unix seconds, at ``now_mono``) tells which processes are young, so that their first requests count; without it an
    endpoint's first sample only is what the next is counted from. An observation that is already in ``history`` may be
    given again, to judge it at a later time. Never raises for anything an engine can report.
    """
    interval_seconds = max(interval_seconds, observation.interval_seconds)
    counted = counted_replicas(
        observation.replicas,
        now_mono,
        interval_seconds=interval_seconds,
        hold_seconds=policy.hold_seconds,
    )
    history, moved = history.taken(
        observation,
        now_mono,
        interval_seconds=interval_seconds,
        window_seconds=policy.window_seconds,
        now_unix=now_unix,
    )
    coverage = cover(
        observation,
        history.tracked,
        now_mono,
        interval_seconds=interval_seconds,
        hold_seconds=policy.hold_seconds,
        stalled_after_seconds=policy.stalled_after_seconds,
    )
    nobody_read = not any(isinstance(read, EngineSample) for read in observation.endpoints.values())
    if observation.absent is not None:
        signals = _no_replica(observation.at, observation.absent, some_asked_for(counted["asked_replicas"]))
    elif policy.scrape.empty_means == "zero" and nobody_read and observation.endpoints:
        signals = _all_zero(observation.at)
    else:
        signals = _measured(history, coverage, policy.window_seconds)
    counts = history.flow.counts if counts_arrivals(coverage) else None
    warnings = {text for tracked in coverage.read for text in tracked.sample.warnings}
    warnings.update(observation.demand.warnings if observation.demand else ())
    signals = replace(
        signals,
        arrivals_dispersion=counts.dispersion if counts else None,
        arrivals_trend=counts.trend(_read_until(coverage, observation.at)) if counts else None,
        identity=_identity(coverage),
        counters_moved=moved,
        warnings=tuple(sorted(warnings)),
        applied=observation.applied,
        **counted,
        **_told_by_gateways(signals, observation.demand),
        **_told_by_replicas(signals, observation),
    )
    return history, _with_queried(signals, observation)


def _identity(coverage: Coverage) -> str | None:
    """What all that are read say they are; None where they do not agree."""
    said = {tracked.sample.identity for tracked in coverage.read}
    return said.pop() if len(said) == 1 else None


def _read_until(coverage: Coverage, at: float) -> float:
    """Up to when every endpoint that still counts has been read."""
    return min([tracked.boundary for tracked in coverage.read], default=at)


def _measured(history: History, coverage: Coverage, window_seconds: float) -> Signals:
    window = look_back(history, coverage, window_seconds)
    recent = look_back(history, coverage, RECENT_SECONDS)
    arrivals, finished = window.rate(ARRIVALS), window.rate(FINISHED)
    running = gauge(coverage, "running", "sum", without_stalled=True)
    quiet = all(
        coverage.not_applicable(family) or is_zero(signal)
        for family, signal in (("arrivals", arrivals), ("finished", finished), ("running", running))
    )
    prefill, decode = window.latency("prefill", quiet), window.latency("decode", quiet)
    prompt, generation = window.lengths("prompt_length", quiet), window.lengths("generation_length", quiet)
    signals = Signals(
        arrivals_per_second=arrivals,
        arrivals_recent_per_second=recent.rate(ARRIVALS),
        arrivals_last_per_second=recent.last_rate(ARRIVALS),
        finished_per_second=finished,
        running=running,
        waiting=gauge(coverage, "waiting", "sum", without_stalled=True),
        busiest_running=gauge(coverage, "running", "max", without_stalled=True),
        queueing_replicas=count(
            coverage, lambda tracked: not coverage.stalled(tracked) and tracked.sample.gauges.get("waiting", 0.0) > 0
        ),
        saturated_sequences=_saturated(coverage),
        ready_replicas=count(coverage, lambda tracked: not coverage.stalled(tracked)),
        stalled_replicas=count(coverage, coverage.stalled),
        asleep_replicas=asleep_count(coverage),
        e2e_seconds=window.latency("e2e", quiet),
        ttft_seconds=window.latency("ttft", quiet),
        tpot_seconds=window.latency("tpot", quiet),
        queue_seconds=window.latency("queue", quiet),
        prefill_seconds=prefill,
        decode_seconds=decode,
        prefill_share_ratio=_share(prefill, decode),
        prompt_tokens_mean=prompt[0],
        generation_tokens_mean=generation[0],
        prompt_tokens_deviation=prompt[1],
        generation_tokens_deviation=generation[1],
        prompt_tokens_per_second=window.rate(PROMPT_TOKENS),
        generation_tokens_per_second=window.rate(GENERATION_TOKENS),
        kv_use_ratio=_ratio(gauge(coverage, "kv_use", "max", without_stalled=True)),
        kv_use_mean_ratio=_ratio(gauge(coverage, "kv_use_mean", "mean", without_stalled=True)),
        kv_capacity_tokens=gauge(coverage, "kv_capacity_tokens", "min"),
        preemptions_recent=recent.counted(PREEMPTIONS),
        gpu_busy_ratio=_ratio(gauge(coverage, "gpu_busy", "mean")),
        sm_active_ratio=_ratio(gauge(coverage, "sm_active", "mean")),
        gpu_memory_free_ratio=_ratio(gauge(coverage, "gpu_memory_free", "min")),
        applied_batch=gauge(coverage, "applied_batch", "min"),
    )
    lacking: dict[str, Any] = {
        name: absent
        for family, names in _SIGNALS_OF.items()
        if (absent := coverage.not_applicable(family)) is not None
        for name in names
    }
    return replace(signals, **lacking) if lacking else signals


def _saturated(coverage: Coverage) -> Signal[float]:
    """The largest ``saturated`` of an endpoint; not applicable while nobody queues, for then no cap shows."""
    if coverage.trouble:
        return Unknown(coverage.trouble)
    fresh, held = (
        [tracked.saturated for tracked in group if tracked.saturated is not None and not coverage.stalled(tracked)]
        for group in (coverage.fresh, coverage.held)
    )
    complete = len(coverage.fresh) == coverage.endpoints
    if fresh and complete:
        return Known(max(fresh), coverage.oldest_at)
    if fresh or held:
        return Stale(max([*fresh, *held]), coverage.oldest_at, max(fresh, default=0.0))
    return NotApplicable("no replica queued at both of its last two reads")


def _share(one: Signal[Latency], other: Signal[Latency]) -> Signal[float]:
    """The first's share of the time that requests spent in both."""
    for each in (one, other):
        if isinstance(each, Unknown | NotApplicable):
            return each
    assert isinstance(one, Known | Stale)
    assert isinstance(other, Known | Stale)
    spent = [each.value.mean_seconds * each.value.samples for each in (one, other)]
    if sum(spent) <= 0:
        return NotApplicable("no time was spent in either")
    share, at = spent[0] / sum(spent), min(one.at, other.at)
    return Known(share, at) if isinstance(one, Known) and isinstance(other, Known) else Stale(share, at)


def _ratio(signal: Signal[float]) -> Signal[float]:
    """Rounding takes an engine's ratio a little over 1; nothing can be fuller than full."""
    match signal:
        case Known(value=value, at=at):
            return Known(min(max(value, 0.0), 1.0), at)
        case Stale(value=value, at=at, at_least=least):
            return Stale(min(max(value, 0.0), 1.0), at, min(max(least, 0.0), 1.0))
        case _:
            return signal


def _no_replica(at: float, reason: str, asked: float | None) -> Signals:
    """There is no replica to read. What an engine would measure does not exist then, unless ``asked`` (replicas asked
    for, None: none, or not known) says that there should be some: replicas that stopped being ready under load look
    just like this, and their load is unknown.
    """
    missing = NotApplicable(reason) if asked is None else Unknown(f"of {asked:g} replicas asked for none is ready")
    nothing: dict[str, Any] = {name: missing for name in CATALOG if name not in NOT_FROM_ENGINES}
    zero = Known(0.0, at)
    return replace(Signals(**nothing), ready_replicas=zero, stalled_replicas=zero, asleep_replicas=zero)


def _all_zero(at: float) -> Signals:
    """What the operator declared silence to mean (``scrape.empty_means: zero``): no load, and nothing to be slow."""
    zero, nothing = Known(0.0, at), _EMPTY_MEANS_ZERO
    return Signals(
        arrivals_per_second=zero,
        arrivals_recent_per_second=zero,
        arrivals_last_per_second=zero,
        finished_per_second=zero,
        running=zero,
        waiting=zero,
        busiest_running=zero,
        queueing_replicas=zero,
        saturated_sequences=nothing,
        ready_replicas=zero,
        stalled_replicas=zero,
        asleep_replicas=zero,
        e2e_seconds=nothing,
        ttft_seconds=nothing,
        tpot_seconds=nothing,
        queue_seconds=nothing,
        prefill_seconds=nothing,
        decode_seconds=nothing,
        prompt_tokens_mean=nothing,
        generation_tokens_mean=nothing,
        prompt_tokens_deviation=nothing,
        generation_tokens_deviation=nothing,
        prefill_share_ratio=nothing,
        prompt_tokens_per_second=zero,
        generation_tokens_per_second=zero,
        kv_use_ratio=zero,
        kv_use_mean_ratio=zero,
        kv_capacity_tokens=nothing,
        preemptions_recent=zero,
        gpu_busy_ratio=nothing,
        sm_active_ratio=nothing,
        gpu_memory_free_ratio=nothing,
        applied_batch=nothing,
    )


def _told_by_gateways(signals: Signals, demand: Demand | None) -> dict[str, Any]:
    """The signals that gateways tell. Their arrivals stand in only where the engines' are not known: at zero replicas
    nobody else sees a request come.
    """
    if demand is None:
        return {"pending": _NO_WAKE_SOURCE, "wake_demand": _NO_WAKE_SOURCE}
    pending: Signal[float] = (
        Unknown(demand.reason or "no gateway reports its pending requests")
        if demand.pending is None
        else Known(max(0.0, demand.pending - _served(signals, demand.in_flight)), demand.at)
    )
    told: dict[str, Any] = {
        "pending": pending,
        "wake_demand": Known(1.0 if demand.wake_requested else 0.0, demand.at),
    }
    if demand.arrivals_per_second is not None:
        arrivals = Known(demand.arrivals_per_second, demand.at)
        for name in ("arrivals_recent_per_second", "arrivals_last_per_second"):
            if not isinstance(getattr(signals, name), Known):
                told[name] = arrivals
    return told


def _served(signals: Signals, in_flight: float) -> float:
    """How many of the requests in flight at gateways the replicas have already: those must not be counted twice."""
    inside = [signal.value for signal in (signals.running, signals.waiting) if isinstance(signal, Known | Stale)]
    return min(in_flight, sum(inside))


def _told_by_replicas(signals: Signals, observation: Observation) -> dict[str, Any]:
    """The signals of what replicas reported to run with. The least of those that report: which others there are is not
    known, but one replica at least runs no more than this.
    """
    told: dict[str, Any] = {}
    sleeping = [each.age_seconds for each in observation.applied if each.rung == "asleep"]
    if sleeping and isinstance(signals.asleep_replicas, Unknown):
        # A version that does not tell it on its page: then its agent does.
        told["asleep_replicas"] = Known(float(len(sleeping)), observation.at - max(sleeping))
    batches = [(each.batch_size, each.age_seconds) for each in observation.applied if each.batch_size is not None]
    if batches:
        least, oldest = min([size for size, _ in batches]), max([age for _, age in batches])
        told["applied_batch"] = Known(float(least), observation.at - oldest)
    return told


def _with_queried(signals: Signals, observation: Observation) -> Signals:
    """``signals`` with those that queries of the operator's own give in their place. A flow that is asked for is the
    recent one, too, where no engine tells that.
    """
    if not observation.queried:
        return signals
    told: dict[str, Any] = {name: queried.signal for name, queried in observation.queried.items()}
    arrivals = told.get("arrivals_per_second")
    if isinstance(arrivals, Known | Stale):
        for name in ("arrivals_recent_per_second", "arrivals_last_per_second"):
            if not isinstance(getattr(signals, name), Known | Stale):
                told[name] = arrivals
        told["arrivals_trend"] = None  # of what the engines count: another flow than the one asked for
    return replace(signals, **told)
