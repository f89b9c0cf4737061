"""What replicas said they run with: the last word of each, for as long as it can be believed."""

from __future__ import annotations

import pytest

from scaler.consume.contract import REPORT_LASTS_SECONDS, AppliedReport
from scaler.serve.applied import MAX_REPLICAS, AppliedReports
from scaler.serve.inbox import TooManySourcesError


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def batches(reports: AppliedReports, at: float) -> dict[str, int | None]:
    return {each.replica: each.batch_size for each in reports.read(at)}


def test_a_replica_s_last_word_counts_and_is_as_old_as_it_is() -> None:
    clock = Clock()
    reports = AppliedReports(clock)
    reports.report(AppliedReport("b", 64))
    reports.report(AppliedReport("a", 8))
    clock.seconds += 10
    reports.report(AppliedReport("b", 32, generation=7))
    assert [(each.replica, each.batch_size, each.age_seconds) for each in reports.read(1012.0)] == [
        ("a", 8, 12.0),
        ("b", 32, 2.0),
    ]


def test_a_report_that_is_not_renewed_is_forgotten() -> None:
    reports = AppliedReports(Clock())
    reports.report(AppliedReport("a", 8))
    assert batches(reports, 1000 + REPORT_LASTS_SECONDS) == {"a": 8}
    assert batches(reports, 1000.1 + REPORT_LASTS_SECONDS) == {}


def test_of_reports_that_came_elsewhere_the_later_one_is_kept() -> None:
    clock = Clock()
    reports = AppliedReports(clock)
    reports.report(AppliedReport("a", 8))
    reports.merge([(AppliedReport("a", 64), 990.0), (AppliedReport("b", 16), 990.0)])
    assert batches(reports, 1001.0) == {"a": 8, "b": 16}
    reports.merge([(AppliedReport("a", 64), 1000.5)])
    assert batches(reports, 1001.0) == {"a": 64, "b": 16}


def test_replicas_that_are_gone_make_room() -> None:
    clock = Clock()
    reports = AppliedReports(clock)
    for number in range(MAX_REPLICAS):
        reports.report(AppliedReport(f"old-{number}", 8))
    with pytest.raises(TooManySourcesError):
        reports.report(AppliedReport("new", 8))
    clock.seconds += REPORT_LASTS_SECONDS + 1
    reports.report(AppliedReport("new", 8))
    assert batches(reports, clock.seconds) == {"new": 8}
