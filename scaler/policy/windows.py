"""Daily windows in a time zone, and the floors they hold: the keep-warm part of the policy, and the hours of others."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from scaler.policy.group import Group, Replicas, SomeReplicas
from scaler.policy.zone import Zone

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d(?::[0-5]\d)?)", re.ASCII)


class Hours(Group):
    """Daily hours, ``[start, end)`` in local wall time; ``end`` before ``start`` runs past midnight."""

    days: Annotated[tuple[Weekday, ...], Field(min_length=1)] = WEEKDAYS
    """On which days it *starts*."""
    start: time
    """Local time, HH:MM."""
    end: time
    """Local time, HH:MM, not included."""
    zone: Zone
    """IANA time zone, for example Europe/Berlin."""

    @field_validator("days", mode="before")
    @classmethod
    def _day_words(cls, days: object) -> object:
        """Accept ``mon-fri``, ``sun-thu`` and ``mon,wed`` beside a list."""
        if not isinstance(days, str):
            return days
        chosen: list[str] = []
        for part in days.lower().replace(" ", "").split(","):
            first, dash, last = part.partition("-")
            words = (first, last) if dash else (first,)
            ends = [name[:3] for name in words if len(name) >= 3 and any(day.startswith(name) for day in _DAY_NAMES)]
            if len(ends) != len(words):
                raise ValueError(f"{part!r} is not a day or a range of days; write for example mon-fri")
            index = [WEEKDAYS.index(name) for name in ends]
            span = (index[-1] - index[0]) % 7
            chosen += [WEEKDAYS[(index[0] + step) % 7] for step in range(span + 1)]
        return tuple(dict.fromkeys(chosen))

    @field_validator("start", "end", mode="before")
    @classmethod
    def _written_as_a_time(cls, value: object) -> object:
        """Take HH:MM and HH:MM:SS only. A number is no time: YAML 1.1 reads an unquoted ``22:00`` as 1320 and
        pydantic reads 1320 as 00:22. An offset is none either: the zone is a key of its own.
        """
        if isinstance(value, time) and value.tzinfo is None:
            return value
        parts = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
        if parts is None:
            raise ValueError(f'{value} is not a local time; write HH:MM in quotes, for example "08:00"')
        if parts[1] == "24":
            raise ValueError('a day ends at "00:00"; write that instead of 24:00')
        return f"{int(parts[1]):02}:{parts[2]}"

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.start == self.end:
            raise ValueError(f"start and end are both {self.start:%H:%M}; a window must have a length")
        return self

    def contains(self, instant: datetime) -> bool:
        """Whether ``instant`` (timezone-aware) lies in the window: the instant is turned into local wall time and
        compared there, so that days of 23 and 25 hours need no rule of their own.

        A local time that a change-over skips begins the window at the change-over (02:30 of a skipped hour: 03:00).
        """
        if not self.days:
            return False
        local = instant.astimezone(ZoneInfo(self.zone))
        clock, midnight_crossing = local.time(), self.end <= self.start
        today, yesterday = WEEKDAYS[local.weekday()], WEEKDAYS[(local - timedelta(days=1)).weekday()]
        if not midnight_crossing:
            return today in self.days and self.start <= clock < self.end
        return (today in self.days and clock >= self.start) or (yesterday in self.days and clock < self.end)


class Window(Hours):
    """A daily window with a floor."""

    replicas: SomeReplicas = 1
    """The floor while the window is open."""


class Warm(Group):
    """Replicas kept although nobody asks, to spare the cold start."""

    floor: Replicas = 0
    """Always kept."""
    windows: tuple[Window, ...] = ()
    """Daily windows with a floor of their own; overlapping ones: the highest counts."""

    def kept_at(self, instant: datetime) -> int:
        """How many replicas are kept warm at ``instant`` (timezone-aware)."""
        if not self.windows:
            return self.floor
        return max(self.floor, *(window.replicas for window in self.windows if window.contains(instant)), 0)
