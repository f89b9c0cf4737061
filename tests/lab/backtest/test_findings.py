"""What moments come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.lab.backtest.findings import GROUP_MOMENTS, VERDICTS, Findings, find_out, judge, kept_up_to
from scaler.lab.backtest.play import Moment
from tests.lab.backtest.remembered import BEGIN


def moment(at: float = 0.0, **values: object) -> Moment:
    fields: dict[str, object] = {
        "unix": BEGIN + at, "kind": "measured", "arrivals": 1.0, "in_flight": 20.0, "instead": 20.0, "ran": 4.0,
        "paid": 4.0, "asked": 3, "ready": 3, "need": 2.5, "ran_need": 2.5, "state": "normal", "broken": False,
        "critical": False, "ttft_p95": 0.1, "tpot_p95": 0.01, "e2e_p95": None, "batch": 64, "available": True,
    }  # fmt: skip
    return Moment(**{**fields, **values})  # type: ignore[arg-type]


def found(moments: list[Moment], changes: int = 0, loading: float = 0.0) -> Findings:
    return find_out(moments, 60.0, changes, loading)


def test_hours_are_of_what_was_paid_on_both_sides() -> None:
    hours = found([moment(60.0 * at) for at in range(60)], changes=5)
    assert hours.ran.replica_hours == pytest.approx(4.0)
    assert hours.ours.replica_hours == pytest.approx(3.0)
    assert hours.saved_share == pytest.approx(0.25)
    assert hours.ours.changes == 5
    assert (hours.ran.mean_replicas, hours.ran.most_replicas, hours.ran.changes) == (4.0, 4, 0)


def test_a_gap_is_on_neither_side() -> None:
    gap = moment(
        kind="gap", ran=None, paid=None, in_flight=None, instead=None, need=None, ran_need=None, available=False
    )
    with_gap = found([moment()] * 60 + [gap] * 60)
    assert with_gap.ran.replica_hours == pytest.approx(4.0)
    assert with_gap.ours.replica_hours == pytest.approx(3.0)
    assert (with_gap.data_minutes, with_gap.gap_minutes, with_gap.held_minutes) == (60, 60, 60)
    assert with_gap.verdicts[-1] is None


def test_loading_of_the_past_is_paid_where_nobody_counted_it() -> None:
    assert found([moment()] * 60, loading=1800.0).ran.replica_hours == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"need": 3.5, "ready": 3}, "short"),
        ({"need": 4.5, "ready": 4, "ran": 4.0}, "short"),  # so was what ran, but that does not make it enough
        ({"ready": 4, "ran": 4.0}, "covered"),
        ({"ready": 3, "instead": 30.0}, "seen"),
        ({"ready": 3, "instead": 30.1}, "unseen"),
        ({"ready": 3, "instead": None, "need": None}, "unjudged"),
        ({"ready": 0, "need": 0.0, "instead": 0.0}, "seen"),  # nothing to do: no replica was missed
        ({"ready": 0, "need": 0.1, "instead": 1.0}, "short"),
    ],
)
def test_each_moment_is_of_one_kind(values: dict[str, object], verdict: str) -> None:
    assert judge(moment(**values), 10.0) == verdict


def test_without_any_load_that_was_kept_nothing_has_been_seen() -> None:
    assert judge(moment(ready=3), None) == "unseen"


def test_minutes_of_all_kinds_are_the_minutes_with_data_and_so_are_the_savings() -> None:
    moments = [moment(ready=ready, asked=ready + 1, need=need) for ready in range(6) for need in (0.5, 2.5, 4.5)]
    result = found(moments)
    assert sum(result.minutes[verdict] for verdict in VERDICTS) == result.data_minutes == len(moments)
    saved = result.ran.replica_hours - result.ours.replica_hours
    assert sum(result.saved_replica_hours.values()) == pytest.approx(saved)


def test_short_is_told_apart_by_who_else_was() -> None:
    both, ours, ran = (
        moment(need=3.5, ran_need=4.5),
        moment(need=3.5, ran_need=3.5),
        moment(need=2.5, ran_need=4.5),
    )
    result = found([both] * 2 + [ours] * 3 + [ran] * 4)
    assert (result.ours.short_minutes, result.ran.short_minutes) == (5, 6)
    assert (result.ours_only_short_minutes, result.ran_only_short_minutes) == (3, 4)


def test_broken_objectives_are_set_beside_the_replicas_there_would_have_been() -> None:
    result = found(
        [moment(broken=True, critical=True, ready=5)] * 3
        + [moment(broken=True, ready=4)] * 2
        + [moment(broken=True, ready=3)]
        + [moment(broken=None)] * 4
    )
    broken = result.broken
    assert (broken.total, broken.critical, broken.with_more, broken.with_as_many, broken.with_fewer) == (6, 3, 3, 2, 1)
    assert result.judged_minutes == 6


def test_the_load_that_was_kept_is_the_highest_of_which_hardly_any_moment_broke() -> None:
    calm = [moment(in_flight=4.0 * load, ran=4.0) for load in (5, 10, 15) for _ in range(GROUP_MOMENTS)]
    too_much = [moment(in_flight=80.0, ran=4.0, broken=index % 2 == 0) for index in range(GROUP_MOMENTS)]
    assert kept_up_to(calm + too_much) == 15.0
    assert kept_up_to(too_much) is None
    assert kept_up_to(calm[: GROUP_MOMENTS - 1]) is None, "too few to say anything"


def test_thousands_of_quiet_moments_do_not_hide_the_few_broken_ones() -> None:
    quiet = [moment(in_flight=4.0, ran=4.0)] * 4000
    loaded = [moment(in_flight=400.0, ran=4.0, broken=True)] * 100
    assert kept_up_to(quiet + loaded) == 1.0


def test_in_hindsight_the_smallest_number_that_is_short_no_longer() -> None:
    needs = [1.2, 2.2, 2.9, 3.1, 5.5]
    moments = [moment(need=need, ran_need=need, ready=3) for need in needs]
    result = found(moments)
    assert result.ours.short_minutes == 2
    assert result.fixed is not None
    assert result.fixed.replicas == 3  # short for 3.1 and 5.5, as the scaler
    assert result.fixed.replica_hours == pytest.approx(3 * 5 / 60)


@given(st.lists(st.tuples(st.floats(0, 12), st.integers(0, 12)), min_size=1, max_size=60))
def test_the_fixed_number_is_never_short_longer_and_one_less_would_be(moments: list[tuple[float, int]]) -> None:
    result = found([moment(need=need, ran_need=need, ready=ready) for need, ready in moments])
    assert result.fixed is not None
    needs = [need for need, _ in moments]
    allowed = result.ours.short_minutes

    def short(fixed: int) -> int:
        return sum(1 for need in needs if need > fixed + 1e-6)

    assert short(result.fixed.replicas) <= allowed
    assert result.fixed.replicas == 1 or short(result.fixed.replicas - 1) > allowed


def test_where_nothing_ran_nothing_is_saved() -> None:
    assert found([moment(paid=0.0, ran=0.0, kind="none ready")]).saved_share is None
    assert found([moment(paid=0.0, ran=0.0, kind="none ready")]).none_ready_minutes == 1
