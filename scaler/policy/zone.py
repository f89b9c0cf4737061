"""A time zone by its IANA name, as a policy key."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator


def _known_zone(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"{zone!r} is not an IANA time zone; write for example Europe/Berlin") from error
    return zone


Zone = Annotated[str, AfterValidator(_known_zone)]
