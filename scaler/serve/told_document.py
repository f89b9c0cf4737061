"""A workload's document as this version words it, from a scaler of any version: what one does not tell yet is filled in
as not told, and named; what one tells that is not known here is named too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scaler.value import frozen

Document = dict[str, Any]

#: Stands for a text that was not told.
NOT_TOLD: Final = "not told"

_REASON: Final = {"code": "", "sentence": NOT_TOLD}
_INTERVAL: Final = {"low": 0.0, "high": None}
#: What is read of a document, with what stands for it where it is not told. A list holds what its entries have; a tuple
#: holds the one shape of what may also be null, which it is where it is not told. Every key of the document itself is
#: here; of what is inside only those that are worded.
_SHAPE: Final[Document] = {
    "workload": "the workload",
    **dict.fromkeys(("namespace", "name", "owner", "age_seconds", "data_age_seconds", "in_flight", "admission")),
    **dict.fromkeys(("budget_spent_ratio", "engine", "strategy", "utilisation", "generation", "valid_until")),
    **dict.fromkeys(("tick_seconds", "lost_signals", "decided_at", "state_seconds", "cause", "cause_words")),
    **dict.fromkeys(("batch_size", "token_budget", "queue_limit", "workers", "rung", "sleep", "card", "cold_start")),
    **dict.fromkeys(("season", "cost", "advice")),
    "state": "unknown",
    "state_words": "",
    "mode": "active",
    "mode_words": "",
    "override": ({"by": NOT_TOLD, "remaining_seconds": None},),
    "advised": ({"replicas": None, "batch_size": None},),
    "available": True,
    "current": True,
    "active": True,
    "replicas": dict.fromkeys(("desired", "ready", "floor", "ceiling")),
    "admission_words": "whether new requests are taken is not told",
    "capacity": {
        **dict.fromkeys(("sequences", "requests_per_second")),
        "assumed": False,
        "source": NOT_TOLD,
        "measured": {"low": None, "high": None},
        "windows": 0,
    },
    "objectives": [
        {
            "objective": NOT_TOLD,
            **dict.fromkeys(("warning_seconds", "critical_seconds", "verdict", "critical_verdict")),
            "p95": (_INTERVAL,),
        }
    ],
    "idle": {"last_activity": ({"signal": "something", "endpoint": None, "series": None, "age_seconds": None},)},
    "lasting": [{"condition": NOT_TOLD, "seconds": None, "ends": "that is not told"}],
    "reasons": [_REASON],
    "suppressed": [_REASON],
    "applied": [{"replica": NOT_TOLD, "batch_size": None, "generation": 0}],
    "signals": [
        {
            "signal": NOT_TOLD,
            "status": "unknown",
            "value": None,
            "latency": ({"p95": _INTERVAL, "samples": None},),
            **dict.fromkeys(("age_seconds", "reason")),
        }
    ],
    "signal_warnings": [],
    "warnings": [],
    "last_adjustments": [
        {
            "at": NOT_TOLD,
            "changes": [{"what": NOT_TOLD, "from": None, "to": None}],
            "effect": ({"sentence": NOT_TOLD},),
        }
    ],
    "sources": [{"source": NOT_TOLD, "endpoint": "", "ok": True, "detail": ""}],
    "standing": [{"about": NOT_TOLD, "sentence": NOT_TOLD}],
}


@frozen
class Told:
    """``document`` with everything that is worded; ``lacking`` names what the scaler did not tell (``replicas.ready``),
    ``unknown`` what it told that has no words here.
    """

    document: Document
    lacking: tuple[str, ...]
    unknown: tuple[str, ...]


def told(document: Document) -> Told:
    """The document of ``GET /v1/workloads/{namespace}/{name}``, made whole."""
    lacking: dict[str, None] = {}
    whole = _whole(document, _SHAPE, "", lacking)
    return Told(whole, tuple(lacking), tuple(key for key in document if key not in _SHAPE))


def _whole(given: Any, shape: Any, at: str, lacking: dict[str, None]) -> Any:
    """``given`` in the ``shape``; what was not there is named in ``lacking``."""
    if isinstance(shape, tuple):
        return None if given is None else _whole(given, shape[0], at, lacking)
    if isinstance(shape, list):
        return [_whole(each, shape[0], at, lacking) for each in given] if shape else given
    if not isinstance(shape, Mapping) or not isinstance(given, Mapping):
        return given
    whole = dict(given)
    for key, within in shape.items():
        if key in given:
            whole[key] = _whole(given[key], within, f"{at}{key}.", lacking)
        else:
            lacking[f"{at}{key}"] = None
            whole[key] = _not_told(within)
    return whole


def _not_told(shape: Any) -> Any:
    """What stands for something of this shape that was not told."""
    if isinstance(shape, tuple):
        return None
    if isinstance(shape, list):
        return []
    return {key: _not_told(within) for key, within in shape.items()} if isinstance(shape, Mapping) else shape
