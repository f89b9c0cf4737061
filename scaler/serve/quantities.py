"""How a number is said to a person: durations, a signal's value with its unit, two values compared."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scaler.signals.model import CATALOG, Known, Latency, Signal, Stale

#: How a signal's value reads inside a sentence; a signal without an entry is "name value unit".
_PHRASES: Mapping[str, str] = {
    "arrivals_per_second": "{} arriving",
    "arrivals_recent_per_second": "{} arriving in the last 15 s",
    "arrivals_last_per_second": "{} arriving since the last read",
    "finished_per_second": "{} finishing",
    "running": "{} running",
    "waiting": "{} waiting",
    "pending": "{} pending at the gateway",
    "wake_demand": "{} calling for a wake",
    "ready_replicas": "{} ready",
    "busiest_running": "{} running in the busiest replica",
    "queueing_replicas": "{} with a queue",
    "stalled_replicas": "{} stalled",
    "asleep_replicas": "{} asleep",
    "asked_replicas": "{} asked for",
    "pending_replicas": "{} loading",
    "unschedulable_replicas": "{} without a node",
    "e2e_seconds": "e2e P95 {}",
    "ttft_seconds": "TTFT P95 {}",
    "tpot_seconds": "TPOT P95 {}",
    "queue_seconds": "queue time P95 {}",
    "prefill_seconds": "prefill P95 {}",
    "decode_seconds": "decode P95 {}",
    "prompt_tokens_mean": "mean prompt {}",
    "generation_tokens_mean": "mean answer {}",
    "prompt_tokens_deviation": "spread of prompts {}",
    "generation_tokens_deviation": "spread of answers {}",
    "prefill_share_ratio": "prompts' share of computing time {}",
    "prompt_tokens_per_second": "{} of prompts computed",
    "generation_tokens_per_second": "{} of answers computed",
    "kv_use_ratio": "KV use {}",
    "kv_use_mean_ratio": "mean KV use {}",
    "kv_capacity_tokens": "KV capacity {}",
    "preemptions_recent": "{} preempted in the last 15 s",
    "gpu_busy_ratio": "GPU busy {}",
    "sm_active_ratio": "SM activity {}",
    "gpu_memory_free_ratio": "free GPU memory {}",
    "applied_batch": "applied batch {}",
    "spent_gpu_hours": "{} GPU-hours spent",
    "season_requests_per_second": "{} usually arriving",
}

#: Units by the end of a name.
_UNITS = (("_seconds", "s"), ("_per_second", "req/s"))
#: Unit words that lose their "s" after 1.
_COUNTED = ("requests", "replicas", "sequences", "tokens")


def number(value: float) -> str:
    """Three significant digits, never an exponent: ``0.97``, ``3``, ``12.3``, ``458,000``."""
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) < 1:
        return f"{value:.{3 if abs(value) >= 0.01 else 6}f}".rstrip("0").rstrip(".")
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds in the largest units that still tell: ``52 ms``, ``1.4 s``, ``41 s``, ``2 min 5 s``, ``1 h 20 min``."""
    if math.isinf(seconds):
        return "infinity"
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 10:
        return f"{number(round(seconds, 2))} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    large, small, words = (
        (*divmod(whole, 60), ("min", "s")) if whole < 3600 else (*divmod(whole // 60, 60), ("h", "min"))
    )
    if large >= 48 and words[0] == "h":
        return f"{large // 24} d"
    return f"{large} {words[0]} {small} {words[1]}" if small else f"{large} {words[0]}"


def counted(value: float, plural: str) -> str:
    """``1 replica``, ``2 replicas``, ``0 replicas``."""
    return f"{number(value)} {plural[:-1] if value == 1 else plural}"


def quantity(signal: str | None, value: float) -> str:
    """A value with its signal's unit: ``3 req/s``, ``52 ms``, ``0.97``, ``12 requests``.

    For what is no canonical signal, a name ending in ``_seconds`` is a duration, one in ``_per_second`` a rate of
    requests, and anything else a bare number.
    """
    kind = CATALOG.get(signal or "")
    unit = kind.unit if kind else next((unit for end, unit in _UNITS if (signal or "").endswith(end)), "")
    if unit == "s":
        return duration(value)
    if unit in _COUNTED:
        return counted(value, unit)
    return number(value) if unit in ("", "0..1") else f"{number(value)} {unit}"


def title(signal: str | None) -> str:
    """A signal's name inside a sentence: ``KV use``, ``TTFT P95``, ``arrivals per second``."""
    phrase = _PHRASES.get(signal or "", "")
    if phrase.endswith(" {}"):
        return phrase.removesuffix(" {}")
    return (signal or "a signal").removesuffix("_ratio").removesuffix("_seconds").replace("_", " ")


def phrase(signal: str | None, value: float | None) -> str:
    """A measured value as part of a sentence: ``3 req/s arriving``, ``KV use 0.97``, ``TTFT P95 1.4 s``."""
    if value is None:
        return title(signal)
    template = _PHRASES.get(signal or "")
    if template is None:
        template = f"{title(signal)} {{}}" if signal else "{}"
    return template.format(quantity(signal, value))


def compared(signal: str | None, value: float | None, threshold: float | None) -> str:
    """A value against its threshold: ``KV use 0.97 is over 0.95``; without a threshold the value alone."""
    said = phrase(signal, value)
    if value is None or threshold is None:
        return said
    relation = "over" if value > threshold else "under" if value < threshold else "at"
    return f"{said} is {relation} {quantity(signal, threshold)}"


def plain_value(signal: Signal[float] | Signal[Latency]) -> float | None:
    """A signal as one number for a log line: its value, a latency's P95 estimate (seconds), None where it has none."""
    if not isinstance(signal, Known | Stale):
        return None
    return signal.value.p95.estimate if isinstance(signal.value, Latency) else signal.value
