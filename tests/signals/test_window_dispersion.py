"""The fold: the dispersion of arrivals, from 15 s counts over half an hour."""

from __future__ import annotations

import pytest

from tests.signals.timeline import Timeline, down, pod


def test_dispersion_needs_eight_counts_and_is_zero_for_a_metronome() -> None:
    line = Timeline(interval_seconds=5)
    for seconds in range(0, 120, 5):
        assert line.at(seconds, a=pod(arrivals=seconds)).arrivals_dispersion is None
    assert line.at(120, a=pod(arrivals=120)).arrivals_dispersion == pytest.approx(0.0)


def test_dispersion_of_bursts_is_their_variance_over_their_mean() -> None:
    line, total = Timeline(interval_seconds=5), 0
    for step in range(200):
        total += 30 if step % 6 == 5 else 0  # 30 within one of two slots: counts 0, 30, 0, 30, ...
        signals = line.at(step * 5, a=pod(arrivals=total))

    counts = [0.0, 30.0] * 33
    mean = sum(counts) / len(counts)
    variance = sum((each - mean) ** 2 for each in counts) / (len(counts) - 1)
    assert signals.arrivals_dispersion == pytest.approx(variance / mean, rel=0.02)


def test_a_lost_read_does_not_look_like_a_burst() -> None:
    line = Timeline(interval_seconds=5)
    for step in range(100):
        signals = line.at(step * 5, a=down() if step % 10 in (3, 4, 5, 6) else pod(arrivals=step * 5))

    assert signals.arrivals_dispersion == pytest.approx(0.0, abs=1e-9)


def test_without_arrivals_there_is_nothing_to_disperse() -> None:
    line = Timeline(interval_seconds=5)
    for step in range(60):
        signals = line.at(step * 5, a=pod(arrivals=4))
    assert signals.arrivals_dispersion is None


def test_changes_of_gauges_are_no_counts_to_take_a_dispersion_or_a_trend_from() -> None:
    """llama.cpp counts no requests. What its gauges gain is a small part of what arrives, and mostly chance."""
    lines = Timeline(interval_seconds=5), Timeline(interval_seconds=5)
    for second in range(0, 300, 5):
        inside = {"running": 7 + second % 3, "waiting": 0}
        gauges = lines[0].at(second, a=pod(**inside))
        counted = lines[1].at(second, a=pod(**inside, finished=4 * second))
    assert gauges.arrivals_trend is None
    assert gauges.arrivals_dispersion is None
    assert counted.arrivals_trend is not None
    assert counted.arrivals_dispersion is not None


def test_while_nobody_can_be_read_the_trend_of_before_stands() -> None:
    line = Timeline(interval_seconds=5)
    for second in range(0, 120, 5):
        before = line.at(second, a=pod(running=7, waiting=0, finished=4 * second)).arrivals_trend
    assert before is not None
    assert line.at(240, a=down()).arrivals_trend is not None
