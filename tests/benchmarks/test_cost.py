"""The cost benchmark's own arithmetic, and that a run that was broken off goes on where it was."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cost_cells
from benchmarks.cost import log_miss_at
from benchmarks.cost_cells import Cells
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.score import Outcome, Point

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

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.number += 1
        return type("Found", (), {"outcome": Outcome(0.99, 10.0 * self.number, 0, 100)})


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Play:
    found = Play()
    monkeypatch.setattr(cost_cells, "play", found)
    monkeypatch.setattr(cost_cells, "measured_truth", lambda *_: None)
    return found


def test_what_was_played_is_not_played_again(lab: Play, tmp_path: Path) -> None:
    file, scenario = tmp_path / "cells.jsonl", SCENARIOS["season-none"]
    first = Cells(None, file, 2).point(scenario, "adaptive", 1.0, [1, 2])
    assert first.gpu_hours == 15.0
    again = Cells(None, file, 3).point(scenario, "adaptive", 1.0, [1, 2, 3])
    assert lab.number == 3
    assert math.isclose(again.gpu_hours, 20.0)


def test_what_other_sources_played_is(lab: Play, tmp_path: Path) -> None:
    file, scenario = tmp_path / "cells.jsonl", SCENARIOS["season-none"]
    file.write_text(json.dumps(["another", scenario.name, "adaptive", 1.0, 1, 0.5, 5.0]) + "\n")
    assert Cells(None, file, 1).point(scenario, "adaptive", 1.0, [1]).gpu_hours == 10.0
    assert lab.number == 1
