"""What a rival sees of a signal: the last value there was, as Prometheus' look-back would still give it."""

from __future__ import annotations

from scaler.signals.model import Known, Signal, Signals, Stale


def last_value(signal: Signal[float]) -> float:
    """The value, fresh or not; 0.0 where there is none: rivals read absence as zero, that is their way."""
    return signal.value if isinstance(signal, Known | Stale) else 0.0


def in_flight(signals: Signals) -> float:
    """Requests in the engines and at the gateway."""
    return last_value(signals.running) + last_value(signals.waiting) + last_value(signals.pending)
