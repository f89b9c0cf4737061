"""The card that a workload shares, as JSON of the API: what it has of it, who else has what, and what is nobody's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scaler.serve.plain_json import finite
from scaler.serve.published import PublishedWorkload
from scaler.serve.snapshot import Snapshot
from scaler.signals.model import known_value

Document = dict[str, Any]


def card_part(snapshot: Snapshot) -> Document | None:
    """The card the workload shares, and what it has of it; None where it shares none."""
    card, name = snapshot.decision.next_memory.card, snapshot.policy.gpu_group.name
    if card is None or name is None:
        return None
    parts = {"own": card.own, "time": card.time, "memory": card.memory}
    return {"name": name, **{kind: round(part, 4) for kind, part in parts.items()}, "batch_size": card.bound}


def card_document(snapshot: Snapshot, sharing: Sequence[PublishedWorkload]) -> Document | None:
    """The same, with all who share it (``sharing``, the workload among them), the parts that nobody has now, and the
    least free memory of a GPU that any of them measures (0..1).
    """
    part = card_part(snapshot)
    if part is None:
        return None
    members = [_member(workload) for workload in sharing]
    measured = [
        known_value(workload.snapshot.signals.gpu_memory_free_ratio) for workload in sharing if workload.snapshot
    ]
    return part | {
        "members": members,
        "nobodys": {kind: _left(each[kind] for each in members) for kind in ("time", "memory")},
        "gpu_memory_free_ratio": finite(min((each for each in measured if each is not None), default=None)),
    }


def _member(workload: PublishedWorkload) -> Document:
    """What one who shares the card has of it; not known before it was decided."""
    snapshot = workload.snapshot
    part = None if snapshot is None else card_part(snapshot)
    own = workload.resolved.policy.gpu_group.share_ratio
    had = part or {"own": own, "time": None, "memory": None, "batch_size": None}
    return {
        "workload": workload.name,
        "state": "unknown" if snapshot is None else snapshot.decision.state.value,
        **{kind: had[kind] for kind in ("own", "time", "memory", "batch_size")},
    }


def _left(parts: Iterable[float | None]) -> float | None:
    """What is left of the card; None while somebody's part, or who is on it, is not known."""
    known = list(parts)
    taken = [part for part in known if part is not None]
    return max(0.0, round(1.0 - sum(taken), 4)) if known and len(taken) == len(known) else None
