"""What the scaler would have measured with its own replicas in place of those that ran: the assumption of a backtest.

The past was measured with R replicas ready; the scaler would have had R'. Held to be independent of that are the
arrivals, their lengths and their tokens. Everything else is bent as far as arithmetic carries, and no further:

- *What is in flight* is what was, or where R' makes a difference what a fluid model says
  (:mod:`scaler.lab.backtest.crowd`): fewer replicas work more slowly, and may fall behind. It runs as far as R'
  replicas have room for it, and the rest waits. Without any replica it is the gateway that holds all of it.
- *Arrivals* are the past's; but what a gateway held for want of a replica reaches the first one at once.
- *Mean times* (from which the decision learns what one replica serves) are stretched by the model's slowdown at the
  load of R' over that at R.
- *Quantiles become bounds.* With more replicas than ran a latency would have been no higher, with fewer no lower. A
  quantile is an interval already, so one of its ends is let go: an objective can still be ``met`` in the first case
  and ``breached`` in the second, and the rest is ``undecided``. While the past's replicas suffered from more than their
  load (a queue that stuck to one of them) even fewer might have done better, and neither end is certain. Likewise KV
  use shrinks by R/R' with more replicas, and is at least what it was with fewer; preemptions are at most what they
  were with more, and at least that with fewer. What is known at one end only is stale: that end may raise.

With R' = R, once the two have had the same past, all of this is the identity: a scaler that makes the past's own
decisions sees the past's own signals. What is stale or unknown stays so.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from scaler.lab.backtest.crowd import Crowd, Pace
from scaler.policy.model import Policy
from scaler.signals.endpoint import QUEUED_SHARE
from scaler.signals.flow import RECENT_SECONDS
from scaler.signals.model import (
    Interval,
    Known,
    Latency,
    NotApplicable,
    Signal,
    Signals,
    Stale,
    known_value,
)
from scaler.signals.observation import Demand, Observation, ReplicaCounts
from scaler.signals.window import History, fold
from scaler.value import frozen

_AT_ZERO: Final = NotApplicable("no replica ran, and nothing recorded any demand")


@frozen
class Had:
    """The scaler's own replicas at one time."""

    ready: int
    asked: int

    @property
    def loading(self) -> int:
        """Asked for, and not yet ready."""
        return self.asked - self.ready


@frozen
class Released:
    """What the gateway let go when the first replica was ready: so many requests, so many seconds ago."""

    requests: float = 0.0
    seconds: float = math.inf

    def seen_in(self, signals: Signals, window_seconds: float, tick_seconds: float) -> Signals:
        """``signals`` with these among the arrivals, as the engine counts them."""
        looks = {
            "arrivals_per_second": window_seconds,
            "arrivals_recent_per_second": max(RECENT_SECONDS, tick_seconds),
            "arrivals_last_per_second": tick_seconds,
        }
        changed: dict[str, Any] = {
            name: Known(rate.value + self.requests / span, rate.at)
            for name, span in looks.items()
            if self.seconds < span and isinstance(rate := getattr(signals, name), Known)
        }
        return replace(signals, **changed) if changed else signals


def saturated(past: Signals, ran: float) -> bool:
    """Whether the past's replicas had all they could do: a queue worth speaking of beside what ran, and at half of them
    or more. (A queue that only one of many has is that one's misfortune.)
    """
    running, waiting = _or_zero(past.running), _or_zero(past.waiting)
    queueing = known_value(past.queueing_replicas)
    spread = queueing is None or queueing >= ran / 2
    return ran > 0 and spread and waiting >= max(1.0, QUEUED_SHARE * running)


def cap_of(policy: Policy, past: Signals) -> float:
    """The most sequences that run at once in one replica, as far as anybody tells; else inf."""
    told = [float(policy.batch.max)] if policy.batch.max else []
    told += [value for value in (known_value(past.applied_batch), known_value(past.saturated_sequences)) if value]
    return min(told, default=math.inf)


def measured_instead(
    past: Signals, ran: float, had: Had, crowd: Crowd, pace: Pace, policy: Policy, now: float
) -> Signals:
    """The signals with ``had`` in place of the ``ran`` replicas of the past, at ``now`` (Unix seconds); ``crowd`` is
    the model's state at that time.
    """
    counts = ReplicaCounts(now, ready=had.ready, asked=had.asked, pending=had.loading, unschedulable=0)
    measured = _or_zero(past.running) + _or_zero(past.waiting)
    in_flight = crowd.in_flight(measured)
    if had.ready == 0:
        return _without_replicas(past, counts, in_flight, policy, now)
    explained = crowd.explained_seconds >= policy.window_seconds
    signals = past
    if ran != had.ready or in_flight != measured:
        signals = _shared_out(past, ran, had.ready, in_flight, pace, cap_of(policy, past), explained)
    zero = Known(0.0, now)
    pending = zero if policy.can_wake and not isinstance(past.pending, Known) else past.pending
    return replace(
        signals,
        ready_replicas=Known(float(had.ready), now),
        asked_replicas=Known(float(had.asked), now),
        pending_replicas=Known(float(had.loading), now),
        unschedulable_replicas=zero,
        pending=pending,
        wake_demand=_wake(past, policy, now),
    )


def at_zero(past: Signals, now: float, *, woken: bool) -> Signals:
    """The signals of a tick in which no replica of the past was ready: whatever demand there was, nothing recorded it,
    so that it is taken for none. ``woken``: a replica was asked for all the same; whoever asked had a reason, and that
    is a wake.
    """
    zero = Known(0.0, now)
    return replace(
        past,
        wake_demand=Known(1.0, now) if woken else past.wake_demand,
        arrivals_per_second=zero,
        arrivals_recent_per_second=zero,
        arrivals_last_per_second=zero,
        finished_per_second=zero,
        running=zero,
        waiting=zero,
        busiest_running=zero,
        queueing_replicas=zero,
        ready_replicas=zero,
        stalled_replicas=zero,
        saturated_sequences=_AT_ZERO,
        e2e_seconds=_AT_ZERO,
        ttft_seconds=_AT_ZERO,
        tpot_seconds=_AT_ZERO,
        queue_seconds=_AT_ZERO,
        prefill_seconds=_AT_ZERO,
        decode_seconds=_AT_ZERO,
        kv_use_ratio=_AT_ZERO,
        kv_use_mean_ratio=_AT_ZERO,
        preemptions_recent=zero,
        counters_moved=False,
    )


def _without_replicas(past: Signals, counts: ReplicaCounts, in_flight: float, policy: Policy, now: float) -> Signals:
    """As production sees a workload at zero: no engine speaks, and a gateway, if one may, tells what it holds."""
    told = known_value(past.pending)
    held = in_flight + (told or 0.0)
    woken = known_value(past.wake_demand) == 1.0
    demand = Demand(now, held, wake_requested=woken) if policy.can_wake or told is not None else None
    observation = Observation(now, {}, demand, absent="no replica is ready", replicas=counts)
    _, signals = fold(History(), observation, now, policy, interval_seconds=1.0)
    return replace(signals, arrivals_dispersion=past.arrivals_dispersion)


def _shared_out(
    past: Signals, ran: float, ready: int, in_flight: float, pace: Pace, cap: float, explained: bool
) -> Signals:
    if not isinstance(past.running, Known) or not isinstance(past.waiting, Known):
        return past
    share, running, waiting = ran / ready, past.running.value, past.waiting.value
    full, as_it_was = saturated(past, ran), in_flight == running + waiting
    # A replica of the past that had a queue had all it takes at once.
    room = min(cap * ready, running / share if full else math.inf)
    computed = min(running if as_it_was and not full else in_flight, room)
    queue = in_flight - computed
    queueing: Signal[float] = Known(float(min(ready, math.ceil(queue))), past.waiting.at)
    no_worse = ready >= ran and in_flight <= running + waiting
    no_better = explained and ready <= ran and in_flight >= running + waiting
    slower = pace.slowdown(computed / ready) / pace.slowdown(running / ran) if ran else 1.0
    changed: dict[str, Any] = {
        "running": Known(computed, past.running.at),
        "waiting": Known(queue, past.waiting.at),
        "busiest_running": _busiest(past.busiest_running, computed / ready, running / ran if ran else 0.0),
        "queueing_replicas": past.queueing_replicas if as_it_was and not full else queueing,
    }
    for name in ("kv_use_ratio", "kv_use_mean_ratio"):
        changed[name] = _held(getattr(past, name), share)
    changed["preemptions_recent"] = _preempted(past.preemptions_recent, share, no_worse)
    for name in ("e2e_seconds", "ttft_seconds", "tpot_seconds"):
        changed[name] = _bent(getattr(past, name), slower, no_worse, no_better)
    return replace(past, **changed)


def _busiest(past: Signal[float], mean: float, past_mean: float) -> Signal[float]:
    """The busiest replica is as much above the mean as it was."""
    if not isinstance(past, Known):
        return past
    return Known(past.value * mean / past_mean if past_mean else mean, past.at)


def _held(past: Signal[float], share: float) -> Signal[float]:
    """KV use: its part of what was held, with more replicas; with fewer at least what it was."""
    if not isinstance(past, Known) or share == 1.0:
        return past
    return Known(past.value * share, past.at) if share < 1 else Stale(past.value, past.at, past.value)


def _preempted(past: Signal[float], share: float, no_worse: bool) -> Signal[float]:
    """Preemptions: with more replicas at most what they were, with fewer at least."""
    if not isinstance(past, Known) or share == 1.0 or (no_worse and past.value == 0):
        return past
    return Stale(past.value, past.at, 0.0 if no_worse else past.value)


def _bent(signal: Signal[Latency], slower: float, no_worse: bool, no_better: bool) -> Signal[Latency]:
    """The latency as far as it is certain with other replicas; its mean that much slower, its samples as they were."""
    if not isinstance(signal, Known):
        return signal
    latency = signal.value

    def let_go(interval: Interval) -> Interval:
        return Interval(interval.low if no_better else 0.0, interval.high if no_worse else math.inf)

    bent = replace(
        latency,
        p50=let_go(latency.p50),
        p95=let_go(latency.p95),
        p99=let_go(latency.p99),
        mean_seconds=latency.mean_seconds * slower,
    )
    return Known(bent, signal.at)


def _wake(past: Signals, policy: Policy, now: float) -> Signal[float]:
    if not policy.can_wake:
        return NotApplicable("no wake source is configured")
    return past.wake_demand if isinstance(past.wake_demand, Known) else Known(0.0, now)


def _or_zero(signal: Signal[float]) -> float:
    return known_value(signal) or 0.0
