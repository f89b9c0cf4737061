"""Pasts: weeks of arrivals before the part of a scenario that is played, from which ours has learned a season.

The past is learned by the very code that learns in a tick, a quarter of an hour at a time, as a backfill does; what is
played comes after all of it. Callers of the synthetic ones work from nine to half past four on working days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

from scaler.control.season import NO_SEASON, SLOTS_KEPT, Season, learn_season
from scaler.lab.simulate import BEGIN_UTC
from scaler.lab.traces import Rate, read_client_rate, read_rate
from scaler.policy.model import SLOT_SECONDS, Seasonal

#: Folder with the traces and seed to what arrived before the scenario began: the rate by seconds (below 0), and how
#: many seconds it reaches back.
Past = Callable[[Path, int], tuple[Rate, float]]

HOUR, DAY = 3600.0, 86_400.0
WEEK = 7 * DAY
#: How much one working day differs from another: the standard deviation of its logarithm.
DAYS_DIFFER = 0.15
#: What comes at other hours, per second: some ten requests in an hour.
FORGETFUL = 0.003


def learned_from(past: Past | None, folder: Path | None, seed: int) -> Season:
    """The season by a past, with the chance of its counts; nothing without one. Raises OSError, TraceError."""
    if past is None:
        return NO_SEASON
    rate, reach = past(folder or Path(), seed)
    chance, law, season = Random(seed), Seasonal(), NO_SEASON
    minutes = SLOT_SECONDS // 60
    for at in (-slot * SLOT_SECONDS for slot in range(min(SLOTS_KEPT, int(reach / SLOT_SECONDS)), 0, -1)):
        expected = sum(rate(at + minute * 60.0) for minute in range(minutes)) * 60.0
        count = max(0, round(chance.gauss(expected, math.sqrt(expected))))
        slot = law.slot(BEGIN_UTC + timedelta(seconds=at))
        season = learn_season(season, law, slot, count / SLOT_SECONDS, SLOT_SECONDS)
    return season


def recorded_past(file: str, start: float, seconds: float, peak: float, client: str | None = None) -> Past:
    """What a rate file holds from its beginning to ``start``, on the scale on which the ``seconds`` from there on reach
    ``peak`` requests per second.
    """

    def past(folder: Path, seed: int) -> tuple[Rate, float]:  # noqa: ARG001
        rate = read_rate(folder / file)[0] if client is None else read_client_rate(folder / file, client)
        highest = max(rate(start + at) for at in range(0, int(seconds) + 1, 60))
        return lambda at: rate(start + at) * peak / highest, start

    return past


def steady_past(rate: float) -> Past:
    """Four weeks of one rate."""
    return lambda folder, seed: (lambda at: rate, 4 * WEEK)  # noqa: ARG005


def smooth_past(today: Rate) -> Past:
    """Four weeks of the day that is played, of which no two are alike in how busy they are."""

    def past(folder: Path, seed: int) -> tuple[Rate, float]:  # noqa: ARG001
        chance = Random(seed)
        factors = [math.exp(chance.gauss(0.0, DAYS_DIFFER)) for _ in range(28)]
        return lambda at: factors[int(-at / DAY) % 28] * today(at % DAY), 4 * WEEK

    return past


def wandering_past(low: float, high: float) -> Past:
    """Four weeks of a load that goes up and down without any hour of its own: a walk between two rates, drawn anew
    every half hour. It ends at the middle.
    """

    def past(folder: Path, seed: int) -> tuple[Rate, float]:  # noqa: ARG001
        chance, levels = Random(seed), [(low + high) / 2]
        for _ in range(2 * 24 * 28):
            levels.append(min(high, max(low, levels[-1] * math.exp(chance.gauss(0.0, 0.15)))))
        return lambda at: levels[min(int(-at / 1800.0), len(levels) - 1)], 4 * WEEK

    return past


def office_past(begin: float, high: float, *, holiday: int | None = None, spike: int | None = None) -> Past:
    """Four weeks of working days before ``begin`` (seconds from a Monday, 0 h), no two alike. On day ``holiday``
    (counted from that Monday: -7 is the one before) nobody came; on day ``spike`` five times as many as ever did, an
    hour before the others.
    """

    def past(folder: Path, seed: int) -> tuple[Rate, float]:  # noqa: ARG001
        chance = Random(seed)
        factors = {day: math.exp(chance.gauss(0.0, DAYS_DIFFER)) for day in range(-28, 7)}

        def rate(at: float) -> float:
            day, clock = divmod(begin + at, DAY)
            if day == spike and 8 * HOUR <= clock < 9 * HOUR:
                return 5 * high
            return FORGETFUL if day == holiday else factors[int(day)] * working_day(int(day) % 7, clock, high)

        return rate, 28 * DAY + begin

    return past


def working_day(weekday: int, clock: float, high: float) -> float:
    """Arrivals per second at a time of day, seconds: hardly anybody at night and at weekends, everybody at nine."""
    if weekday >= 5 or not 9 * HOUR <= clock < 16.5 * HOUR:
        return FORGETFUL
    return high * (0.85 if 12 * HOUR <= clock < 13 * HOUR else 1.0)


def office_day(begin: float, high: float, *, silent: Sequence[int] = ()) -> Rate:
    """The same callers from ``begin`` on; hardly anybody on days in ``silent``."""

    def rate(at: float) -> float:
        day, clock = divmod(begin + at, DAY)
        return FORGETFUL if int(day) in silent else working_day(int(day) % 7, clock, high)

    return rate
