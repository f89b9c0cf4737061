"""Why, as JSON: reasons, what was held back, and the adjustment log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scaler.control.model import Decision, Reason, Suppressed
from scaler.serve.effects import effect_document
from scaler.serve.plain_json import finite, instant, plain
from scaler.serve.sentences import decided_sentence, suppressed_sentence
from scaler.serve.signal_document import unit_of
from scaler.serve.snapshot import Adjustment

Document = dict[str, Any]


def outline(entry: Adjustment) -> Document:
    """What an adjustment changed, and what came of it."""
    return {
        "at": instant(entry.at),
        "changes": [{"what": what, "from": plain(old), "to": plain(new)} for what, old, new in entry.changes],
        "state": entry.decision.state.value,
        "effect": effect_document(entry.effect),
    }


def adjustment(entry: Adjustment) -> Document:
    """One line of the adjustment log."""
    batch_before = {name: old for name, old, _ in entry.changes}.get("batch")
    return outline(entry) | {
        "workload": entry.workload,
        "reasons": [
            reason_document(reason, entry.decision, batch_before if isinstance(batch_before, int) else None)
            for reason in entry.decision.reasons
        ],
        "signals": [
            {"signal": name, "status": word, "value": finite(value), "unit": unit_of(name)}
            for name, word, value in entry.signal_values
        ],
    }


def reason_document(reason: Reason, decision: Decision, batch_before: int | None = None) -> Document:
    """A reason as data and as a sentence."""
    return {
        "code": reason.code.value,
        "target": reason.target.value,
        "signal": reason.signal,
        "value": finite(reason.value),
        "threshold": finite(reason.threshold),
        "sentence": decided_sentence(reason, decision, batch_before),
    }


def suppressed_document(held: Suppressed) -> Document:
    """What was wanted and held back, as data and as a sentence; ``untimed_sentence`` is for who counts down itself."""
    return {
        "code": held.code.value,
        "target": held.target.value,
        "wanted": finite(held.wanted),
        "kept": finite(held.kept),
        "signal": held.signal,
        "value": finite(held.value),
        "threshold": finite(held.threshold),
        "remaining_seconds": finite(held.remaining_seconds),
        "sentence": suppressed_sentence(held),
        "untimed_sentence": suppressed_sentence(replace(held, remaining_seconds=None)),
    }
