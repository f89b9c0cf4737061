"""What a workload's new owner goes on from: the memory that the last one wrote."""

from __future__ import annotations

from datetime import datetime

import structlog

from scaler.control.model import Memory
from scaler.serve.store import StoredWorkload, away_seconds, boot_seconds, from_json, read_boot_id, to_json
from scaler.serve.workloads import Workload
from scaler.signals.window import History

log = structlog.get_logger(__name__)

_BOOT_ID = read_boot_id()


def memory_text(name: str, stored: StoredWorkload) -> str:
    """``stored`` as text; "" where JSON has no word for it, so that the last good one stays."""
    try:
        return to_json(stored)
    except ValueError as problem:
        log.warning("memory not kept, JSON has no word for it", workload=name, problem=str(problem))
        return ""


def inherit(workload: Workload, text: str | None, away_by_redis_seconds: float, utc: datetime) -> None:
    """Let ``workload`` go on from the memory in ``text``; None, or one that cannot be read: it starts anew.

    The time since that memory, which may count as idle once the engines have been read, is the lesser of what Redis's
    clock and the scalers' own say: they may be of different hosts, and a clock that is wrong must not make a workload
    idle sooner.
    """
    workload.memory, workload.generation, workload.watermark = Memory(), 0, None
    workload.history, workload.away_seconds = History(), 0.0
    if text is None:
        return
    try:
        stored = from_json(text)
    except ValueError as problem:
        log.warning("memory unreadable, it starts anew", workload=workload.name, problem=str(problem)[:500])
        return
    workload.memory, workload.generation = stored.memory, stored.generation
    workload.watermark = stored.watermark
    by_hosts = away_seconds(stored, utc, _BOOT_ID, boot_seconds())
    workload.away_seconds = max(0.0, min(away_by_redis_seconds, by_hosts))
