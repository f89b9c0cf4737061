"""Proof over a restart: whether anything happened at the engines while nobody of us looked.

The idle timer may only be credited with the time away if every engine is the same process with the same activity
counters as before. The watermark is what must be stored to tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from scaler.signals.endpoint import ACTIVITY_COUNTERS, ACTIVITY_HISTOGRAMS
from scaler.signals.history import History
from scaler.signals.observation import EngineSample

#: Besides what the engine did: what it was asked for.
_COUNTERS = (*ACTIVITY_COUNTERS, "arrivals", "admission_rejections")


def activity_watermark(history: History) -> dict[str, list[object]]:
    """Per endpoint, of its last good sample: process start (Unix time) and the sum of each activity counter.

    Plain JSON values; None for what the engine does not report. Endpoints go by :func:`_storable`: this is written
    down.
    """
    read = {endpoint: history.tracked[endpoint].sample for endpoint in sorted(history.listed & history.tracked.keys())}
    return {_storable(endpoint): _mark(sample) for endpoint, sample in read.items()}


def unchanged_since(watermark: Mapping[str, Sequence[object]], history: History) -> bool | None:
    """Whether nothing happened since ``watermark`` was taken. None: an endpoint of it has not been read yet.

    True needs the same endpoints, each known to be the same process, with equal counters; a process whose start is not
    known is never known to be the same, and of no endpoint at all nothing is proven.
    """
    if history.last_at is None:
        return None
    if not watermark or watermark.keys() != set(map(_storable, history.listed)):
        return False
    now = activity_watermark(history)
    if any(then[:1] == [None] or list(then) != now.get(endpoint, list(then)) for endpoint, then in watermark.items()):
        return False
    return True if len(now) == len(watermark) else None


def _storable(endpoint: str) -> str:
    """The endpoint's name; of a URL that may hold a secret (a password, a query) only a digest."""
    if not any(sign in endpoint for sign in "@?#"):
        return endpoint
    return hashlib.blake2s(endpoint.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _mark(sample: EngineSample) -> list[object]:
    counted = [sample.counters.get(family) for family in _COUNTERS]
    observed = [sample.histograms.get(family) for family in ACTIVITY_HISTOGRAMS]
    return [
        sample.process_start_seconds,
        *[None if series is None else sum(series.values()) for series in counted],
        *[None if series is None else sum(each.count for each in series.values()) for series in observed],
    ]
