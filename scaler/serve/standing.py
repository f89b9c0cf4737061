"""What stands beside the load, in words: rung, part of a shared card, cold starts, season, cost, and budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scaler.serve.cost_document import cost_lines
from scaler.serve.quantities import counted, duration, number

Document = dict[str, Any]

#: Others on the same card that are named in one line.
SHARING_NAMED = 5


def standing_lines(document: Document) -> Iterator[tuple[str, str]]:
    """(about what, what is said), where there is something to say. ``document`` is that of one workload, decided."""
    if document["rung"] != "awake" or document["idle"]["sleep_after_seconds"] is not None:
        yield "rung", _rung(document)
    if (card := document["card"]) is not None:
        yield "card", _card(card, document["workload"])
    if document.get("cold_start", {}).get("expected_seconds") is not None:
        yield "cold start", _cold_start(document["cold_start"])
    yield from cost_lines(document)


def _rung(document: Document) -> str:
    """Who sleeps, and how long a wake takes beside a cold start."""
    sleep, after = document["sleep"], document["idle"]["sleep_after_seconds"]
    line = str(document["rung"])
    if sleep["asleep_seconds"] is not None:
        line += f" for {duration(sleep['asleep_seconds'])} (level {sleep['level']})"
    elif after is not None:
        line += f", asleep after {duration(after)} idle"
    if sleep["asleep_replicas"]:
        line += f"; {counted(sleep['asleep_replicas'], 'replicas')} asleep"
    wake, cold, declared = (sleep[f"{name}_seconds"] for name in ("wake", "cold_start", "declared_cold_start"))
    start = f"{duration(declared)} declared" if cold is None else f"{duration(cold)} measured"
    woken = "no wake measured yet" if wake is None else f"the last wake took {duration(wake)}"
    if wake is not None and sleep["engines_wake_seconds"] is not None:
        woken += f" ({duration(sleep['engines_wake_seconds'])} in the engine)"
    return f"{line}; {woken}, a cold start: {start}"


def _card(card: Document, workload: str) -> str:
    """What it has of the card it shares, who shares it, and what is really free of its memory."""
    own, time, memory = (number(100 * card[kind]) for kind in ("own", "time", "memory"))
    parts = f"{time} % of its time and {memory} % of its memory, {own} % its own"
    line = f"{card['name']}: {parts}; batch up to {number(card['batch_size'])}"
    others = [
        each["workload"] + (f" ({number(100 * each['time'])} % of its time)" if each["time"] is not None else "")
        for each in card["members"]
        if each["workload"] != workload
    ]
    more = f" and {len(others) - SHARING_NAMED} more" if len(others) > SHARING_NAMED else ""
    line += f"; beside {', '.join(others[:SHARING_NAMED])}{more}" if others else ""
    free = card["gpu_memory_free_ratio"]
    return line if free is None else f"{line}; {number(100 * free)} % of the GPU's memory is free"


def _cold_start(cold_start: Document) -> str:
    """What is expected of the next replica, and what was measured of those before."""
    nodes = {"warm": "", "new": " on new nodes"}
    measured = [
        f"half within {duration(found['p50_seconds'])}, 95 % within {duration(found['p95_seconds'])}{nodes[node]}"
        for node in nodes
        if (found := cold_start[node])
    ]
    by = f"; measured: {'; '.join(measured)}" if measured else ", as declared: too few were seen"
    return f"the next replica is expected to take {duration(cold_start['expected_seconds'])}{by}"
