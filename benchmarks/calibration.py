"""The engine model beside published measurements of real engines: the error of its TPOT, on the whole of the files.

``python -m benchmarks.calibration FOLDER`` reads every CSV there that has the columns of ``silicon_sample.csv`` (NVIDIA
aiconfigurator) or ``perf_model.csv`` (splitwise-sim), and says for every hardware of ``scaler/lab/hardware.py`` how far
the model is off, and what constants fit best. ``--write FILE`` keeps the rows that were used:
``tests/lab/data/engine_measurements.csv`` was made so.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from scaler.lab.calibration import Measured, errors, fit, median_error
from scaler.lab.hardware import HARDWARE

#: (model, system, precision, tensor parallel) of aiconfigurator's rows that we ship constants for.
SILICON = {
    ("meta-llama/Llama-3.1-8B-Instruct", "h100_sxm", "", "1"): "llama-3.1-8b-h100",
    ("meta-llama/Llama-3.1-70B", "h100_sxm", "fp8", "4"): "llama-3.1-70b-fp8-4xh100",
    ("Qwen/Qwen3-32B", "h100_sxm", "", "4"): "qwen3-32b-4xh100",
    ("Qwen/Qwen3-32B", "h100_sxm", "", "2"): "qwen3-32b-2xh100",
}
#: (model, hardware, tensor parallel) of splitwise-sim's.
SPLITWISE = {("llama2-70b", "a100-80gb", "8"): "llama-2-70b-8xa100"}
COLUMNS = ("hardware", "prompt_tokens", "output_tokens", "concurrency", "tpot_ms", "together")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def read(folder: Path) -> list[Measured]:
    """The rows of every CSV in the folder whose columns are known."""
    found: list[Measured] = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            columns = set(rows.fieldnames or ())
            if "silicon_tpot_ms" in columns:
                found += _silicon(rows)
            elif {"prompt_size", "token_time"} <= columns:
                found += _splitwise(rows)
    return found


def _silicon(rows: Iterator[Mapping[str, str]] | csv.DictReader[str]) -> Iterator[Measured]:
    for row in rows:
        name = SILICON.get((row["model_path"], row["system"], row["precision"], row["tp_size"]))
        if name is not None:
            seconds = float(row["silicon_tpot_ms"]) / 1000
            yield Measured(name, int(row["isl"]), int(row["osl"]), int(row["batch_size"]), seconds)


def _splitwise(rows: Iterator[Mapping[str, str]] | csv.DictReader[str]) -> Iterator[Measured]:
    """Every point was measured five times or more; its median counts. All of a batch begin and end together."""
    times: dict[tuple[str, int, int, int], list[float]] = defaultdict(list)
    for row in rows:
        name = SPLITWISE.get((row["model"], row["hardware"], row["tensor_parallel"]))
        if name is not None:
            point = (name, int(row["prompt_size"]), int(row["token_size"]), int(row["batch_size"]))
            times[point].append(float(row["token_time"]) / 1000)
    for (name, prompt, output, batch), seconds in times.items():
        yield Measured(name, prompt, output, batch, median(seconds), together=True)


def write(rows: list[Measured], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            lengths = (row.hardware, row.prompt_tokens, row.output_tokens, row.concurrency)
            writer.writerow((*lengths, f"{1000 * row.tpot_seconds:.3f}", int(row.together)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    rows = read(arguments.folder)
    if not rows:
        sys.exit(f"{arguments.folder}: no CSV with measurements of {', '.join(HARDWARE)}")
    figures = []
    for name, hardware in HARDWARE.items():
        own = [row for row in rows if row.hardware == name]
        if not own:
            say(f"{name}: no rows")
            continue
        found = errors(hardware, own)
        cost = fit(own)
        say(
            f"{name}: {len(own)} rows, TPOT error median {median_error(found):.1%}, worst {max(found, key=abs):+.1%}, "
            f"mean {sum(found) / len(found):+.1%}; fitted a {cost.base_ms:.2f}, b {cost.per_sequence_ms:.3f}, "
            f"c {cost.per_context_token_ms:.7f}, d {cost.per_prefill_token_ms:.4f}"
        )
        figures.append(median_error(found))
    if arguments.write:
        write(rows, arguments.write)
    say(f"result: models={len(figures)} worst_median_error={max(figures):.3f}")


if __name__ == "__main__":
    main()
