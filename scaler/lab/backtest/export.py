"""A backtest as JSON: the figures of the report, and every tick in columns."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from scaler.lab.backtest.limits import what_it_cannot_know
from scaler.lab.backtest.money import money
from scaler.lab.backtest.play import Change, Moment
from scaler.lab.backtest.study import Backtest

#: Counted up where a reader would have to change.
FORMAT = 1


def as_json(backtest: Backtest) -> str:
    """The document. Times are Unix seconds, rates per second, latencies seconds; what is not known is null."""
    return json.dumps(_finite(document(backtest)), ensure_ascii=False, separators=(",", ":")) + "\n"


def document(backtest: Backtest) -> dict[str, Any]:
    """The same as a value."""
    setting, found = backtest.setting, backtest.findings
    gpus, paid = setting.gpus_per_replica, money(backtest)
    figures = asdict(found)
    verdicts = figures.pop("verdicts")
    return {
        "format": FORMAT,
        "workload": setting.workload,
        "since": backtest.span.since,
        "until": backtest.span.until,
        "policy": setting.policy_source,
        "bound": backtest.binding.said,
        "scrape_interval_seconds": backtest.interval_seconds,
        "tick_seconds": backtest.tick_seconds,
        "cold_start": asdict(backtest.cold_start),
        "capacity": asdict(backtest.capacity),
        "pace": asdict(backtest.pace),
        "samples": backtest.samples,
        "gpus_per_replica": gpus,
        "gpu_hour_price": setting.policy.gpu.hour_price if setting.gpu_hour_price is None else setting.gpu_hour_price,
        "currency": setting.currency or None,
        "gpu_hours": {"ran": found.ran.replica_hours * gpus, "loadtide": found.ours.replica_hours * gpus},
        "money": None if paid is None else {"ran": paid.ran, "loadtide": paid.ours},
        "saved_share": found.saved_share,
        "findings": figures,
        "cannot_know": what_it_cannot_know(backtest),
        "changes": [_change(change) for change in backtest.changes],
        "timeline": {
            **{name: [getattr(moment, name) for moment in backtest.moments] for name in Moment._fields},
            "verdict": verdicts,
        },
    }


def _change(change: Change) -> dict[str, Any]:
    reason = change.reason
    return {**change._asdict(), "reason": None if reason is None else asdict(reason)}


def _finite(value: Any) -> Any:
    """JSON has no infinity: what has no bound is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
