"""What the window fold remembers of one workload, and how one more observation enters it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from scaler.signals.endpoint import Tracked, advance, first_sight, newborn
from scaler.signals.flow import RECENT_SECONDS, Flow, Increment
from scaler.signals.observation import EngineSample, Observation
from scaler.value import frozen

#: For how long an endpoint that is gone is remembered, and how old a process seen for the first time may be to count
#: from zero. They are one number on purpose: a process younger than this that is not remembered was never counted.
FORGET_SECONDS = 900.0


@frozen
class History:
    """Everything the fold remembers: an immutable value, empty at the start, replaced at each fold.

    ``first_at`` and ``last_at`` are the times of the first and the newest observation, ``listed`` the newest one's
    endpoints and ``list_lost`` whether there may have been others, ``tracked`` the endpoints read so far (those gone a
    while ago included), ``flow`` what they counted, ``held`` how many
    requests the gateway held for want of a replica (None: not told exactly).
    """

    first_at: float | None = None
    last_at: float | None = None
    listed: frozenset[str] = frozenset()
    list_lost: bool = False
    tracked: Mapping[str, Tracked] = field(default_factory=dict)
    flow: Flow = field(default_factory=Flow)
    held: float | None = None

    def progress_seconds(self, endpoint: str) -> float | None:
        """For how long, as of its last good sample, the endpoint had work and made no progress (0.0 without work);
        None while it has not been read.
        """
        known = self.tracked.get(endpoint) if endpoint in self.listed else None
        return None if known is None else known.progress_seconds

    def taken(
        self,
        observation: Observation,
        now_mono: float,
        *,
        interval_seconds: float,
        window_seconds: float,
        now_unix: float | None,
    ) -> tuple[History, bool]:
        """The history with ``observation`` in it, and whether any activity counter moved in it.

        An observation that is not newer than the last one adds nothing: it may be judged again, later.
        """
        if self.last_at is not None and observation.at <= self.last_at:
            return self, False
        tracked = dict(self.tracked)
        parts: list[Increment] = []
        moved = False
        for endpoint, sample in sorted(observation.endpoints.items(), key=_name):  # one order, so that sums are equal
            if not isinstance(sample, EngineSample):
                continue
            before = tracked.get(endpoint)
            if before is None:
                before = self._before_first_read(endpoint, sample, now_mono, now_unix, interval_seconds)
                if before is None:
                    missed = self._maybe_listed(endpoint)
                    tracked[endpoint] = first_sight(sample, observation.at, missed=missed)
                    continue
            elif sample.at <= before.sample.at:
                continue  # a source that reads more rarely than we fold: the same sample again
            step = advance(before, sample, observation.at)
            tracked[endpoint] = step.tracked
            parts.append(step.increment)
            moved = moved or step.moved
        held = _held_at_gateway(observation)
        change = 0.0 if held is None or self.held is None else held - self.held
        flow = self.flow
        if self.last_at is not None and (self.tracked or parts or change > 0):
            flow = flow.extended(parts, self.last_at, observation.at, max(window_seconds, RECENT_SECONDS), change)
        listed = self.listed if self.listed == observation.endpoints.keys() else frozenset(observation.endpoints)
        if len(tracked) > len(listed):
            tracked = {
                endpoint: known
                for endpoint, known in tracked.items()
                if endpoint in listed or observation.at - known.boundary <= FORGET_SECONDS
            }
        first_at = observation.at if self.first_at is None else self.first_at
        return History(first_at, observation.at, listed, observation.lost is not None, tracked, flow, held), moved

    def _maybe_listed(self, endpoint: str) -> bool:
        """Whether the endpoint was there at the newest observation, or may have been."""
        return self.list_lost or endpoint in self.listed

    def _before_first_read(
        self,
        endpoint: str,
        sample: EngineSample,
        now_mono: float,
        now_unix: float | None,
        interval_seconds: float,
    ) -> Tracked | None:
        """What a newly seen endpoint counts from: from zero if its process began under our eyes, else None.

        A pod's first requests after a wake would otherwise be invisible. An endpoint not listed until now served nobody
        before, so all it counted belongs to the last interval; one that was listed and could not be read may have
        counted it at any time since it started.
        """
        if self.first_at is None or self.last_at is None or now_unix is None or sample.process_start_seconds is None:
            return None
        age = now_unix - sample.process_start_seconds
        started = now_mono - age
        young = -interval_seconds <= age <= FORGET_SECONDS and started >= self.first_at - interval_seconds
        if not young:
            return None
        return newborn(sample, min(started, self.last_at) if self._maybe_listed(endpoint) else self.last_at)


def _held_at_gateway(observation: Observation) -> float | None:
    """What the gateway holds; None where it does not tell, or cannot tell it from what replicas work on."""
    demand = observation.demand
    return None if demand is None or demand.in_flight > 0 else demand.pending


def _name(item: tuple[str, object]) -> str:
    return item[0]
