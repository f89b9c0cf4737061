"""The fold: arrivals and other flows, over resets, lost reads, young pods and restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.model import Policy
from scaler.signals.model import Known, Signal, Stale, Unknown
from scaler.signals.observation import EngineSample
from tests.signals.timeline import Timeline, down, pod


def amount(signal: Signal[float]) -> float:
    """The number, whether known or stale."""
    assert isinstance(signal, Known | Stale), signal
    return signal.value


# Resets, births and removals


def test_counters_reset_and_disappear_with_pods_and_new_ones_are_not_born_at_zero() -> None:
    line = Timeline()
    first = line.at(0, a=pod(finished=1000, started=-900), b=pod(finished=500, started=-900))
    assert first.finished_per_second == Unknown("first read; no interval yet")

    second = line.at(15, a=pod(finished=1000, started=-900), c=pod(finished=7, started=5))
    assert second.finished_per_second == Known(7 / 15, 15)  # a 0, c 7, b dropped: not -493
    assert second.counters_moved

    third = line.at(30, a=pod(finished=3, started=29), c=pod(finished=7, started=5))
    assert third.finished_per_second == Known((7 + 3) / 30, 30)  # 3 by the reset rule: not -997
    assert third.counters_moved

    assert not line.at(45, a=pod(finished=3, started=29), c=pod(finished=7, started=5)).counters_moved


def test_a_process_that_restarted_and_counted_further_than_before_counts_from_zero() -> None:
    line = Timeline()
    line.at(0, a=pod(arrivals=10, started=-900))

    assert line.at(15, a=pod(arrivals=30, started=2)).arrivals_last_per_second == Known(2.0, 15)


@pytest.mark.parametrize("moved", [-1.0, -0.01, 0.01, 1.0])
def test_a_process_start_that_moves_with_the_machines_clock_is_no_restart(moved: float) -> None:
    """All it ever counted would be one interval's: a jump of 2,000 requests a second."""
    line = Timeline()
    line.at(0, a=pod(arrivals=30_000, running=8, started=-900))
    line.at(15, a=pod(arrivals=30_030, running=8, started=-900))

    assert line.at(30, a=pod(arrivals=30_060, running=8, started=-900 + moved)).arrivals_last_per_second == Known(
        2.0, 30
    )


def test_an_old_process_seen_for_the_first_time_counts_from_its_first_sample() -> None:
    line = Timeline()
    line.at(0, a=pod(arrivals=5, started=-900))
    signals = line.at(15, a=pod(arrivals=5, started=-900), b=pod(arrivals=70_000, started=-600))

    assert signals.arrivals_last_per_second == Stale(0.0, 15, at_least=0.0)  # b has no interval yet
    signals = line.at(30, a=pod(arrivals=5, started=-900), b=pod(arrivals=70_030, started=-600))
    assert signals.arrivals_last_per_second == Known(2.0, 30)


@pytest.mark.parametrize("started", [None, 1e6])
def test_a_process_start_that_is_missing_or_in_the_future_makes_no_process_young(started: float | None) -> None:
    line = Timeline()
    line.at(0, a=pod(arrivals=5))

    assert amount(line.at(15, a=pod(arrivals=5), b=pod(arrivals=700, started=started)).arrivals_last_per_second) == 0


def test_the_first_request_after_a_wake_is_seen() -> None:
    # Configured by name, so listed from the start; it loads for a minute, and its first page already counts a request.
    line = Timeline(interval_seconds=5)
    for seconds in range(0, 65, 5):
        line.at(seconds, a=down())
    signals = line.at(65, a=pod(running=1, waiting=0, finished=1, started=3))

    assert signals.counters_moved
    assert amount(signals.arrivals_per_second) > 0


def test_a_young_pod_that_has_just_become_an_endpoint_was_asked_in_the_last_interval() -> None:
    # It loaded for 80 s, but served nobody before it was listed.
    line = Timeline(interval_seconds=5)
    for seconds in range(0, 100, 5):
        line.at(seconds, a=pod(arrivals=0, started=-9))
    signals = line.at(100, a=pod(arrivals=0, started=-9), b=pod(arrivals=10, started=20))

    assert signals.arrivals_last_per_second == Known(2.0, 100)


def test_a_pod_that_drops_out_for_a_moment_is_neither_lost_nor_counted_twice() -> None:
    # Not ready under overload for half a minute, and young enough to count from zero if it were taken for new.
    line = Timeline(Policy(window_seconds=300), interval_seconds=5)
    for seconds in range(0, 100, 5):
        line.at(seconds, a=pod(arrivals=seconds, started=-1), b=pod(arrivals=seconds, started=-1))
    for seconds in range(100, 130, 5):
        line.at(seconds, a=pod(arrivals=seconds, started=-1))
    signals = line.at(130, a=pod(arrivals=130, started=-1), b=pod(arrivals=130, started=-1))

    assert amount(signals.arrivals_per_second) == pytest.approx(2.0)
    assert amount(signals.arrivals_last_per_second) == pytest.approx(2.0)


def test_a_family_that_is_missing_from_one_page_does_not_come_back_as_a_jump() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(running=1, waiting=0, finished=100_000))
    line.at(5, a=pod(running=1, waiting=0, finished=100_005))
    assert isinstance(line.at(10, a=pod(running=1, waiting=0)).finished_per_second, Unknown)

    assert line.at(15, a=pod(running=1, waiting=0, finished=100_015)).finished_per_second == Known(1.0, 15)


# Arrivals


def test_arrivals_are_what_finished_and_what_is_inside_more_than_before() -> None:
    line = Timeline()
    line.at(0, a=pod(running=4, waiting=0, finished=100))

    assert line.at(15, a=pod(running=8, waiting=5, finished=106)).arrivals_last_per_second == Known(1.0, 15)


def test_first_tokens_of_requests_that_were_there_before_the_first_read_are_no_arrivals() -> None:
    line = Timeline()
    line.at(0, a=pod(running=8, waiting=0, finished=100, ttft=[]))

    signals = line.at(15, a=pod(running=8, waiting=0, finished=100, ttft=[0.5] * 8))
    assert signals.arrivals_last_per_second == Known(0.0, 15)


def test_a_restart_does_not_count_the_lost_requests_as_negative_arrivals() -> None:
    line = Timeline()
    line.at(0, a=pod(running=40, waiting=9, finished=100, started=-9))

    assert line.at(15, a=pod(running=1, waiting=0, finished=2, started=3)).arrivals_last_per_second == Known(0.2, 15)


def test_a_restart_shows_in_a_fallen_counter_where_the_process_start_is_not_told() -> None:
    line = Timeline()
    line.at(0, a=pod(running=40, waiting=9, finished=100))

    assert line.at(15, a=pod(running=1, waiting=0, finished=2)).arrivals_last_per_second == Known(0.2, 15)


def test_requests_turned_away_at_the_engines_door_are_arrivals() -> None:
    line = Timeline()
    line.at(0, a=pod(running=8, waiting=20, finished=100, admission_rejections=0))
    signals = line.at(15, a=pod(running=8, waiting=20, finished=115, admission_rejections=30))

    assert signals.arrivals_last_per_second == Known(3.0, 15)


def test_an_engine_whose_counters_are_born_at_their_first_request_is_quiet_until_then() -> None:
    line = Timeline()
    line.at(0, a=pod(running=0, waiting=0, finished={}))
    assert line.at(15, a=pod(running=0, waiting=0, finished={})).arrivals_per_second == Known(0.0, 15)
    assert line.at(30, a=pod(running=0, waiting=0, finished={"stop": 3.0})).arrivals_last_per_second == Known(0.2, 30)


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=40))
def test_where_every_endpoint_is_read_at_each_tick_the_window_has_the_true_count(ticks: list[list[int]]) -> None:
    line, totals = Timeline(interval_seconds=5), [7.0, 0.0, 1e6]
    line.at(0, **{f"pod{index}": pod(arrivals=total) for index, total in enumerate(totals)})
    for number, tick in enumerate(ticks, start=1):
        totals = [total + new for total, new in zip(totals, tick, strict=True)]
        signals = line.at(number * 5, **{f"pod{index}": pod(arrivals=total) for index, total in enumerate(totals)})

    in_window, recent = ticks[-12:], ticks[-3:]
    at = len(ticks) * 5
    assert signals.arrivals_per_second == Known(pytest.approx(sum(map(sum, in_window)) / (len(in_window) * 5)), at)
    assert signals.arrivals_recent_per_second == Known(pytest.approx(sum(map(sum, recent)) / (len(recent) * 5)), at)
    assert signals.arrivals_last_per_second == Known(pytest.approx(sum(ticks[-1]) / 5), at)


TICK = st.fixed_dictionaries(
    {
        "arrived": st.integers(0, 30),
        "left": st.integers(0, 30),
        "lost": st.booleans(),
        "restart": st.sampled_from([False] * 9 + [True]),
        "series_missing": st.sampled_from([False] * 4 + [True]),
        "start_told": st.booleans(),
    }
)


@given(st.lists(TICK, min_size=1, max_size=40))
def test_no_restart_loss_or_missing_series_gives_a_negative_rate_or_more_than_arrived(ticks: list[dict]) -> None:
    line = Timeline(Policy(window_seconds=600), interval_seconds=5)
    inside, finished, started, arrived = 0, 0, -50.0, 0
    line.at(0, a=pod(running=0, waiting=0, finished={"stop": 0.0, "length": 0.0}, started=started))
    for number, tick in enumerate(ticks, start=1):
        at = number * 5
        if tick["restart"]:
            inside, finished, started = 0, 0, at - 2.0
        arrived += tick["arrived"]
        inside += tick["arrived"]
        leaving = min(inside, tick["left"])
        inside, finished = inside - leaving, finished + leaving
        series = {"stop": float(finished), "length": 0.0}
        if tick["series_missing"]:
            del series["length"]
        page: EngineSample = pod(running=min(inside, 8), waiting=max(0, inside - 8), finished=series, started=started)
        signals = line.at(at, a=down() if tick["lost"] else page)
        for signal in (
            signals.arrivals_per_second,
            signals.arrivals_recent_per_second,
            signals.arrivals_last_per_second,
            signals.finished_per_second,
        ):
            assert isinstance(signal, Unknown) or amount(signal) >= 0
    assert sum(each.flows[0] for each in line.history.flow.increments) <= arrived + 1e-6


# Lost reads


def test_what_a_lost_read_left_out_comes_with_the_next_one_and_is_no_jump() -> None:
    line = Timeline(interval_seconds=5)
    for seconds in range(0, 65, 5):
        line.at(seconds, a=pod(arrivals=2 * seconds), b=pod(arrivals=2 * seconds))
    for seconds in (65, 70):  # still fresh: it is taken to go on as before
        signals = line.at(seconds, a=pod(arrivals=2 * seconds), b=down())
        assert signals.arrivals_per_second == Known(pytest.approx(4.0), 60)
        assert signals.arrivals_last_per_second == Known(pytest.approx(4.0), 60)
    signals = line.at(75, a=pod(arrivals=150), b=pod(arrivals=150))

    assert signals.arrivals_last_per_second == Known(pytest.approx(4.0), 75)
    assert signals.arrivals_recent_per_second == Known(pytest.approx(4.0), 75)
    assert signals.arrivals_per_second == Known(pytest.approx(4.0), 75)
    assert [each.flows[0] for each in line.history.flow.increments] == pytest.approx([20.0] * 12)


def test_the_truth_replaces_what_was_supposed_of_an_unread_endpoint() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(arrivals=0))
    line.at(5, a=pod(arrivals=50))
    line.at(10, a=down())
    assert amount(line.at(15, a=down()).arrivals_per_second) == pytest.approx(10.0)

    assert amount(line.at(20, a=pod(arrivals=50)).arrivals_per_second) == pytest.approx(50 / 20)


def test_a_long_silence_holds_the_rate_and_raises_by_what_was_read() -> None:
    line = Timeline(interval_seconds=5)
    for seconds in range(0, 35, 5):
        line.at(seconds, a=pod(arrivals=seconds), b=pod(arrivals=3 * seconds))
    for seconds in range(35, 65, 5):
        signals = line.at(seconds, a=pod(arrivals=seconds), b=down())

    assert signals.arrivals_per_second == Stale(pytest.approx(4.0), 30, at_least=pytest.approx(1.0 + 3.0 * 30 / 60))
    assert signals.arrivals_recent_per_second == Stale(pytest.approx(4.0), 30, at_least=pytest.approx(1.0))
    assert signals.arrivals_last_per_second == Stale(pytest.approx(4.0), 30, at_least=pytest.approx(1.0))


def test_an_endpoint_read_late_makes_the_window_complete_only_once_it_covers_it() -> None:
    # b could not be read for the first 40 s, and nobody knows what it did then.
    line = Timeline(interval_seconds=5)
    for seconds in range(0, 40, 5):
        line.at(seconds, a=pod(arrivals=seconds), b=down())
    for seconds in range(40, 100, 5):
        signals = line.at(seconds, a=pod(arrivals=seconds), b=pod(arrivals=seconds))
        assert isinstance(signals.arrivals_per_second, Stale), seconds
    assert line.at(100, a=pod(arrivals=100), b=pod(arrivals=100)).arrivals_per_second == Known(2.0, 100)


def test_time_in_which_nobody_was_ever_read_is_not_time_without_arrivals() -> None:
    line = Timeline(interval_seconds=5)
    for seconds in range(0, 40, 5):
        line.at(seconds, a=down())
    line.at(40, a=pod(arrivals=1000))

    assert line.at(45, a=pod(arrivals=1010)).arrivals_per_second == Known(2.0, 45)


def test_a_source_read_more_rarely_than_the_tick_gives_the_same_rate() -> None:
    line = Timeline(interval_seconds=15)
    for seconds in range(0, 125, 5):
        read_at = seconds - seconds % 15
        page = pod(arrivals=2 * read_at)
        line.observation = replace(line.observation, at=seconds, endpoints={"a": replace(page, at=read_at)})
        signals = line.judged(seconds)
    assert amount(signals.arrivals_per_second) == pytest.approx(2.0)
    assert amount(signals.arrivals_last_per_second) == pytest.approx(2.0)


def test_ticks_that_come_a_little_late_do_not_change_the_window() -> None:
    line = Timeline(interval_seconds=5)
    for step in range(40):
        at = step * 5.013
        signals = line.at(at, a=pod(arrivals=3 * at))
    assert amount(signals.arrivals_per_second) == pytest.approx(3.0)
    assert len(line.history.flow.increments) == 12


# The other flows


def test_a_flow_that_only_some_endpoints_report_is_incomplete() -> None:
    line = Timeline()
    line.at(0, a=pod(arrivals=0, preemptions=0), b=pod(arrivals=0))

    assert line.at(15, a=pod(arrivals=1, preemptions=3), b=pod(arrivals=1)).preemptions_recent == Stale(3.0, 15, 3.0)


def test_tokens_and_preemptions() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(prompt_tokens=0, generation_tokens=0, preemptions=0))
    line.at(5, a=pod(prompt_tokens=500, generation_tokens=100, preemptions=2))
    signals = line.at(10, a=pod(prompt_tokens=1000, generation_tokens=100, preemptions=3))

    assert signals.prompt_tokens_per_second == Known(100.0, 10)
    assert signals.generation_tokens_per_second == Known(10.0, 10)
    assert signals.preemptions_recent == Known(3.0, 10)
    for seconds in (15, 20, 25):
        signals = line.at(seconds, a=pod(prompt_tokens=1000, generation_tokens=100, preemptions=3))
    assert signals.preemptions_recent == Known(0.0, 25)
