"""Cells of the cost benchmark that have been played, kept in a file: a run that was broken off goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import scaler
from scaler.lab.contest import measured_truth, play
from scaler.lab.progress import Tell
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


class Cells:
    """Attainment and GPU-hours by scenario, policy, knob and seed. ``file``: where they are kept, one JSON line each;
    those of other sources are played again. ``tell`` is told how many there have been.
    """

    def __init__(self, folder: Path | None, file: Path | None, tell: Tell) -> None:
        self._folder, self._file, self._tell = folder, file, tell
        self._code, self._done, self._truths = code_digest(), 0, dict[str, Truth]()
        self._kept: dict[tuple[str, str, float, int], tuple[float, float]] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                code, scenario, policy, knob, seed, *found = json.loads(line)
                if code == self._code:
                    self._kept[scenario, policy, knob, seed] = (found[0], found[1])

    def point(self, scenario: Scenario, policy: str, knob: float, seeds: Sequence[int]) -> Point:
        """The mean of the seeds."""
        found = [self._cell(scenario, policy, knob, seed) for seed in seeds]
        shares, hours = ([each[index] for each in found] for index in (0, 1))
        return Point(knob, sum(shares) / len(found), sum(hours) / len(found), 0.0)

    def _cell(self, scenario: Scenario, policy: str, knob: float, seed: int) -> tuple[float, float]:
        key = (scenario.name, policy, knob, seed)
        self._tell(self._done, " ".join(map(str, key)))
        self._done += 1
        if key not in self._kept:
            if scenario.name not in self._truths:
                self._truths[scenario.name] = measured_truth(scenario, self._folder)
            found = play(
                scenario, policy, scenario.requests(self._folder, seed), self._truths[scenario.name], knob, seed,
                season=learned_from(scenario.past, self._folder, seed),
            ).outcome  # fmt: skip
            self._kept[key] = (found.attainment, found.gpu_hours)
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps([self._code, *key, *self._kept[key]]) + "\n")
        return self._kept[key]
