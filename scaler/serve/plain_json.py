"""Values as JSON can say them: what is not known is null, infinity and NaN never appear, times are RFC 3339."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def instant(moment: datetime) -> str:
    """RFC 3339 in UTC, milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def finite(value: float | None) -> float | None:
    """The value, or None where JSON has no word for it (infinity, NaN)."""
    return value if value is not None and math.isfinite(value) else None


def age_seconds(at: float, mono: float) -> float:
    """Seconds; a reading from a moment "after" now (two clocks read in one tick) is 0 old."""
    return round(max(0.0, mono - at), 3)


def plain(value: object) -> object:
    """A target's value, or a word for what JSON does not know."""
    if isinstance(value, float):
        return finite(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)
