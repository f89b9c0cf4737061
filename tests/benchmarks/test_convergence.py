"""How the highest rate within a limit is read off the points that were measured."""

from __future__ import annotations

import pytest

from benchmarks.convergence import Point, highest
from benchmarks.engine_rig import Done, Measured


def point(arrived: float, p95: float, problem: str = "") -> Point:
    """``arrived`` requests per second for 100 s, each of which took ``p95``; the last one with a problem."""
    requests = [Done(0.0, p95) for _ in range(int(100 * arrived))]
    requests[-1] = Done(0.0, p95, problem)
    return Point(arrived, Measured(requests, 100.0, 0.0), 8)


def test_it_lies_between_the_last_rate_within_and_the_first_over_it_in_proportion() -> None:
    assert highest([point(1.0, 2.0), point(2.0, 3.0), point(3.0, 7.0)], 4.0) == pytest.approx(2.25)


def test_the_limit_itself_is_kept() -> None:
    assert highest([point(1.0, 2.0), point(2.0, 4.0), point(3.0, 9.0)], 4.0) == pytest.approx(2.0)


def test_it_goes_by_what_arrived_whatever_the_order() -> None:
    assert highest([point(3.0, 7.0), point(1.0, 2.0), point(2.0, 3.0)], 4.0) == pytest.approx(2.25)


def test_one_rate_over_the_limit_between_two_within_it_is_noise() -> None:
    assert highest([point(1.0, 2.0), point(2.0, 4.5), point(3.0, 3.0), point(4.0, 5.0)], 4.0) == pytest.approx(3.5)


def test_where_all_are_within_it_is_the_highest_that_was_tried() -> None:
    assert highest([point(1.0, 2.0), point(2.0, 3.0)], 4.0) == pytest.approx(2.0)


def test_where_none_is_within_there_is_none() -> None:
    assert highest([point(1.0, 5.0), point(2.0, 9.0)], 4.0) == 0.0


def test_a_rate_at_which_a_request_failed_is_not_kept() -> None:
    assert highest([point(1.0, 2.0), point(2.0, 3.0, "HTTP 500"), point(3.0, 9.0)], 4.0) == pytest.approx(1.0)


def test_few_answers_have_no_p95() -> None:
    assert Measured([Done(0.0, 1.0)] * 19, 10.0, 0.0).p95 == float("inf")
    assert Measured([Done(0.0, 1.0)] * 20, 10.0, 0.0).p95 == pytest.approx(1.0)
