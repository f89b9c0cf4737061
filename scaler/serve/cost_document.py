"""What a workload expects by the time of the week, as JSON of the API and as lines of ``explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scaler.control.season import SLOTS_KEPT
from scaler.policy.model import SLOTS_A_DAY
from scaler.serve.plain_json import finite
from scaler.serve.quantities import duration, number
from scaler.serve.snapshot import Snapshot

Document = dict[str, Any]


def season_document(snapshot: Snapshot) -> Document:
    """What is known of the season, and what it expects a cold start ahead."""
    season, expected, law = snapshot.decision.next_memory.season, snapshot.decision.season, snapshot.policy.season
    return {
        "period": season.period,
        "enabled": law.enabled,
        "zone": law.zone,
        "days_known": round(season.slots_known / SLOTS_A_DAY, 2),
        "days_kept": SLOTS_KEPT // SLOTS_A_DAY,
        "unexplained_ratio": finite(season.skill.unexplained),
        "expected_requests_per_second": None if expected is None else finite(expected.rate),
        "usual_requests_per_second": None if expected is None else finite(expected.usual),
        "ahead_seconds": snapshot.policy.replicas.cold_start_seconds,
    }


def season_line(season: Document) -> Iterator[str]:
    """The season in a line; none of a document that has none."""
    if not season:
        return
    known = f"{number(season['days_known'])} of {season['days_kept']} days known"
    if season["period"] is None:
        yield f"no pattern so far, {known}"
        return
    ahead, usual = duration(season["ahead_seconds"]), season["usual_requests_per_second"]
    line = f"{season['period']}; nothing usual in {ahead}"
    if usual is not None:
        line = f"{season['period']}; {number(usual)} req/s usual in {ahead}"
        if season["expected_requests_per_second"] < 0.95 * usual:
            line += f", {number(season['expected_requests_per_second'])} as today goes"
    yield (
        line + f" ({season['zone']}, {known})" + ("" if season["enabled"] else "; season.enabled is false: not bought")
    )
