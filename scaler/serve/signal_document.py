"""One signal as a JSON document of the HTTP API."""

from __future__ import annotations

from typing import Any

from scaler.serve.plain_json import age_seconds, finite
from scaler.signals.model import CATALOG, Interval, Known, Latency, Signal, Stale, status

Document = dict[str, Any]


def signal_document(name: str, signal: Signal[float] | Signal[Latency], mono: float) -> Document:
    """One signal: its status, and what that status carries (value and age, or the reason there is none)."""
    document: Document = {
        "signal": name,
        "meaning": CATALOG[name].meaning,
        "unit": unit_of(name),
        "required_for": list(CATALOG[name].required_for),
        "status": status(signal),
        "value": None,
        "latency": None,
        "age_seconds": None,
        "reason": None,
    }
    if isinstance(signal, Known | Stale):
        document["age_seconds"] = age_seconds(signal.at, mono)
        if isinstance(signal.value, Latency):
            document["latency"] = _latency_document(signal.value)
        else:
            document["value"] = finite(signal.value)
    else:
        document["reason"] = signal.reason
    return document


def unit_of(signal: str) -> str | None:
    """The unit of a canonical signal; None for anything else."""
    return CATALOG[signal].unit if signal in CATALOG else None


def interval_document(interval: Interval) -> Document:
    """``high`` null: beyond the last finite bucket, so there is no upper bound."""
    return {"low": finite(interval.low), "high": finite(interval.high), "estimate": finite(interval.estimate)}


def _latency_document(latency: Latency) -> Document:
    return {
        "p50": interval_document(latency.p50),
        "p95": interval_document(latency.p95),
        "p99": interval_document(latency.p99),
        "mean_seconds": finite(latency.mean_seconds),
        "samples": finite(latency.samples),
    }
