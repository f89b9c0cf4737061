"""What each replica of a workload said that it really runs with, kept until it is said anew or too old to believe.

A report says nothing about the load, so it wakes nobody and is read at the next tick. Which replicas *should* report is
not known here (a report names a pod, an endpoint an address), so what is not reported is left out, never made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scaler.consume.contract import REPORT_LASTS_SECONDS, AppliedReport
from scaler.serve.inbox import TooManySourcesError
from scaler.signals.model import Applied

#: Replicas remembered per workload; more than this is a caller that invents a new name for every report.
MAX_REPLICAS = 1024


class AppliedReports:
    """The reports of one workload's replicas. Touched only from the event loop; :meth:`read` moves nothing.

    ``mono`` gives the monotonic time in seconds.
    """

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._reports: dict[str, tuple[AppliedReport, float]] = {}

    def report(self, report: AppliedReport) -> None:
        """Take a report; it replaces the last one of the same replica. Raises
        :class:`scaler.serve.inbox.TooManySourcesError` when :data:`MAX_REPLICAS` others are still believed.
        """
        now = self._mono()
        if report.replica not in self._reports and len(self._reports) >= MAX_REPLICAS:
            self._reports = {name: each for name, each in self._reports.items() if not _over(each[1], now)}
            if len(self._reports) >= MAX_REPLICAS:
                raise TooManySourcesError(
                    f"{MAX_REPLICAS} replicas report already; report under the pod's name, not a new one each time"
                )
        self._reports[report.replica] = report, now

    def merge(self, reports: Iterable[tuple[AppliedReport, float]]) -> None:
        """Take reports that came elsewhere, each at its monotonic time; of one replica the later one is kept."""
        for report, at in reports:
            known = self._reports.get(report.replica)
            if known is None or known[1] < at:
                self._reports[report.replica] = report, at

    def read(self, at: float) -> tuple[Applied, ...]:
        """What is believed at ``at`` (monotonic seconds), by replica."""
        return tuple(
            Applied(
                name,
                max(0.0, at - came),
                report.batch_size,
                report.token_budget,
                report.admission,
                report.running,
                report.generation,
                report.rung,
                report.wake_seconds,
            )
            for name, (report, came) in sorted(self._reports.items())
            if not _over(came, at)
        )


def _over(came: float, now: float) -> bool:
    return now - came > REPORT_LASTS_SECONDS
