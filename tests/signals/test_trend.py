"""The trend of arrivals: the longest stretch up to now that one line explains."""

from __future__ import annotations

from random import Random

import pytest

from scaler.signals.observation import Demand
from scaler.signals.trend import fit_trend, noise_dispersion
from tests.signals.timeline import Timeline, down, pod


def poisson(chance: Random, mean: float) -> float:
    """Arrivals of a slot, as so many exponential gaps fit."""
    count, at = 0, chance.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + chance.expovariate(1.0)
    return float(count)


def counts_of(rates: list[float], seed: int = 1) -> list[float]:
    """One 15 s count for each rate (req/s)."""
    chance = Random(seed)
    return [poisson(chance, rate * 15) for rate in rates]


def holding(at: float, pending: float) -> Demand:
    """A gateway that tells what it holds."""
    return Demand(at=at, pending=pending, wake_requested=False)


def test_an_even_load_is_known_the_better_the_longer_it_lasts() -> None:
    errors = {}
    for slots in (4, 120):
        found = [fit_trend(counts_of([0.5] * slots, seed), 15.0, 0.0) for seed in range(40)]
        errors[slots] = max(abs(trend.expected(0.0)[0] - 0.5) for trend in found if trend)
    assert errors[120] < 0.25  # a minute's window is off by as much in one minute of three
    assert errors[120] < errors[4] / 2


def test_a_step_cuts_the_past_off_within_one_count() -> None:
    trend = fit_trend(counts_of([2.0] * 100 + [8.0]), 15.0, 0.0)
    assert trend is not None
    assert trend.expected(0.0)[0] == pytest.approx(8.0, rel=0.25)
    assert trend.slope_per_second == 0.0


def test_a_step_is_no_slope() -> None:
    for since in range(1, 9):
        trend = fit_trend(counts_of([0.0] * 40 + [200.0] * since), 15.0, 0.0)
        assert trend is not None
        assert trend.expected(120.0)[0] == pytest.approx(200.0, rel=0.1), since


def test_a_step_that_began_within_a_count_is_no_slope_either() -> None:
    """70, 204, 195, 205 per second: that line would foresee 400."""
    trend = fit_trend([0.0] * 5 + [1052.0, 3064.0, 2921.0, 3085.0], 15.0, 0.0)
    assert trend is not None
    assert trend.expected(0.0)[0] == pytest.approx(200.0, rel=0.1)
    assert trend.expected(60.0)[0] < 250


def test_a_ramp_is_followed_and_foreseen() -> None:
    rates = [1.0 + 0.009 * 15 * slot for slot in range(40)]
    trend = fit_trend(counts_of(rates), 15.0, 0.0)
    assert trend is not None
    assert trend.slope_per_second == pytest.approx(0.009, rel=0.3)
    ahead, deviation = trend.expected(120.0)
    assert ahead == pytest.approx(1.0 + 0.009 * (600 + 120), rel=0.12)
    assert deviation < 0.5


def test_what_lies_further_back_is_seen_from_now() -> None:
    counts = [15.0 + slot for slot in range(8)]
    fresh, aged = fit_trend(counts, 15.0, 0.0), fit_trend(counts, 15.0, 30.0)
    assert fresh is not None
    assert aged is not None
    assert fresh.expected(30.0) == pytest.approx(aged.expected(0.0))


def test_without_counts_there_is_no_trend_and_of_nothing_little_is_certain() -> None:
    assert fit_trend([], 15.0, 0.0) is None
    silent = fit_trend([0.0] * 4, 15.0, 0.0)
    assert silent is not None
    rate, deviation = silent.expected(0.0)
    assert rate == 0.0
    assert deviation == pytest.approx(1 / 60)


def test_noise_is_told_by_neighbours_so_that_neither_slope_nor_step_is_called_bursty() -> None:
    assert noise_dispersion([10.0 * slot for slot in range(100)]) == pytest.approx(1.0, abs=0.2)
    assert noise_dispersion([0.0] * 50 + [3000.0] * 50) == 1.0
    assert noise_dispersion([0.0, 30.0] * 30) == pytest.approx(30.0, rel=0.05)
    assert noise_dispersion([0.0, 30.0]) is None  # too few to tell
    assert noise_dispersion([0.0] * 50) is None


def test_the_fold_looks_only_at_what_every_endpoint_has_told() -> None:
    """One of two is not read any more for a minute: what it counts meanwhile is not there yet, and no fall."""
    line = Timeline(interval_seconds=5)
    for step in range(120):
        signals = line.at(step * 5, a=pod(arrivals=10 * step), b=pod(arrivals=10 * step))
    for step in range(120, 132):
        signals = line.at(step * 5, a=pod(arrivals=10 * step), b=down())
    assert signals.arrivals_trend is not None
    assert signals.arrivals_trend.expected(0.0)[0] == pytest.approx(4.0, rel=0.02)


def test_who_is_held_at_the_gateway_has_arrived_and_arrives_only_once() -> None:
    line, held = Timeline(interval_seconds=5), 0.0
    for step in range(60):
        line.at(step * 5, demand=holding(step * 5, 0.0), a=pod(arrivals=10 * step))
    for step in range(60, 66):  # the engine takes no more; the gateway holds 10 in each read
        held = 10.0 * (step - 59)
        signals = line.at(step * 5, demand=holding(step * 5, held), a=pod(arrivals=590))
    assert signals.arrivals_trend is not None
    assert signals.arrivals_trend.expected(0.0)[0] == pytest.approx(2.0, rel=0.02)
    for step in range(66, 72):  # and lets them all go at once
        signals = line.at(step * 5, demand=holding(step * 5, 0.0), a=pod(arrivals=590 + held + 10 * (step - 65)))
    assert signals.arrivals_trend is not None
    assert signals.arrivals_trend.expected(0.0)[0] == pytest.approx(2.0, rel=0.02)
