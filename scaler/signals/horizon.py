"""What was counted over the last so many seconds: rates, counts and latencies as signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from scaler.signals import histogram
from scaler.signals.coverage import Coverage, counting_complete
from scaler.signals.endpoint import reports_flow
from scaler.signals.flow import FLOWS, NOTHING, covering
from scaler.signals.history import History
from scaler.signals.model import Known, Latency, NotApplicable, Signal, Stale, Unknown
from scaler.signals.observation import Buckets
from scaler.signals.packed import observed
from scaler.value import frozen

T = TypeVar("T")
_NOTHING_FINISHED = NotApplicable("no request finished in the window")
_NO_SPREAD = Unknown("their sum and count are told, and no bucket that shows how they spread")


@frozen
class Horizon:
    """The newest increments, which cover ``seconds`` back from the last observation.

    ``whole``: what was counted in them is, from every endpoint, all there was; ``last_whole``: so in the newest.
    ``latencies`` are theirs, of those that have any. ``measured`` is what was counted, ``unread`` what endpoints that
    missed the newest reads are taken to have counted since: they go on as in their last interval (a gauge, too, keeps
    its value meanwhile). Their next read replaces the guess. Without it a lost scrape would look like falling load.
    """

    coverage: Coverage
    seconds: float
    whole: bool
    last_whole: bool
    latencies: tuple[Mapping[str, Buckets], ...]
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
        complete = self._complete(flow, self.last_whole)
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
        return self._judged(histogram.latency(buckets), complete)

    def lengths(self, family: str, quiet: bool) -> tuple[Signal[float], Signal[float]]:
        """The mean of a histogram family and its standard deviation, as its buckets show it; ``quiet`` as for
        :meth:`latency`.
        """
        found = self._observed(family, quiet)
        if isinstance(found, Unknown | NotApplicable):
            return found, found
        buckets, complete = found
        mean, deviation = self._judged(buckets.sum / buckets.count, complete), histogram.deviation(buckets)
        return mean, _NO_SPREAD if deviation is None else self._judged(deviation, complete)

    def _amount(self, flow: int, per: float) -> Signal[float]:
        complete = self._complete(flow, self.whole)
        if isinstance(complete, Unknown):
            return complete
        value = (self.measured[flow] + self.unread[flow]) / per
        if complete:
            return Known(value, self.coverage.oldest_at)
        return Stale(value, self.coverage.oldest_at, self.measured[flow] / per)

    def _observed(self, family: str, quiet: bool) -> tuple[Buckets, bool] | Unknown | NotApplicable:
        complete = counting_complete(self.coverage, family, lambda sample: family in sample.histograms, self.whole)
        if isinstance(complete, Unknown):
            return complete
        found = observed(self.latencies, family)
        if found is not None:
            return found, complete
        return _NOTHING_FINISHED if quiet else Unknown(f"no sample of {family} in the window")

    def _judged(self, value: T, complete: bool) -> Signal[T]:
        return Known(value, self.coverage.oldest_at) if complete else Stale(value, self.coverage.oldest_at)

    def _complete(self, flow: int, whole: bool) -> bool | Unknown:
        name = FLOWS[flow]
        return counting_complete(self.coverage, name, lambda sample: reports_flow(sample, name), whole)


def look_back(history: History, coverage: Coverage, seconds: float) -> Horizon:
    """The horizon of the last ``seconds``, or of what there is of them."""
    increments = covering(history.flow.increments, seconds)
    if not increments:
        return Horizon(coverage, 0.0, False, False, (), NOTHING, NOTHING)
    covered = increments[-1].until - increments[0].since
    measured = tuple(map(sum, zip(*[increment.flows for increment in increments], strict=True)))
    unread = list(NOTHING)
    last_at = history.last_at or 0.0
    for tracked in coverage.read:
        if tracked.boundary < last_at and tracked.rates:
            missed_seconds = min(last_at - tracked.boundary, covered)
            for flow, rate in enumerate(tracked.rates):
                unread[flow] += rate * missed_seconds
    latencies = tuple([increment.latencies for increment in increments if increment.latencies])
    whole, last_whole = coverage.whole(increments[0].since), coverage.whole(increments[-1].since)
    return Horizon(coverage, covered, whole, last_whole, latencies, measured, tuple(unread))
