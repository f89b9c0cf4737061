"""The cost benchmark's own arithmetic, and that a run that was broken off goes on where it was."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from benchmarks import cost_cells
from benchmarks.cost_cells import Cell, Cells
from benchmarks.cost_equal import Found, drawn_between, left_at, log_miss_at
from benchmarks.foreknown import FOREKNOWN_NAME, Foreknown, play_foreknown
from scaler.control.season import SLOTS_NEEDED, Skill, foresee
from scaler.lab.policies import NO_SEASON_NAME
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.score import Outcome, Point
from scaler.lab.simulate import BEGIN_UTC
from scaler.lab.truth import Truth
from scaler.policy.model import Seasonal

POINTS = [Point(1.6, 0.99, 100.0, 0.0), Point(1.0, 0.999, 120.0, 0.0), Point(0.7, 0.9985, 130.0, 0.0)]


def test_misses_between_two_knobs_are_read_on_a_line_of_their_logarithms() -> None:
    assert log_miss_at(POINTS, 110.0) == pytest.approx(-2.5)
    assert log_miss_at(POINTS, 120.0) == pytest.approx(-3.0)


def test_for_more_than_the_best_knob_takes_as_few_are_missed_as_there() -> None:
    assert log_miss_at(POINTS, 125.0) == pytest.approx(-3.0)


def test_nothing_is_said_of_fewer_than_the_cheapest_knob_takes() -> None:
    assert log_miss_at(POINTS, 99.0) is None


@dataclass
class Play:
    """Stands in for the lab: counts what is played."""

    number: int = 0

    def __call__(self, scenario: Any, *arguments: Any, **named: Any) -> Any:
        self.number += 1
        return SimpleNamespace(
            case=SimpleNamespace(scenario=scenario),
            run=SimpleNamespace(fleet=SimpleNamespace(served=[])),
            outcome=Outcome(0.99, 10.0 * self.number, 0, 100),
        )


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Play:
    found = Play()
    monkeypatch.setattr(cost_cells, "play", found)
    monkeypatch.setattr(cost_cells, "measured_truth", lambda *_: None)
    return found


def silent(*_: object) -> None:
    """Tells nobody how far it is."""


def test_what_was_played_is_not_played_again(lab: Play, tmp_path: Path) -> None:
    file, scenario = tmp_path / "cells.jsonl", SCENARIOS["season-none"]
    told: list[tuple[float, str]] = []
    first = Cells(None, file, silent).point(scenario, "adaptive", 1.0, [1, 2])
    assert first.gpu_hours == 15.0
    again = Cells(None, file, lambda *done: told.append(done)).point(scenario, "adaptive", 1.0, [1, 2, 3])
    assert told == [(number, f"season-none adaptive 1.0 {number + 1}") for number in range(3)]
    assert lab.number == 3
    assert math.isclose(again.gpu_hours, 20.0)


def test_what_other_sources_played_is(lab: Play, tmp_path: Path) -> None:
    file, scenario = tmp_path / "cells.jsonl", SCENARIOS["season-none"]
    file.write_text(json.dumps(["another", scenario.name, "adaptive", 1.0, 1, 0.5, 5.0, 0.0]) + "\n")
    assert Cells(None, file, silent).point(scenario, "adaptive", 1.0, [1]).gpu_hours == 10.0
    assert lab.number == 1


def cells(*misses: float, hours: float) -> list[Cell]:
    return [Cell(1.0 - miss, hours, 0.0) for miss in misses]


class TestEqualHours:
    """Two seeds; the first misses more, and ours in the same proportion."""

    found: ClassVar[Found] = {
        (NO_SEASON_NAME, 1.0): cells(0.003, 0.001, hours=110.0),
        ("adaptive", 1.0): cells(0.003, 0.001, hours=100.0),
        ("adaptive", 0.85): cells(0.0003, 0.0001, hours=120.0),
    }

    def test_what_is_left_of_the_misses_is_read_at_the_hours_of_the_other(self) -> None:
        assert left_at(self.found, "adaptive", [1.0], [0, 1]) == pytest.approx(10**-0.5)

    def test_of_several_knobs_it_is_the_geometric_mean_of_those_that_can_be_told(self) -> None:
        more = {
            (NO_SEASON_NAME, 0.85): cells(0.0006, 0.0002, hours=130.0),
            (NO_SEASON_NAME, 1.3): cells(1, 1, hours=9.0),
        }
        assert left_at(dict(self.found) | more, "adaptive", [0.85, 1.0, 1.3], [0, 1]) == pytest.approx(
            math.sqrt(0.5 * 10**-0.5)
        )

    def test_seeds_that_say_the_same_leave_no_doubt_however_much_each_misses(self) -> None:
        between = drawn_between(self.found, "adaptive", [1.0], 2)
        assert between == pytest.approx((10**-0.5, 10**-0.5))

    def test_seeds_that_differ_do(self) -> None:
        found = dict(self.found) | {("adaptive", 0.85): cells(0.0001, 0.001, hours=120.0)}
        between = drawn_between(found, "adaptive", [1.0], 2)
        assert between is not None
        assert between[0] < 0.3 < 0.9 < between[1]

    def test_nothing_is_said_of_who_was_not_played_or_takes_more_at_every_knob(self) -> None:
        assert left_at(self.found, FOREKNOWN_NAME, [1.0], [0, 1]) is None
        dear = {key: value for key, value in self.found.items() if key != ("adaptive", 1.0)}
        assert left_at(dear, "adaptive", [1.0], [0, 1]) is None
        assert drawn_between(dear, "adaptive", [1.0], 2) is None


def test_who_knows_the_rate_foresees_it_without_a_doubt() -> None:
    def rate(at: float) -> float:
        return 1.0 if at < 1000.0 else 3.0

    law = Seasonal()
    season = Foreknown(
        law.zone, "daily", law.slot(BEGIN_UTC), came=1e12, usual=1e12, today=Skill(SLOTS_NEEDED, 0.0, 1.0, 1.0),
        rate=rate,
    )  # fmt: skip
    found = foresee(season, law, BEGIN_UTC, 1200.0)
    assert found is not None
    assert (found.now, found.ahead, found.error) == (1.0, 3.0, 0.0)
    assert found.requests > 1e9


def test_of_a_drawn_day_nobody_knows_the_rate() -> None:
    with pytest.raises(ValueError, match="season-none"):
        play_foreknown(SCENARIOS["season-none"], [], Truth(8.0, 0.5), 1.0, 1, None)
