"""What is lost by declaring nothing: ``make bench NAME=undeclared`` (a minute of two cores; the public traces).

Every scenario of the scorecard is played as there, with one difference: the policy does not say what a replica serves
(``capacity.sequences``, ``capacity.requests_per_second``). So the first minutes rest on the prior, and the rest on what
is learned. Beside it stands the scorecard's own row, in which the lab's truth is declared. Seeds are the same.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean

from scaler.lab.contest import play_built, truth_of
from scaler.lab.ours import Ours
from scaler.lab.policies import POLICIES, Case
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.score import DEFAULT_KNOB, Row

SCORECARD = Path(__file__).parent / "scorecard.json"
OURS = "adaptive"


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    arguments.add_argument("scenarios", nargs="*", help="the scorecard's, by name; all of them by default")
    arguments.add_argument("--data", type=Path, help="folder of the public traces")
    arguments.add_argument("--seeds", type=int, default=5, help="how many of the scorecard's (%(default)s)")
    arguments.add_argument("--jobs", type=int, default=2, help="processes at once (%(default)s)")
    given = arguments.parse_args()
    rows = [Row(**row) for row in json.loads(SCORECARD.read_text())["rows"]]
    rows = [row for row in rows if row.policy == OURS and row.knob == DEFAULT_KNOB and row.seed <= given.seeds]
    names = given.scenarios or sorted({row.scenario for row in rows})
    if unknown := set(names) - {row.scenario for row in rows}:
        arguments.error(f"the scorecard has no {', '.join(sorted(unknown))}")
    with ProcessPoolExecutor(given.jobs) as processes:
        played = processes.map(partial(_undeclared, seeds=given.seeds, folder=given.data), names)
        _report(names, rows, played)


def _undeclared(name: str, seeds: int, folder: Path | None) -> list[tuple[float, float]]:
    """Attainment and GPU-hours of each seed."""
    scenario, found = SCENARIOS[name], []
    for seed in range(1, seeds + 1):
        case = Case(scenario, truth_of(name, folder), DEFAULT_KNOB, scenario.requests(folder, seed))
        ours, enactor = POLICIES[OURS].build(case)
        assert isinstance(ours, Ours)
        nothing = {"sequences": None, "requests_per_second": None}
        ours.policy = ours.policy.model_copy(update={"capacity": ours.policy.capacity.model_copy(update=nothing)})
        outcome = play_built(case, ours, enactor, seed).outcome
        found.append((outcome.attainment, outcome.gpu_hours))
    return found


def _report(names: Sequence[str], rows: Sequence[Row], played: Iterable[list[tuple[float, float]]]) -> None:
    print("| scenario | kept, declared | undeclared | GPU-hours, declared | undeclared |")  # noqa: T201
    print("|---|---:|---:|---:|---:|")  # noqa: T201
    told: list[tuple[float, float, float, float]] = []
    for name, cells in zip(names, played, strict=True):
        declared = [row for row in rows if row.scenario == name]
        told.append(
            (
                fmean(row.attainment for row in declared),
                fmean(kept for kept, _ in cells),
                fmean(row.gpu_hours for row in declared),
                fmean(hours for _, hours in cells),
            )
        )
        print("| `{}` | {:.1%} | {:.1%} | {:.1f} | {:.1f} |".format(name, *told[-1]), flush=True)  # noqa: T201
    kept, kept_without = (fmean(each[index] for each in told) for index in (0, 1))
    hours_ratio = sum(each[3] for each in told) / sum(each[2] for each in told)
    print(f"result: kept_declared={kept:.4f} kept_undeclared={kept_without:.4f} hours_ratio={hours_ratio:.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
