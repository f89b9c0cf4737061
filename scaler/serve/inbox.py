"""What gateways told us of demand, kept until a tick reads it.

A gateway is the only witness of demand while a workload has no replica, so its silence has to mean something exact:

- it promised to report (``push.report_every_seconds``): silence longer than twice that is *unknown*, never zero;
- it did not: it calls only when there is demand, and silence is zero.

Several gateways, told apart by the ``source`` they name, add up. A wake is latched: it is one fact ("somebody wants
this workload") that nobody will tell a second time. So it outlives the minutes in which the woken replica loads, and a
load that fails, after which it is tried again, as long as the policy says that a wake is worth anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scaler.policy.model import Push
from scaler.signals.observation import Demand
from scaler.value import frozen

#: Gateways remembered per workload; more than this is a caller that invents a new name for every report.
MAX_SOURCES = 64
#: A gateway silent this long is taken to be gone for good (its pod was replaced), not late. Its silence then no longer
#: makes the demand unknown: without this, one rolled gateway pod would keep its workload from ever scaling to zero.
FORGET_AFTER_SECONDS = 900.0
#: Reports missed in a row before silence is doubt: one may be late, two are not.
MISSED_REPORTS = 2.0


class TooManySourcesError(Exception):
    """A report from one gateway more than :data:`MAX_SOURCES`; it was not taken."""


@frozen
class _Report:
    at: float
    pending: float
    arrivals_per_second: float | None


class DemandInbox:
    """The reports and wakes of one workload. Touched only from the event loop; :meth:`read` may be asked any number of
    times without moving anything.

    ``mono`` gives the monotonic time in seconds.
    """

    def __init__(self, push: Push, mono: Callable[[], float]) -> None:
        self._push = push
        self._mono = mono
        self._reports: dict[str, _Report] = {}
        self._reports_arrivals = False
        self._wake_at: float | None = None

    def follow(self, push: Push) -> None:
        """Go by another policy from now on; reports and a latched wake stay."""
        self._push = push

    def report(self, pending: float, arrivals_per_second: float | None = None, source: str = "") -> None:
        """Take one gateway's report; it replaces the last one of the same ``source``.

        ``pending``: requests held or refused there now. ``arrivals_per_second``: what arrives there, where it knows.
        Raises :class:`TooManySourcesError` when :data:`MAX_SOURCES` others are still within their time.
        """
        now = self._mono()
        if source not in self._reports and len(self._reports) >= MAX_SOURCES:
            self._drop_expired(now)
            if len(self._reports) >= MAX_SOURCES:
                raise TooManySourcesError(
                    f"{MAX_SOURCES} sources report already; give each gateway one lasting name, not one per request"
                )
        self._reports[source] = _Report(now, pending, arrivals_per_second)
        self._reports_arrivals = self._reports_arrivals or arrivals_per_second is not None

    def wake(self, seconds_ago: float = 0.0) -> None:
        """Latch "somebody wants this workload" until :meth:`clear_wake`, or ``push.wake_ttl_seconds`` after it came."""
        self._wake_at = self._mono() - seconds_ago

    def wake_age_seconds(self) -> float | None:
        """How long ago the wake came that is still latched; None where none is."""
        return None if self._wake_at is None else self._mono() - self._wake_at

    def give_up_wake(self) -> bool:
        """Forget a wake that has outlived its time, and say whether there was one."""
        age = self.wake_age_seconds()
        if age is None or age <= self._push.wake_ttl_seconds:
            return False
        self._wake_at = None
        return True

    def replace(self, reports: Iterable[tuple[str, float, float | None, float]], wake_at: float | None) -> None:
        """Hold exactly this: (source, pending, arrivals per second, when), and when a wake came, monotonic seconds."""
        self._reports, self._reports_arrivals, self._wake_at = {}, False, None
        self.add(reports, wake_at)

    def add(self, reports: Iterable[tuple[str, float, float | None, float]], wake_at: float | None) -> None:
        """Take what was told elsewhere, as in :meth:`replace`. Of two reports of one source, and of two wakes, the
        later counts; a wake that has outlived its time is none.
        """
        now = self._mono()
        for source, pending, arrivals, at in reports:
            known = self._reports.get(source)
            if known is None or known.at < at:
                self._reports[source] = _Report(at, pending, arrivals)
                self._reports_arrivals = self._reports_arrivals or arrivals is not None
        self._drop_expired(now)
        if wake_at is not None and now - wake_at <= self._push.wake_ttl_seconds:
            self._wake_at = wake_at if self._wake_at is None else max(self._wake_at, wake_at)

    def clear_wake(self) -> None:
        """Forget the wake: a replica is ready, and from now on the engine's own metrics tell the demand."""
        self._wake_at = None

    def read(self, at: float, push: Push) -> Demand | None:
        """The demand as it stands at ``at`` (monotonic seconds) under ``push``; None where push is disabled.

        ``push`` is an argument because the policy may have changed since the inbox was made.
        """
        if not push.enabled:
            return None
        self._push = push  # only to know, when the inbox is full, what no longer counts
        wake = self._wake_at is not None and at - self._wake_at <= push.wake_ttl_seconds
        if push.report_every_seconds is None:
            return self._read_on_demand(at, wake, push.demand_ttl_seconds)
        return self._read_promised(at, wake, push.report_every_seconds)

    def _read_on_demand(self, at: float, wake: bool, ttl_seconds: float) -> Demand:
        """Silence is zero; a flow that nobody ever told is nobody's zero and stays None."""
        live = [report for report in self._reports.values() if at - report.at <= ttl_seconds]
        arrivals = sum(report.arrivals_per_second or 0.0 for report in live) if self._reports_arrivals else None
        return Demand(at, sum(report.pending for report in live), wake, arrivals)

    def _read_promised(self, at: float, wake: bool, every_seconds: float) -> Demand:
        """Silence is doubt. A report counts until its successor is overdue, whatever its time to live: ending it
        earlier would read the gap between two punctual reports as zero.

        While one gateway is silent, what the others report is a lower bound: it may raise, so it is told if above
        zero, and it cannot prove zero, so zero is not told.
        """
        remembered = {name: report for name, report in self._reports.items() if not _gone(report, at, every_seconds)}
        if not remembered:
            return Demand(at, None, wake, None, "no gateway has reported yet")
        overdue = MISSED_REPORTS * every_seconds
        silent = {name: report for name, report in remembered.items() if at - report.at > overdue}
        live = [report for name, report in remembered.items() if name not in silent]
        pending: float | None = sum(report.pending for report in live)
        told = [report.arrivals_per_second for report in live if report.arrivals_per_second is not None]
        arrivals = sum(told) if told else None
        if not silent:
            return Demand(at, pending, wake, arrivals)
        name, oldest = min(silent.items(), key=lambda item: item[1].at)
        reason = f"gateway {name!r}" if name else "the gateway"
        reason += f" has been silent for {at - oldest.at:.0f} s; it should report every {every_seconds:g} s"
        return Demand(at, pending or None, wake, arrivals or None, reason)

    def _drop_expired(self, now: float) -> None:
        """Make room: reports that no longer say anything. With a promise even an overdue one says "doubt"."""
        every, ttl = self._push.report_every_seconds, self._push.demand_ttl_seconds
        self._reports = {
            name: report
            for name, report in self._reports.items()
            if not (now - report.at > ttl if every is None else _gone(report, now, every))
        }


def _gone(report: _Report, at: float, every_seconds: float) -> bool:
    return at - report.at > max(FORGET_AFTER_SECONDS, MISSED_REPORTS * every_seconds)
