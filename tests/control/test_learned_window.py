"""What ran while requests did: counted by how many finished, over what lasted as long as they."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.learned_window import BEGUN, Window

TICKS = st.lists(st.tuples(st.floats(0.0, 300.0), st.floats(0.5, 100.0)), min_size=1, max_size=30)


def window(*ticks: tuple[float, float], elapsed: float = 5.0) -> Window:
    """Ticks of (lasting, residence)."""
    found = BEGUN
    for lasting, residence in ticks:
        found = found.with_tick(lasting, lasting, residence, elapsed)
    return found


def test_what_always_runs_is_what_everyone_met() -> None:
    even = window(*[(7.0, 3.0)] * 12)
    assert even.met_on_average == pytest.approx(7.0)
    assert even.met_by_few == pytest.approx(7.0)


def test_requests_meet_the_full_minutes_and_not_the_empty_ones() -> None:
    """Half a minute empty, half a minute with 20: whoever finished ran with 20, although 10 ran on average."""
    halves = window(*[(0.0, 1.0)] * 6, *[(20.0, 3.0)] * 6)
    assert halves.met_on_average == pytest.approx(20.0)


def test_full_replicas_finish_no_more_where_requests_stay_longer_in_them() -> None:
    """Twice as many that stay twice as long: as many finish, so both count the same."""
    assert window((10.0, 2.0), (20.0, 4.0)).met_on_average == pytest.approx(15.0)
    assert window((10.0, 2.0), (20.0, 2.0)).met_on_average == pytest.approx(500 / 30)


def test_one_in_twenty_met_about_what_ran_at_its_most() -> None:
    rising = window(*[(float(level), 1.0 + level) for level in range(1, 41)])
    assert 33.0 <= rising.met_by_few <= 40.0


def test_nothing_ran_and_nobody_met_anything() -> None:
    assert window((0.0, 3.0)).met_on_average == 0.0
    assert window((0.0, 3.0)).met_by_few == 0.0


@given(TICKS)
def test_few_met_no_less_than_the_average_and_no_more_than_ran(ticks: list[tuple[float, float]]) -> None:
    found = window(*ticks)
    slack = 1e-6 * (1.0 + found.most)
    assert min(lasting for lasting, _ in ticks) - slack <= max(found.met_on_average, 0.0) <= found.met_by_few + slack
    assert found.met_by_few <= found.most


@given(TICKS, st.floats(0.1, 10.0))
def test_the_unit_of_time_and_the_length_of_residences_do_not_matter(
    ticks: list[tuple[float, float]], factor: float
) -> None:
    found, scaled = window(*ticks), window(*[(lasting, residence * factor) for lasting, residence in ticks])
    assert scaled.met_on_average == pytest.approx(found.met_on_average, rel=1e-6, abs=1e-6)


def test_what_ran_before_makes_a_window_uneven() -> None:
    """The last requests of a surge: one runs now, and those that finish ran among forty."""
    late = BEGUN
    for lasting in (40.0, 30.0, 20.0, 15.0, 10.0, 8.0):
        late = late.with_tick(1.0, lasting, 60.0, 5.0)
    assert not late.even
    assert window(*[(2.0, 3.0), (40.0, 3.0)] * 6).even
