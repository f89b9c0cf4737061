"""The score against examples reckoned by hand."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.lab.fleet import Fleet, Request
from scaler.lab.hardware import HARDWARE
from scaler.lab.promise import Promise, kept, late_first_alone
from scaler.lab.score import (
    Beside,
    Point,
    Row,
    beside,
    gpu_hours_at,
    hull,
    log_miss,
    nearest_knob,
    outcome,
    points_by_scenario,
    suite_points,
)
from scaler.lab.scorecard import as_json, as_markdown, rows_from_json, verdict
from scaler.lab.sequence import Sequence
from scaler.lab.simulate import Run

PROMISE = Promise(ttft_seconds=1.0, tpot_seconds=0.05, patience_seconds=10.0)


def served(arrived: float, first: float | None, finished: float | None, tokens: int = 11) -> tuple[Request, Sequence]:
    """A request at ``arrived``, that the engine got half a second later: the gateway's wait counts too."""
    sequence = Sequence(10, tokens, arrived + 0.5, first_token_at=first, finished_at=finished)
    return Request(arrived, 10, tokens), sequence


@pytest.mark.parametrize(
    ("first", "finished", "is_kept"),
    [
        (1.0, 1.5, True),  # both to the dot: 1 s, and 10 following tokens at 50 ms
        (1.01, 1.5, False),  # a wait at the gateway counts
        (0.8, 1.31, False),  # 51 ms per token
        (0.8, None, False),  # unfinished is missed
        (None, None, False),
    ],
)
def test_a_promise_is_kept_only_if_every_objective_is(
    first: float | None, finished: float | None, is_kept: bool
) -> None:
    assert kept(PROMISE, *served(0.0, first, finished)) is is_kept


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    assert kept(PROMISE, *served(0.0, 0.9, 0.9, tokens=1))


@pytest.mark.parametrize(
    ("first", "finished", "is_late"),
    [(1.01, 1.5, True), (1.0, 1.5, False), (1.01, 1.52, False), (1.01, None, False), (None, None, False)],
)
def test_who_missed_by_the_first_token_alone_had_the_rest_in_time(
    first: float | None, finished: float | None, is_late: bool
) -> None:
    assert late_first_alone(PROMISE, *served(0.0, first, finished)) is is_late


def test_attainment_counts_who_never_got_an_answer_and_not_who_came_too_late_to_finish() -> None:
    fleet = Fleet(HARDWARE["llama-3.1-8b-h100"], 8, 60.0, 1000, Random(1))
    fleet.served += [served(1.0, 1.6, 1.9), served(2.0, 2.6, 2.9), served(3.0, 9.0, 9.5), served(4.0, 4.6, None)]
    fleet.served += [served(95.0, None, None)]  # within the patience before the end: not judged
    fleet.gateway.append(Request(5.0, 10, 10))
    found = outcome(Run(fleet, 7.0, 3, (), 1), PROMISE, seconds=100.0)
    assert (found.attainment, found.judged) == (pytest.approx(2 / 5), 5)
    assert (found.gpu_hours, found.replica_changes) == (7.0, 3)


def point(attainment: float, gpu_hours: float, knob: float = 1.0) -> Point:
    return Point(knob, attainment, gpu_hours, 0.0)


def test_the_hull_drops_the_dominated_and_what_lies_above_the_line() -> None:
    cheap, middle, best = point(0.9, 10), point(0.99, 15), point(0.999, 30)
    dominated = point(0.98, 16)  # dearer than `middle` and worse
    above = point(0.997, 26)  # on neither: the line from middle to best costs 22.9 there
    assert hull([best, dominated, above, cheap, middle]) == [cheap, middle, best]


def test_between_its_points_the_hull_is_a_line_over_the_log_miss_rate() -> None:
    points = [point(0.9, 10), point(0.999, 30)]
    assert gpu_hours_at(points, 0.99) == pytest.approx(20.0)  # 10 % and 0.1 % missed: 1 % is half way
    assert gpu_hours_at(points, 0.9) == pytest.approx(10.0)
    assert gpu_hours_at(points, 0.999) == pytest.approx(30.0)


def test_the_hull_is_never_extrapolated() -> None:
    points = [point(0.9, 10), point(0.999, 30)]
    assert gpu_hours_at(points, 0.9995) is None
    assert gpu_hours_at(points, 0.89) is None
    assert gpu_hours_at([point(0.95, 5)], 0.9) is None
    assert gpu_hours_at([point(0.95, 5)], 0.95) == 5
    assert gpu_hours_at([], 0.95) is None


def test_missing_nothing_is_not_infinitely_good() -> None:
    assert log_miss(1.0) == log_miss(0.999999) == -5


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 1000)), min_size=1, max_size=12))
def test_no_point_lies_below_the_hull(pairs: list[tuple[float, float]]) -> None:
    points = [point(attainment, gpu_hours) for attainment, gpu_hours in pairs]
    frontier = hull(points)
    assert set(frontier) <= set(points)
    assert [each.log_miss for each in frontier] == sorted((each.log_miss for each in frontier), reverse=True)
    assert [each.gpu_hours for each in frontier] == sorted(each.gpu_hours for each in frontier)
    for each in points:
        at_its_attainment = gpu_hours_at(points, each.attainment)
        assert at_its_attainment is None or at_its_attainment <= each.gpu_hours * (1 + 1e-6) + 1e-6


def test_the_nearest_knob_is_nearest_in_log_miss_rate() -> None:
    points = [point(0.98, 10, 1.3), point(0.999, 20, 1.0), point(0.9999, 30, 0.7)]
    # 99.7 %: 0.3 % missed is nearer to 0.1 % (a third) than to 2 % (seven times).
    assert nearest_knob(points, 0.997).knob == 1.0
    assert nearest_knob(points, 1.0).knob == 0.7


def rows(scenario: str, policy: str, knob: float, *results: tuple[float, float]) -> list[Row]:
    return [
        Row(scenario, policy, knob, seed, attainment, gpu_hours, 2 * seed, 100)
        for seed, (attainment, gpu_hours) in enumerate(results, 1)
    ]


CARD = [
    *rows("flat-70b", "adaptive", 1.0, (0.98, 10), (1.0, 12)),
    *rows("flat-8b", "adaptive", 1.0, (0.99, 5), (0.99, 5)),
    *rows("flat-70b", "hpa-in-flight", 1.0, (0.90, 8), (0.90, 8)),
    *rows("flat-8b", "hpa-in-flight", 1.0, (0.90, 4), (0.90, 4)),
    *rows("flat-70b", "hpa-in-flight", 0.5, (0.999, 14), (0.999, 14)),
    *rows("flat-8b", "hpa-in-flight", 0.5, (0.999, 6), (0.999, 6)),
    *rows("flat-70b", "clairvoyant", 1.0, (0.999, 9), (0.999, 9)),
    *rows("flat-8b", "clairvoyant", 1.0, (0.999, 4), (0.999, 4)),
]


def test_a_suite_point_is_the_mean_attainment_and_the_total_of_the_gpu_hours() -> None:
    suite = suite_points(CARD)
    assert suite["adaptive"] == [Point(1.0, pytest.approx(0.99), pytest.approx(16.0), pytest.approx(3.0))]
    assert [(each.knob, each.gpu_hours) for each in suite["hpa-in-flight"]] == [(0.5, 20.0), (1.0, 12.0)]
    # At 99 % the rival's hull costs half way between 12 (90 %) and 20 (99.9 %).
    assert gpu_hours_at(suite["hpa-in-flight"], 0.99) == pytest.approx(16.0)


def test_beside_reads_every_rival_at_its_one_suite_knob() -> None:
    found = {(each.scenario, each.rival): each for each in beside(CARD, "adaptive", ["hpa-in-flight"])}
    assert set(found) == {("flat-70b", "hpa-in-flight"), ("flat-8b", "hpa-in-flight")}
    flat = found["flat-8b", "hpa-in-flight"]
    assert flat.theirs.knob == found["flat-70b", "hpa-in-flight"].theirs.knob
    assert flat.excess == pytest.approx(5 / flat.theirs.gpu_hours - 1)
    assert flat.oracle_gpu_hours == pytest.approx(5.0)  # its own hull in flat-8b at 99 %: half way from 4 to 6


def reading(rival: str, attainment: float, gpu_hours: float) -> Beside:
    return Beside("flat-70b", rival, point(0.99, 10), point(attainment, gpu_hours), None)


def test_the_bar_is_held_against_whoever_keeps_as_much() -> None:
    assert verdict([reading("hpa-in-flight", 0.98, 5.0)]).startswith("kept: nobody")
    assert verdict([reading("hpa-in-flight", 0.99, 10.0)]) == "kept: +0% on hpa-in-flight"
    best = [reading("knative-kpa", 0.999, 12.0), reading("hpa-in-flight", 0.99, 8.0)]
    assert verdict(best) == "**missed**: +25% on hpa-in-flight"


def test_a_fleet_sized_with_the_trace_in_hand_sets_no_bar_but_is_named() -> None:
    both = [reading("hpa-in-flight", 0.99, 10.0), reading("static", 0.99, 8.0)]
    assert verdict(both) == "kept: +0% on hpa-in-flight; +25% on static"


def test_seeds_are_averaged_per_cell() -> None:
    cell = points_by_scenario(CARD)["flat-70b", "adaptive"]
    assert cell == [Point(1.0, pytest.approx(0.99), pytest.approx(11.0), pytest.approx(3.0))]


def test_rows_survive_the_way_through_json_and_name_what_readers_look_for() -> None:
    text = as_json(CARD, 12.3)
    assert rows_from_json(text) == CARD
    assert {"scenario", "policy", "knob", "seed", "attainment", "gpu_hours", "replica_changes"} <= set(
        Row.__dataclass_fields__
    )


def test_the_markdown_has_both_halves_and_the_bound() -> None:
    text = as_markdown(CARD, 90.0, jobs=2)
    assert "## Report" in text
    assert "## Tune" in text
    assert "4.0 (+25%)" in text  # 5 GPU-hours above the bound's 4


def test_beside_the_bounds_cheapest_knob_stands_what_it_takes_for_as_much() -> None:
    bound = rows("flat-8b", "clairvoyant", 1.6, (0.9, 2), (0.9, 2))
    text = as_markdown([*CARD, *bound], 90.0, jobs=2)
    assert "4.0 (+25%); 3.0 (+67%) for as much" in text  # at 99 %: half way between 2 at 90 % and 4 at 99.9 %
    assert "for as much" not in as_markdown(CARD, 90.0, jobs=2)  # its one point keeps more
