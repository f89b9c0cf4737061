"""Cells of the cost benchmark that have been played, kept in a file: a run that was broken off goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from pathlib import Path

import scaler
from benchmarks.foreknown import FOREKNOWN_NAME, play_foreknown
from scaler.lab.contest import Played, measured_truth, play
from scaler.lab.progress import Tell
from scaler.lab.promise import late_first_alone
from scaler.lab.scenarios import Scenario
from scaler.lab.score import Point
from scaler.lab.seasons import learned_from
from scaler.lab.truth import Truth


def code_digest() -> str:
    """What the cells were played with: the package's sources."""
    root, digest = Path(scaler.__file__).parent, sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Cell:
    """Of one run: the share of the requests that kept every objective, GPU-hours, and the share of the requests that
    missed by nothing but their first token.
    """

    attainment: float
    gpu_hours: float
    late_first: float


class Cells:
    """What was found by scenario, policy, knob and seed. ``file``: where it is kept, one JSON line each; that of other
    sources is played again. ``tell`` is told how many there have been.
    """

    def __init__(self, folder: Path | None, file: Path | None, tell: Tell) -> None:
        self._folder, self._file, self._tell = folder, file, tell
        self._code, self._done, self._truths = code_digest(), 0, dict[str, Truth]()
        self._kept: dict[tuple[str, str, float, int], Cell] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                code, scenario, policy, knob, seed, *found = json.loads(line)
                if code == self._code:
                    self._kept[scenario, policy, knob, seed] = Cell(*found)

    def point(self, scenario: Scenario, policy: str, knob: float, seeds: Sequence[int]) -> Point:
        """The mean of the seeds."""
        return mean_point(knob, [self.cell(scenario, policy, knob, seed) for seed in seeds])

    def cell(self, scenario: Scenario, policy: str, knob: float, seed: int) -> Cell:
        """What was kept of it, or is found by playing it."""
        key = (scenario.name, policy, knob, seed)
        self._tell(self._done, " ".join(map(str, key)))
        self._done += 1
        if key not in self._kept:
            self._kept[key] = _cell(self._play(scenario, policy, knob, seed))
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps([self._code, *key, *astuple(self._kept[key])]) + "\n")
        return self._kept[key]

    def _play(self, scenario: Scenario, policy: str, knob: float, seed: int) -> Played:
        if scenario.name not in self._truths:
            self._truths[scenario.name] = measured_truth(scenario, self._folder)
        requests, truth = scenario.requests(self._folder, seed), self._truths[scenario.name]
        if policy == FOREKNOWN_NAME:
            return play_foreknown(scenario, requests, truth, knob, seed, self._folder)
        season = learned_from(scenario.past, self._folder, seed)
        return play(scenario, policy, requests, truth, knob, seed, season=season)


def mean_point(knob: float, cells: Sequence[Cell]) -> Point:
    """The mean of several seeds' cells of one knob."""
    shares, hours = [each.attainment for each in cells], [each.gpu_hours for each in cells]
    return Point(knob, sum(shares) / len(cells), sum(hours) / len(cells), 0.0)


def _cell(played: Played) -> Cell:
    scenario, found = played.case.scenario, played.outcome
    until = scenario.seconds - scenario.promise.patience_seconds
    judged = (pair for pair in played.run.fleet.served if pair[0].at < until)
    late = sum(late_first_alone(scenario.promise, request, sequence) for request, sequence in judged)
    return Cell(found.attainment, found.gpu_hours, late / max(found.judged, 1))
