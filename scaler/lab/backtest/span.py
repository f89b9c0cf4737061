"""The stretch of time that is looked at: read as people write it, and the parts a server answers at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from scaler.value import frozen

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
#: Parts are as long as a Prometheus block (2 h), so that one is read once, and get shorter where an answer is large.
LONGEST_PART_SECONDS: Final = 7200
SHORTEST_PART_SECONDS: Final = 225


@frozen
class Span:
    """From ``since`` to ``until``, Unix seconds; what happened at ``since`` itself is not in it."""

    since: float
    until: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.until - self.since

    def part(self, begin: float, longest_seconds: int) -> Span:
        """The part that begins at ``begin`` and ends at the next multiple of ``longest_seconds``, or where all ends:
        however often it is read, the same parts are asked for.
        """
        end = (begin // longest_seconds + 1) * longest_seconds
        return Span(begin, min(end, self.until))

    def ticks(self, seconds: float) -> Iterator[float]:
        """The multiples of ``seconds`` in it."""
        tick = self.since // seconds + 1
        while tick * seconds <= self.until:
            yield tick * seconds
            tick += 1


def read_duration(text: str) -> float:
    """``7d``, ``36h``, ``1d12h`` in seconds. Raises ``ValueError`` saying what to write."""
    seconds = 0.0
    if _DURATION.fullmatch(text.strip()):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    if not seconds:
        raise ValueError(f"{text!r} is not a length of time; write for example 7d, 36h or 90m")
    return seconds


def read_time(text: str) -> float:
    """``2026-06-08``, ``2026-06-08T12:00:00Z`` or Unix seconds, as Unix seconds; without a zone it is UTC. Raises
    ``ValueError`` saying what to write.
    """
    try:
        if re.fullmatch(r"\d{9,11}(\.\d+)?", text.strip(), re.ASCII):
            return float(text)
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a time; write for example 2026-06-08T12:00:00Z, 2026-06-08 or Unix seconds"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def shown_time(unix: float) -> str:
    """``2026-06-08 12:00`` (UTC)."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M")


def shown_duration(seconds: float) -> str:
    """``7 d``, ``2 d 6 h``, ``45 min``, ``20 s``: two units at most."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    units = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min"))
    said = [f"{number} {unit}" for number, unit in units if number]
    return " ".join(said[:2])
