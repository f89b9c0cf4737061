"""Cells of the cost benchmark that have been played, kept in a file: a run that was broken off goes on where it was."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import scaler
from scaler.lab.contest import measured_truth, play
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
    those of other sources are played again. ``number``: how many there will be, for the progress on stderr.
    """

    def __init__(self, folder: Path | None, file: Path | None, number: int) -> None:
        self._folder, self._file, self._number = folder, file, number
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
        self._done += 1
        key = (scenario.name, policy, knob, seed)
        if key not in self._kept:
            begun = time.perf_counter()
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
            took = time.perf_counter() - begun
            print(f"{self._done} of {self._number}: {' '.join(map(str, key))}, {took:.1f} s", file=sys.stderr)  # noqa: T201
        return self._kept[key]
