"""The comparison with forecasting libraries, without any of them: what a library is given, and that its word counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks import forecast
from benchmarks.forecast import Libraries, history_of, minutes_of, pinball, play_told
from benchmarks.forecasters import Forecast, periods
from scaler.control.season import NO_SEASON, learn_season
from scaler.lab.scenarios import SCENARIOS
from scaler.policy.model import SLOT_SECONDS, Seasonal


def test_the_pinball_loss_is_least_at_the_quantile() -> None:
    came = [float(each) for each in range(101)]
    losses = {said: sum(pinball(each, said, 0.9) for each in came) for said in (50.0, 90.0, 100.0)}
    assert min(losses, key=lambda said: losses[said]) == 90.0


def test_a_library_is_given_what_was_known_when_the_slot_began_and_gaps_filled() -> None:
    season, law = NO_SEASON, Seasonal()
    for slot, rate in enumerate((1.0, None, None, 2.0, 7.0), start=1000):
        season = learn_season(season, law, slot, rate, SLOT_SECONDS)
    assert [round(level, 1) for level in history_of(season)] == [1.0, 1.0, 1.0, 2.0]


def test_days_and_weeks_are_told_once_two_of_them_are_there() -> None:
    assert periods([0.0] * 100) == []
    assert periods([0.0] * 192) == [96]
    assert periods([0.0] * 1344) == [96, 672]


def test_what_comes_is_the_mean_of_the_drawings() -> None:
    rates = minutes_of(SCENARIOS["season-none"], None, range(1, 6))
    assert len(rates) == 240
    assert sum(rates) / 240 == pytest.approx(0.5, rel=0.05)


def test_the_policy_buys_by_what_the_library_says() -> None:
    told = []

    def generous(history: Sequence[float], slots: int) -> Forecast:
        told.append(len(history))
        return Forecast([0.6] * slots, [0.6] * slots)

    weekend = SCENARIOS["season-weekend"]
    _, ours = play_told(
        weekend, None, 1, Libraries({"silent": lambda _, slots: Forecast([0.0] * slots, [])}), "silent", 0.1
    )
    _, bought = play_told(weekend, None, 1, Libraries({"generous": generous}), "generous", 0.1)
    assert len(told) == weekend.seconds / SLOT_SECONDS
    assert set(told) == {2688}
    assert bought > 2 * ours


def test_without_a_library_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(forecast, "installed", dict)
    monkeypatch.setattr("sys.argv", ["forecast"])
    forecast.main()
    assert "result: libraries=0" in capsys.readouterr().out
