"""The body of ``POST .../demand``: JSON from a gateway we do not trust to be right."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from scaler.value import frozen

#: No gateway holds more; a greater number is a mistake (a timestamp, a byte count) that would buy every GPU there is.
MOST = 1e9
#: Longest name a gateway may give itself, characters.
SOURCE_LENGTH = 100
FIELDS = ("pending", "arrivals_per_second", "source")


class DemandBodyError(ValueError):
    """A body that cannot be meant; the text says what is wrong and what to send instead."""


@frozen
class DemandReport:
    """One gateway's report: requests held there now, what arrives there per second (None: not told), who says so."""

    pending: float
    arrivals_per_second: float | None = None
    source: str = ""


def parse_demand(body: bytes) -> DemandReport:
    """The report in ``body``. Raises :class:`DemandBodyError`."""
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise DemandBodyError("the JSON is nested too deeply; send one flat object") from None
    except ValueError as error:
        if isinstance(error, DemandBodyError):
            raise
        raise DemandBodyError(f'the body is not JSON ({error}); send for example {{"pending": 3}}') from None
    if not isinstance(document, dict):
        raise DemandBodyError('the body must be a JSON object; send for example {"pending": 3}')
    unknown = [name for name in document if name not in FIELDS]
    if unknown:
        raise DemandBodyError(f"unknown field {unknown[0][:SOURCE_LENGTH]!r}; the fields are {', '.join(FIELDS)}")
    if "pending" not in document:
        raise DemandBodyError('"pending" is missing: the requests held or refused for want of a replica')
    arrivals = document.get("arrivals_per_second")
    return DemandReport(
        pending=_amount("pending", document["pending"]),
        arrivals_per_second=None if arrivals is None else _amount("arrivals_per_second", arrivals),
        source=_source(document.get("source")),
    )


def _no_constant(word: str) -> NoReturn:
    raise DemandBodyError(f"{word} is not a number that can be acted on; leave the field out where it is not known")


def _amount(name: str, value: object) -> float:
    """A number of requests: finite, not negative, not a switch in disguise (``true`` would read as 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DemandBodyError(f'"{name}" must be a number, not {json.dumps(value)[:40]}')
    if not 0 <= value <= MOST:
        shown = f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)[:40]
        raise DemandBodyError(f'"{name}" must lie in 0 .. {MOST:.0f}, not {shown}')
    return float(value)


def _source(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > SOURCE_LENGTH or not value.isprintable():
        raise DemandBodyError(f'"source" must be a name of at most {SOURCE_LENGTH} printable characters')
    return value
