"""How far each endpoint's last sample can be trusted now, and how endpoints combine into one tri-state signal.

An endpoint is *fresh* (its last good sample is no older than three scrapes), *held* (older, but within the policy's
``hold_seconds``) or *lost*. All fresh: known. Any held or lost: the sum is not smaller, it lacks someone; so it is
stale, with what the fresh ones show as its ``at_least``. Nobody fresh or held: unknown. Where the list of endpoints is
itself in doubt there may be one that nobody names, so nothing is more than stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Literal

from scaler.signals.endpoint import Tracked, reports_flow
from scaler.signals.model import Known, NotApplicable, Signal, Stale, Unknown
from scaler.signals.observation import EngineSample, Observation, ReadFailure
from scaler.value import frozen

#: A sample older than so many scrapes is not fresh: one or two lost ones are the network's everyday life.
FRESH_INTERVALS = 3.0

Combine = Literal["sum", "max", "min", "mean"]


@frozen
class Coverage:
    """The endpoints of one observation by freshness. ``read`` are those that count, fresh or held; ``endpoints`` counts
    all of them, None where there may be some that are not listed; ``oldest_at`` is when the oldest of the samples that
    count was read; ``trouble`` says in words why nothing is known where nobody is fresh or held. ``lacking`` are the
    families that the engine of at least one of those read does not have, ``any_stalled`` whether one of those read is
    stalled.
    """

    fresh: tuple[Tracked, ...]
    held: tuple[Tracked, ...]
    read: tuple[Tracked, ...]
    endpoints: int | None
    oldest_at: float
    trouble: str
    stalled_after_seconds: float
    lacking: frozenset[str]
    any_stalled: bool

    def not_applicable(self, family: str) -> NotApplicable | None:
        """Why the family does not exist here, if every replica that was read is of an engine without it."""
        if family not in self.lacking:
            return None
        reasons = {tracked.sample.not_applicable.get(family) for tracked in self.read}
        told = [reason for reason in reasons if reason]
        return NotApplicable(min(told)) if told and None not in reasons else None

    def stalled(self, tracked: Tracked) -> bool:
        """Work present and no progress for too long: it gives no capacity and its frozen gauges are not demand."""
        return tracked.progress_seconds >= self.stalled_after_seconds

    def whole(self, since: float) -> bool:
        """Whether every endpoint is fresh, and was read ever since ``since`` (monotonic seconds)."""
        counted = [tracked for tracked in self.fresh if tracked.rates is not None and tracked.counted_from <= since]
        return len(counted) == self.endpoints


def cover(
    observation: Observation,
    tracked: Mapping[str, Tracked],
    now_mono: float,
    *,
    interval_seconds: float,
    hold_seconds: float,
    stalled_after_seconds: float,
) -> Coverage:
    """Sort the observation's endpoints by the age of their last good sample. Those not in it are gone, and ignored."""
    fresh, held = [], []
    for endpoint in sorted(observation.endpoints):
        known = tracked.get(endpoint)
        if known is None:
            continue
        age = now_mono - known.sample.at
        if age <= FRESH_INTERVALS * interval_seconds:
            fresh.append(known)
        elif age <= hold_seconds:
            held.append(known)
    read = (*fresh, *held)
    trouble = "" if read else _trouble(observation, hold_seconds)
    oldest_at = min([known.sample.at for known in read], default=now_mono)
    endpoints = len(observation.endpoints) if observation.lost is None else None
    lacking = frozenset[str]().union(*[known.sample.not_applicable for known in read])
    stalled = any(known.progress_seconds >= stalled_after_seconds for known in read)
    return Coverage(
        tuple(fresh), tuple(held), read, endpoints, oldest_at, trouble, stalled_after_seconds, lacking, stalled
    )


def gauge(coverage: Coverage, family: str, combine: Combine, *, without_stalled: bool = False) -> Signal[float]:
    """One gauge family over all endpoints. ``without_stalled``: of a stalled one the value, frozen as it is, is left
    out, but the endpoint counts as read.
    """
    if coverage.trouble:
        return Unknown(coverage.trouble)
    fresh, held = _reported(coverage.fresh, family), _reported(coverage.held, family)
    if not fresh and not held:
        return Unknown(f"no endpoint reports {family}")
    oldest = min([tracked.sample.at for _, tracked in (*fresh, *held)])
    complete = len(fresh) == coverage.endpoints
    if without_stalled and coverage.any_stalled:
        fresh, held = _working(fresh, coverage), _working(held, coverage)
        if not fresh and not held and combine != "sum":
            return Unknown(f"every replica that reports {family} is stalled")
    now = [value for value, _ in fresh]
    value = _combined([*now, *[value for value, _ in held]], combine)
    return Known(value, oldest) if complete else Stale(value, oldest, _at_least(now, combine, coverage.endpoints))


def count(coverage: Coverage, counts: Callable[[Tracked], bool]) -> Signal[float]:
    """How many endpoints are so."""
    if coverage.trouble:
        return Unknown(coverage.trouble)
    fresh = float(len([1 for tracked in coverage.fresh if counts(tracked)]))
    if len(coverage.fresh) == coverage.endpoints:
        return Known(fresh, coverage.oldest_at)
    held = len([1 for tracked in coverage.held if counts(tracked)])
    return Stale(fresh + held, coverage.oldest_at, fresh)


def asleep_count(coverage: Coverage) -> Signal[float]:
    """How many replicas say that no engine of theirs is awake. (They serve their page in their sleep, and the gauges of
    their load stand still: of requests that come meanwhile nothing shows.)
    """
    told = gauge(coverage, "awake_engines", "min")
    if isinstance(told, Unknown):
        return told
    return count(coverage, lambda tracked: tracked.sample.gauges.get("awake_engines") == 0)


def counts_arrivals(coverage: Coverage) -> bool:
    """Whether any endpoint counts what arrives, or none could be asked. Of an engine that has gauges alone only their
    changes are seen: those are no counts to take a trend or a dispersion from. (4 req/s of 10 s each: 0.4 req/s and
    φ = 3.9, by which a gateway's word on the arrivals was taken for a burst and a replica less was bought.)
    """
    return not coverage.read or any(reports_flow(tracked.sample, "arrivals") for tracked in coverage.read)


def counting_complete(
    coverage: Coverage, family: str, reports: Callable[[EngineSample], bool], whole: bool
) -> bool | Unknown:
    """Whether what was counted of ``family`` is from every endpoint all there was, given that it is so of those that
    count it at all (``whole``); Unknown with its reason where nothing was counted.
    """
    if coverage.trouble:
        return Unknown(coverage.trouble)
    heard = with_interval = 0
    for tracked in coverage.read:
        if reports(tracked.sample):
            heard += 1
            with_interval += tracked.rates is not None
    if not heard:
        return Unknown(f"no endpoint reports {family}")
    if not with_interval:
        return Unknown("first read; no interval yet")
    return whole and heard == coverage.endpoints


def _reported(group: Sequence[Tracked], family: str) -> list[tuple[float, Tracked]]:
    return [
        (value, tracked)
        for tracked in group
        if (value := tracked.sample.gauges.get(family)) is not None and isfinite(value)
    ]


def _working(group: Sequence[tuple[float, Tracked]], coverage: Coverage) -> list[tuple[float, Tracked]]:
    return [(value, tracked) for value, tracked in group if not coverage.stalled(tracked)]


def _combined(values: Sequence[float], combine: Combine) -> float:
    match combine:
        case "sum":
            return sum(values)
        case "max":
            return max(values)
        case "min":
            return min(values)
        case "mean":
            return sum(values) / len(values)


def _at_least(fresh: Sequence[float], combine: Combine, endpoints: int | None) -> float:
    """The lower bound of the whole that the fresh part proves: a mean's others may be 0, a minimum's anything."""
    match combine:
        case "sum":
            return sum(fresh)
        case "max":
            return max(fresh, default=0.0)
        case "min":
            return 0.0
        case "mean":
            return sum(fresh) / endpoints if endpoints else 0.0


def _trouble(observation: Observation, hold_seconds: float) -> str:
    endpoints = len(observation.endpoints)
    if observation.lost is not None:
        return observation.lost
    if not endpoints:
        return observation.absent or "no endpoint is configured"
    failures = [
        (read.at, name, read.reason) for name, read in observation.endpoints.items() if isinstance(read, ReadFailure)
    ]
    reason = f"; last failure: {max(failures)[2]}" if failures else ""
    return f"0 of {endpoints} endpoints read within {hold_seconds:g} s{reason}"
