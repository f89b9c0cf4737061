"""The last hour of a workload: bounded, peaks kept, absent never zero."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from scaler.control.model import LoadState, Now, Targets
from scaler.serve.snapshot import Snapshot
from scaler.serve.timeline import COARSE_SLOT, Moment, Timeline, columns, moment
from scaler.signals.model import Known, NotApplicable, Stale, Unknown
from tests.serve.tide import SIGNALS, START, snapshot

BYTES_KEPT = 20 * 1024


def at(seconds: float, **changes: Any) -> Moment:
    """A calm moment, with ``changes``."""
    calm = snapshot(state=LoadState.NORMAL, signals=replace(SIGNALS, waiting=Known(0.0, 98.0)))
    return moment(calm)._replace(at=seconds, **changes)


def ticked(seconds: float, every: float) -> Timeline:
    """A timeline of ``seconds``, its last tick at that time."""
    timeline, ticks = Timeline(), round(seconds / every)
    for tick in range(ticks + 1):
        timeline.append(at(tick * every, running=float(tick)))
    return timeline


@pytest.mark.parametrize("every", [0.2, 1.0, 3.0, 5.0, 7.3, 45.0])
def test_an_hour_fits_in_20_kb_whatever_the_tick(every: float) -> None:
    assert ticked(3 * 3600, every).size_bytes() <= BYTES_KEPT


def test_ten_minutes_are_kept_tick_by_tick_and_the_rest_of_the_hour_in_slots_of_30_s() -> None:
    moments = ticked(7200, every=5.0).since(3600.0)
    ages = [7200 - each.at for each in moments]
    assert ages == sorted(ages, reverse=True)
    apart = [older - newer for older, newer in pairwise(ages)]
    fine = [gap for gap, age in zip(apart, ages, strict=False) if age <= 600]
    coarse = [gap for gap, age in zip(apart, ages, strict=False) if age > 660]
    assert set(fine) == {5.0}
    assert set(coarse) == {30.0}
    assert ages[0] >= 3570
    assert ages[-1] == 0


def test_no_moment_is_told_twice_where_the_slots_meet() -> None:
    for seconds in range(700, 760, 5):
        moments = ticked(seconds, every=5.0).since(0.0)
        times = [each.at for each in moments]
        assert times == sorted(set(times))
        assert max(b - a for a, b in pairwise(times)) <= 2 * COARSE_SLOT


def test_a_slot_keeps_the_peak_the_worst_state_and_the_latest_targets() -> None:
    timeline = Timeline()
    for second, running, state, desired, low, high in (
        (0, 3.0, LoadState.NORMAL, 1, 0.1, 0.25),
        (5, 90.0, LoadState.CRITICAL, 4, 2.5, math.inf),
        (10, 5.0, LoadState.NORMAL, 2, 0.25, 0.5),
    ):
        made = moment(snapshot(state=state, targets=Targets(desired, True, 8 * desired)))
        timeline.append(made._replace(at=float(second), running=running, ttft_low=low, ttft_high=high))
    for second in range(600, 1300, 5):
        timeline.append(at(float(second)))
    slot = timeline.since(0.0)[0]
    told = {name: values[0] for name, values in columns([slot], 1300.0).items()}
    assert (told["state"], told["running"], told["desired"], told["batch"]) == ("critical", 90.0, 2, 16.0)
    assert (told["ttft_low"], told["ttft_high"], told["age_seconds"]) == (2.5, "inf", 1300.0)


def test_what_was_not_measured_is_null_and_a_peak_beside_it_stays() -> None:
    unmeasured = (Unknown("no endpoint answers"), NotApplicable("no replica"), Stale(7.0, 60.0, at_least=2.0))
    for signal in unmeasured:
        lost = moment(snapshot(signals=replace(SIGNALS, running=signal), ready=None, targets=Targets(1, True, None)))
        told = columns([lost], 100.0)
        assert (told["running"], told["ready"], told["batch"]) == ([None], [None], [None])
    timeline = Timeline()
    for second, running in ((0.0, math.nan), (1.0, 4.0), (2.0, math.nan)):
        timeline.append(at(second, running=running))
    assert [each.running for each in timeline.since(0.0)] == [4.0]


def test_a_document_of_it_is_json_without_infinity_or_nan() -> None:
    document = columns([moment(snapshot())], 101.0)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert {len(values) for values in document.values()} == {1}
    assert document["tpot_high"] == ["inf"]


def test_requests_in_flight_come_in_slots_and_a_slot_without_a_measurement_is_none() -> None:
    timeline = Timeline()
    for second in range(0, 300, 5):
        lost = 120 <= second < 180
        waiting = math.nan if second < 60 else 2.0
        timeline.append(at(float(second), running=math.nan if lost else 10.0, waiting=waiting))
    assert timeline.in_flight(299.0, 12) == [None, None, 10.0, 10.0, 12.0, 12.0, None, None, 12.0, 12.0, 12.0, 12.0]


def test_a_copy_that_comes_late_is_dropped_and_the_same_moment_again_changes_nothing() -> None:
    timeline = ticked(100, every=5.0)
    before = columns(timeline.since(0.0), 100.0)
    timeline.append(at(50.0, running=1000.0))
    timeline.append(timeline.since(0.0)[-1])
    assert columns(timeline.since(0.0), 100.0) == before


def test_counts_that_no_fleet_has_are_told_as_the_most_there_is_room_for() -> None:
    huge: Snapshot = snapshot(targets=Targets(10**9, True, 10**6), decided_at=Now(START, 5.0), ready=70_000)
    timeline = Timeline()
    timeline.append(moment(huge))
    [told] = timeline.since(0.0)
    assert (told.desired, told.ready, told.batch) == (65_534, 65_534, 1e6)
