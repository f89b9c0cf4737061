"""A snapshot as text for the other scalers, and back.

What one host cannot tell another is the monotonic clock: every ``mono`` time is written as an age at the moment of the
decision, and read back as that age before the moment at which the reader says the decision was made. A signal carries
the word of its status, because ``unknown`` and ``not_applicable`` look alike without it. Infinity (an unbounded
quantile, demand without a replica) is written as Python's JSON writes it; nobody but loadtide reads this text.

A reader of another version takes what it knows and ignores the rest; what it cannot mean is a ``ValueError``.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from scaler.control.model import Code, Decision, Now
from scaler.policy.model import Policy
from scaler.serve.snapshot import Snapshot, SourceHealth
from scaler.signals.activity import Activity
from scaler.signals.model import CATALOG, Known, Latency, NotApplicable, Signal, Signals, Stale, Unknown, status

#: Endpoints, and replicas with what they applied, told to the other scalers, failing endpoints first; the characters
#: of each one's detail. The size of a snapshot must not grow with what an engine answers; the owner shows them all.
ENDPOINTS_TOLD, DETAIL_LENGTH = 200, 300
#: Warnings told, and the characters of each.
WARNINGS_TOLD, WARNING_LENGTH = 50, 1000

_CODES = frozenset(Code)
_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
_LATENCY: TypeAdapter[Latency] = TypeAdapter(Latency)
_HEALTH: TypeAdapter[tuple[SourceHealth, ...]] = TypeAdapter(tuple[SourceHealth, ...])
_MOMENT: TypeAdapter[datetime] = TypeAdapter(datetime)
_HINTS = get_type_hints(Signals)
#: What Signals holds besides the signals themselves.
_BESIDES: dict[str, TypeAdapter[Any]] = {
    field.name: TypeAdapter(_HINTS[field.name]) for field in fields(Signals) if field.name not in CATALOG
}


def encode(snapshot: Snapshot) -> str:
    """``snapshot`` as JSON text."""
    at = snapshot.decided_at.mono
    memory = snapshot.decision.next_memory
    # Only the owner goes on from it, and not from here.
    memory = replace(memory, tick_mono=None, season=replace(memory.season, levels=""))
    failing_first = sorted(snapshot.health, key=lambda health: health.ok)[:ENDPOINTS_TOLD]
    health = tuple(replace(each, detail=each.detail[:DETAIL_LENGTH]) for each in failing_first)
    signals: dict[str, Any] = {name: _signal_out(signal, at) for name, signal in snapshot.signals.items()}
    for name, adapter in _BESIDES.items():
        signals[name] = adapter.dump_python(getattr(snapshot.signals, name), mode="json")
    signals["applied"] = signals["applied"][:ENDPOINTS_TOLD]
    signals["warnings"] = [text[:WARNING_LENGTH] for text in snapshot.signals.warnings[:WARNINGS_TOLD]]
    body = {
        "workload": snapshot.workload,
        # Text within text: most ticks repeat it, and a reader that has read it once need not again.
        "policy": snapshot.policy.model_dump_json(exclude_defaults=True),
        "signals": signals,
        "decision": _DECISION.dump_python(replace(snapshot.decision, next_memory=memory), mode="json"),
        "decided_at": snapshot.decided_at.utc.isoformat(),
        "generation": snapshot.generation,
        "valid_until": snapshot.valid_until.isoformat(),
        "health": _HEALTH.dump_python(health, mode="json"),
        "warnings": [text[:WARNING_LENGTH] for text in snapshot.warnings[:WARNINGS_TOLD]],
        "tick_seconds": snapshot.tick_seconds,
        "activity": None if snapshot.activity is None else _activity_out(snapshot.activity, at),
    }
    return json.dumps(body, separators=(",", ":"))


def decode(text: str, decided_mono: float) -> Snapshot:
    """The snapshot in ``text``, decided at ``decided_mono`` on the reader's monotonic clock.

    Raises ValueError (pydantic's ValidationError is one) for text that cannot be meant.
    """
    try:
        body = json.loads(text)
        signals = body["signals"]
        told: dict[str, Any] = {name: _signal_in(signals[name], decided_mono) for name in CATALOG if name in signals}
        besides = {
            name: adapter.validate_python(signals[name]) for name, adapter in _BESIDES.items() if name in signals
        }
        return Snapshot(
            workload=str(body["workload"]),
            policy=_policy(body["policy"]),
            signals=Signals(**told, **besides),
            decision=_decision(body["decision"]),
            decided_at=Now(_MOMENT.validate_python(body["decided_at"]), decided_mono),
            generation=int(body["generation"]),
            valid_until=_MOMENT.validate_python(body["valid_until"]),
            health=_HEALTH.validate_python(body["health"]),
            warnings=tuple(map(str, body["warnings"])),
            tick_seconds=float(body["tick_seconds"]),
            activity=_activity_in(body.get("activity"), decided_mono),
        )
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"no snapshot that this version can read: {error!r}") from error


def _decision(body: dict[str, Any]) -> Decision:
    """The decision, less what a newer version gives as a reason: its targets count all the same."""
    known = {name: [each for each in body[name] if each["code"] in _CODES] for name in ("reasons", "suppressed")}
    return _DECISION.validate_python(body | known)


@lru_cache(maxsize=4096)
def _policy(text: str) -> Policy:
    return Policy.model_validate_json(text)


def _signal_out(signal: Signal[float] | Signal[Latency], at: float) -> list[Any]:
    word = status(signal)
    match signal:
        case Stale(value=value, at=sampled, at_least=least):
            return [word, _value_out(value), at - sampled, least]
        case Known(value=value, at=sampled):
            return [word, _value_out(value), at - sampled]
        case Unknown(reason=reason) | NotApplicable(reason=reason):
            return [word, reason[:WARNING_LENGTH]]


def _value_out(value: float | Latency) -> Any:
    return _LATENCY.dump_python(value, mode="json") if isinstance(value, Latency) else value


def _activity_out(seen: Activity, at: float) -> list[Any]:
    return [seen.signal, at - seen.at, seen.endpoint[:DETAIL_LENGTH], seen.series[:DETAIL_LENGTH]]


def _activity_in(told: list[Any] | None, at: float) -> Activity | None:
    if told is None:
        return None
    signal, age, endpoint, series = told
    return Activity(str(signal), at - float(age), str(endpoint), str(series))


def _signal_in(told: list[Any], at: float) -> Signal[Any]:
    match told:
        case ["known", value, age]:
            return Known(_value_in(value), at - age)
        case ["stale", value, age, least]:
            return Stale(_value_in(value), at - age, least)
        case ["unknown", str(reason)]:
            return Unknown(reason)
        case ["not_applicable", str(reason)]:
            return NotApplicable(reason)
        case _:
            raise ValueError(f"no signal that this version can read: {str(told)[:80]}")


def _value_in(value: Any) -> float | Latency:
    return _LATENCY.validate_python(value) if isinstance(value, dict) else float(value)
