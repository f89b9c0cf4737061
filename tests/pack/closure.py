"""Which rules rest on which: an alert on every recording rule whose series it reads, and on what those read."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_:]*")
_WINDOW = re.compile(r"(?P<number>\d+)(?P<unit>[smhd])$")
_RANGE = re.compile(r"\[(?P<number>\d+)(?P<unit>[smhd])(?P<step>:\w+)?\]")


def resting_on(document: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A rule file's document with only the rules named ``names`` and those that they read, in their groups.

    Groups of which nothing is left stay, empty: a test names the order of all.
    """
    wanted, more = set[str](), set(names)
    while more:
        wanted |= more
        more = {read for rule in _rules(document) if name_of(rule) in more for read in _read(document, rule)} - wanted
    groups = [
        {**group, "rules": [rule for rule in group["rules"] if name_of(rule) in wanted]} for group in document["groups"]
    ]
    return {**document, "groups": groups}


def read_by(document: dict[str, Any], name: str) -> list[str]:
    """The alerts that rest on the rule ``name``: itself, where it is one."""
    reached, more = set[str](), {name}
    while more:
        reached |= more
        more = {name_of(rule) for rule in _rules(document) if _read(document, rule) & more} - reached
    alerts = {rule["alert"] for rule in _rules(document) if "alert" in rule}
    return sorted(reached & alerts)


def name_of(rule: dict[str, Any]) -> str:
    """A rule's name, whichever it is."""
    return str(rule.get("record") or rule["alert"])


def misnamed(rule: dict[str, Any]) -> bool:
    """Whether a recording whose name ends in a window (``rate5m``) looks over another one. A subquery's range may be a
    minute shorter: before Prometheus 3 both its ends belong to it.
    """
    named = _WINDOW.search(rule.get("record", ""))
    if named is None:
        return False
    window = _minutes(named["number"], named["unit"])
    ranges = [(_minutes(each["number"], each["unit"]), each["step"]) for each in _RANGE.finditer(rule["expr"])]
    return any(minutes != window and not (step and minutes == window - 1) for minutes, step in ranges)


def _minutes(number: str, unit: str) -> float:
    return float(number) * {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}[unit]


def _rules(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in document["groups"] for rule in group["rules"]]


def _read(document: dict[str, Any], rule: dict[str, Any]) -> set[str]:
    recorded = {other["record"] for other in _rules(document) if "record" in other}
    return recorded.intersection(_NAME.findall(rule["expr"]))
