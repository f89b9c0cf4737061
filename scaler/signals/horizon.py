"""What was counted over the last so many seconds: rates, counts and latencies as signals."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.signals import histogram
from scaler.signals.coverage import Coverage, counting_complete
from scaler.signals.endpoint import reports_flow
from scaler.signals.flow import FLOWS, NOTHING, Increment, covering
from scaler.signals.history import History
from scaler.signals.model import Known, Latency, NotApplicable, Signal, Stale, Unknown
from scaler.signals.observation import Buckets
from scaler.signals.packed import observed

_NOTHING_FINISHED = NotApplicable("no request finished in the window")


@dataclass(frozen=True, slots=True)
class Horizon:
    """The newest increments, which cover ``seconds`` back from the last observation.

    ``measured`` is what was counted, ``unread`` what endpoints that missed the newest reads are taken to have counted
    since: they go on as in their last interval (a gauge, too, keeps its value meanwhile). Their next read replaces the
    guess. Without it a lost scrape would look like falling load.
    """

    coverage: Coverage
    increments: tuple[Increment, ...]
    seconds: float
    measured: tuple[float, ...]
    unread: tuple[float, ...]

    def rate(self, flow: int) -> Signal[float]:
        """A flow, per second."""
        return self._amount(flow, self.seconds)

    def counted(self, flow: int) -> Signal[float]:
        """How much of a flow there was."""
        return self._amount(flow, 1.0)

    def last_rate(self, flow: int) -> Signal[float]:
        """A flow per second over the last interval, of each endpoint its own: a read that comes late brings what was
        counted over a longer one, and must not look like a jump.
        """
        complete = self._complete(flow, self._since_last())
        if isinstance(complete, Unknown):
            return complete
        fresh = sum([tracked.rates[flow] for tracked in self.coverage.fresh if tracked.rates])
        if complete:
            return Known(fresh, self.coverage.oldest_at)
        held = sum([tracked.rates[flow] for tracked in self.coverage.held if tracked.rates])
        return Stale(fresh + held, self.coverage.oldest_at, fresh)

    def latency(self, family: str, quiet: bool) -> Signal[Latency]:
        """A latency. ``quiet``: that nothing arrived, ran or finished is known, so that no sample is no loss."""
        found = self._observed(family, quiet)
        if isinstance(found, Unknown | NotApplicable):
            return found
        buckets, complete = found
        value = histogram.latency(buckets)
        return Known(value, self.coverage.oldest_at) if complete else Stale(value, self.coverage.oldest_at)

    def mean(self, family: str, quiet: bool) -> Signal[float]:
        """The mean of a histogram family; ``quiet`` as for :meth:`latency`."""
        found = self._observed(family, quiet)
        if isinstance(found, Unknown | NotApplicable):
            return found
        buckets, complete = found
        value = buckets.sum / buckets.count
        return Known(value, self.coverage.oldest_at) if complete else Stale(value, self.coverage.oldest_at)

    def deviation(self, family: str, quiet: bool) -> Signal[float]:
        """The standard deviation of a histogram family, as its buckets show it; ``quiet`` as for :meth:`latency`."""
        found = self._observed(family, quiet)
        if isinstance(found, Unknown | NotApplicable):
            return found
        buckets, complete = found
        value = histogram.deviation(buckets)
        return Known(value, self.coverage.oldest_at) if complete else Stale(value, self.coverage.oldest_at)

    def _amount(self, flow: int, per: float) -> Signal[float]:
        complete = self._complete(flow, self._since())
        if isinstance(complete, Unknown):
            return complete
        value = (self.measured[flow] + self.unread[flow]) / per
        if complete:
            return Known(value, self.coverage.oldest_at)
        return Stale(value, self.coverage.oldest_at, self.measured[flow] / per)

    def _observed(self, family: str, quiet: bool) -> tuple[Buckets, bool] | Unknown | NotApplicable:
        complete = counting_complete(self.coverage, family, lambda sample: family in sample.histograms, self._since())
        if isinstance(complete, Unknown):
            return complete
        found = observed([increment.latencies for increment in self.increments], family)
        if found is not None:
            return found, complete
        return _NOTHING_FINISHED if quiet else Unknown(f"no sample of {family} in the window")

    def _complete(self, flow: int, since: float | None) -> bool | Unknown:
        name = FLOWS[flow]
        return counting_complete(self.coverage, name, lambda sample: reports_flow(sample, name), since)

    def _since(self) -> float | None:
        return self.increments[0].since if self.increments else None

    def _since_last(self) -> float | None:
        return self.increments[-1].since if self.increments else None


def look_back(history: History, coverage: Coverage, seconds: float) -> Horizon:
    """The horizon of the last ``seconds``, or of what there is of them."""
    increments = covering(history.flow.increments, seconds)
    covered = increments[-1].until - increments[0].since if increments else 0.0
    measured = NOTHING
    if increments:
        measured = tuple(map(sum, zip(*[increment.flows for increment in increments], strict=True)))
    unread = list(NOTHING)
    last_at = history.last_at or 0.0
    for tracked in (*coverage.fresh, *coverage.held):
        if tracked.boundary < last_at and tracked.rates:
            missed_seconds = min(last_at - tracked.boundary, covered)
            for flow, rate in enumerate(tracked.rates):
                unread[flow] += rate * missed_seconds
    return Horizon(coverage, increments, covered, measured, tuple(unread))
