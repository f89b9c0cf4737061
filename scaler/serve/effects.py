"""What an adjustment did: P95 and throughput over the window before it, and over the first whole window after it.

The window is the policy's own (60 s unless declared). The second reading is only taken once everything in it happened
after the adjustment, and it is the reader's to judge: load changes by itself, and a replica needs its cold start before
it helps. Where another target moved in between, the entry says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scaler.serve.adjustment_log import AdjustmentLog
from scaler.serve.plain_json import finite
from scaler.serve.quantities import duration, number
from scaler.serve.signal_document import interval_document
from scaler.serve.snapshot import Effect, Performance, Snapshot
from scaler.signals.model import Interval, Known, Latency, Signal, known_value

_LATENCIES = ("ttft", "tpot", "e2e")


def performance(snapshot: Snapshot) -> Performance:
    """P95 and throughput as the snapshot's window has them; only what is known."""
    signals = snapshot.signals

    def p95(signal: Signal[Latency]) -> Interval | None:
        return signal.value.p95 if isinstance(signal, Known) else None

    return Performance(
        ttft=p95(signals.ttft_seconds),
        tpot=p95(signals.tpot_seconds),
        e2e=p95(signals.e2e_seconds),
        requests_per_second=known_value(signals.finished_per_second),
        tokens_per_second=known_value(signals.generation_tokens_per_second),
    )


def begun(snapshot: Snapshot) -> Effect:
    """The effect of an adjustment made just now: what was before it."""
    return Effect(snapshot.decided_at.mono, snapshot.policy.window_seconds, performance(snapshot))


def measure_effects(adjustments: AdjustmentLog, snapshot: Snapshot) -> None:
    """Complete the effects for which a whole window has passed. Looks at the entries of the last windows alone."""
    now, moved_since = snapshot.decided_at.mono, False
    for place in range(len(adjustments) - 1, -1, -1):
        at, effect = adjustments.effect(place)
        if effect is None:
            if (snapshot.decided_at.utc - at).total_seconds() > 2 * snapshot.policy.window_seconds:
                return
            continue
        if effect.after is not None:
            return
        since = now - effect.made_mono
        if since >= effect.window_seconds:
            done = replace(effect, after=performance(snapshot), after_seconds=since, overlapped=moved_since)
            adjustments[place] = replace(adjustments[place], effect=done)
        moved_since = moved_since or since > 0


def effect_document(effect: Effect | None) -> dict[str, Any] | None:
    """An effect as JSON; None where the entry moved no target."""
    if effect is None:
        return None
    return {
        "window_seconds": effect.window_seconds,
        "before": _performance_document(effect.before),
        "after": None if effect.after is None else _performance_document(effect.after),
        "after_seconds": finite(effect.after_seconds),
        "overlapped": effect.overlapped,
        "sentence": effect_sentence(effect),
    }


def effect_sentence(effect: Effect) -> str:
    """``TTFT P95 2.1 s before, 0.9 s 60 s later; ...``, of what is known on both sides."""
    if effect.after is None or effect.after_seconds is None:
        return f"its effect is not measured yet: that takes {duration(effect.window_seconds)}"
    pairs = [
        f"{name.upper()} P95 {_told(before)} before, {_told(after)} after"
        for name in _LATENCIES
        if (before := getattr(effect.before, name)) is not None and (after := getattr(effect.after, name)) is not None
    ]
    flows: tuple[tuple[str, Callable[[Performance], float | None]], ...] = (
        ("req/s", lambda each: each.requests_per_second),
        ("tokens/s", lambda each: each.tokens_per_second),
    )
    for unit, of in flows:
        one, other = of(effect.before), of(effect.after)
        if one is not None and other is not None:
            pairs.append(f"{number(one)} {unit} before, {number(other)} after")
    if not pairs:
        return "its effect is not known: nothing was measured on both sides of it"
    mixed = " (another target moved meanwhile)" if effect.overlapped else ""
    return f"{'; '.join(pairs)}{mixed}"


def _told(interval: Interval) -> str:
    return duration(interval.estimate)


def _performance_document(performance: Performance) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name in _LATENCIES:
        interval = getattr(performance, name)
        document[f"{name}_p95"] = None if interval is None else interval_document(interval)
    document["requests_per_second"] = finite(performance.requests_per_second)
    document["tokens_per_second"] = finite(performance.tokens_per_second)
    return document
