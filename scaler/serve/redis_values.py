"""Values read back from Redis, each by itself: people edit keys by hand, and dumps are damaged. One that cannot be
meant is said once, stands for nothing, and costs no other; what loadtide keeps there it writes again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import structlog
from pydantic import TypeAdapter

from scaler.consume.contract import AppliedReport, ContractError, parse_report
from scaler.serve.demand_body import MOST, DemandReport
from scaler.value import frozen

log = structlog.get_logger(__name__)

#: In the hash of one that is told: what a gateway or replica said last, and a wake.
WAKE, REPORT = "wake", "from:"
#: A token, a number of a write, a time in ms. More digits Redis's scripts could not count with (:mod:`.lease`).
_WHOLE: Final = re.compile("[0-9]{1,15}")
_VERSION: Final = re.compile(rf"({_WHOLE.pattern})\.({_WHOLE.pattern})")
#: What becomes of a value that loadtide itself writes again and again.
_DECIDED: Final = "the next decision or call replaces it; where it comes back, find out who else writes to this Redis"
_METADATA: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])

#: Orders everything ever written of a workload: (fencing token of the writer, number of its write).
Version = tuple[int, int]
#: Nothing has been written yet.
UNWRITTEN: Version = (0, 0)


@frozen
class Position:
    """Where a workload stands in Redis: its owner's session (None: nobody's), the fencing token, the last write."""

    owner: str | None
    token: int
    version: Version


@frozen
class Demand:
    """What gateways told: reports and a wake, each with the Redis time in ms at which it came."""

    reports: tuple[tuple[DemandReport, float], ...] = ()
    wake_at_ms: float | None = None


#: What replicas reported to run with, each with the Redis time in ms at which it came.
AppliedAt = tuple[tuple[AppliedReport, float], ...]


@frozen
class Written:
    """The last write: its snapshot as text, and the Redis time in ms at which that was decided."""

    position: Position
    snapshot: str
    at_ms: float


def position(key: str, owner: str | None, token: str | None, version: str | None) -> Position | None:
    """Where a workload stands; None where nobody has ever owned it. A token that is none is one below all others, as a
    token of older data is: the owner writes its own over it, or another scaler takes the workload.
    """
    if token is None:
        return None
    fence = _whole(token)
    if fence is None:
        _unreadable(key, "token", token, _DECIDED)
    found = None if version is None else _VERSION.fullmatch(version)
    if found is None and version is not None:
        _unreadable(key, "version", version, _DECIDED)
    return Position(owner, fence or 0, UNWRITTEN if found is None else (int(found[1]), int(found[2])))


def written(key: str, fields: Sequence[str | None]) -> Written | None:
    """The last write, of owner, token, version, snapshot and its time; None where there is none. One of which no time
    is readable is older than any that is answered from.
    """
    owner, token, version, snapshot, at = fields
    place = position(key, owner, token, version)
    return None if place is None or not snapshot else Written(place, snapshot, moment_ms(key, "at", at) or 0.0)


def moment_ms(key: str, field: str, text: str | None) -> float | None:
    """A Redis time in ms; None where there is none, or none that can be read."""
    found = None if text is None else _whole(text)
    if found is None and text is not None:
        _unreadable(key, field, text, _DECIDED)
    return None if found is None else float(found)


def asked(key: str, entries: Mapping[str, str]) -> dict[str, float]:
    """When each workload was last asked for, Redis time in ms."""
    moments = {name: moment_ms(key, name, text) for name, text in entries.items()}
    return {name: at for name, at in moments.items() if at is not None}


def registered(key: str, entries: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Each workload's metadata."""
    known = {}
    for name, text in entries.items():
        try:
            known[name] = _METADATA.validate_json(text)
        except ValueError:
            _unreadable(key, name, text, f"HDEL {key} {name}; KEDA's next call tells it again")
    return known


def demand(entries: Mapping[str, str]) -> Demand:
    """What gateways told; without a word what cannot be read: its gateway reports again."""
    reports, wake = [], None
    for field, text in entries.items():
        at, *told = text.split(" ")
        moment = _whole(at)
        if moment is None:
            continue
        if field == WAKE:
            wake = float(moment)
        elif field.startswith(REPORT) and len(told) == 2:
            pending, arrivals = (_amount(each) for each in told)
            if pending is not None and (arrivals is not None or told[1] == "-"):
                reports.append((DemandReport(pending, arrivals, field[len(REPORT) :]), float(moment)))
    return Demand(tuple(reports), wake)


def applied(entries: Mapping[str, str]) -> AppliedAt:
    """What replicas reported; without a word what cannot be read: its replica reports again in seconds."""
    reports = []
    for text in entries.values():
        at, _, body = text.partition(" ")
        moment = _whole(at)
        try:
            if moment is not None:
                reports.append((parse_report(body), float(moment)))
        except ContractError:
            continue
    return tuple(reports)


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _amount(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= MOST else None


@lru_cache(maxsize=1024)
def _unreadable(key: str, field: str, text: str | None, then: str) -> None:  # noqa: ARG001
    """Say it; of each text once, for keys are read every few seconds. Not the text: metadata may hold a secret."""
    log.warning("a value in Redis is unreadable, it counts for nothing", key=key, field=field, then=then)
