"""How good the rule tests are: every comparison, number, range, ``for`` and ``keep_firing_for`` is changed once, and
the tests of the alerts that rest on it must notice. ``python rules/mutate.py [RULE...]``; needs promtool and an hour.

A comparison becomes its neighbour (``>`` and ``>=``, ``==`` and ``!=``), a number a tenth more and a tenth less (one
more and one less, if it is a count below ten), a duration and a range half and double. What no test catches is listed,
and ends the run with 1 unless it is among the EQUIVALENT, which say why no test can.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.pack.closure import misnamed, name_of, read_by, resting_on  # noqa: E402

RULES = ROOT / "rules" / "loadtide.rules.yaml"
TESTS = ROOT / "rules" / "tests"
PARALLEL = 2

_NEIGHBOUR = {">": ">=", ">=": ">", "<": "<=", "<=": "<", "==": "!=", "!=": "=="}
# Strings and matchers hold no threshold; what is left is a range (of a subquery without its step), a comparison, or a
# number that is no part of a name.
_SKIPPED = r'"(?:[^"\\]|\\.)*"|\{[^}]*\}'
_SITE = re.compile(
    rf"(?P<skip>{_SKIPPED})|\[(?P<range>\d+[smhd])(?P<step>:\w*)?\]|(?P<compare>[<>]=?|[=!]=)"
    r"|(?P<number>(?<![\w:.])\d+(?:\.\d+)?(?![\w:.]))"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

#: Changes that mean the same: (rule, a part of the change) and why no test can tell.
EQUIVALENT: tuple[tuple[str, str, str], ...] = (
    ("workload_pod_gpu:memory_mebibytes:total", "< → <=", "no card has exactly 100 TB"),
    ("workload_pod_gpu:memory_mebibytes:total", "< 100000000", "anything between a card's size and 2^63 will do"),
    ("workload_pod_gpu:memory_mebibytes:total", "> 0 → 1", "no card has less than one MiB"),
    ("workload_pod_gpu:memory_mebibytes:total", "FREE[2m] → [240s]", "of two that look at it the other ends sooner"),
    (
        "workload_pod_gpu:memory_used_ratio:max",
        "USED[2m] → [240s]",
        "what it is divided by ends too",
    ),
    (
        "workload_pod_gpu:memory_free_ratio:min",
        "FREE[2m] → [240s]",
        "what it is divided by ends too",
    ),
    (
        "VramExhausted",
        "increase10m > 0 → 1",
        "one restart is a little more than one: increase() goes on to the window's ends",
    ),
    ("LatencyBudgetBurn", "> → >=", "a quantile, interpolated, that is exactly the objective in one window only"),
)


@dataclass(frozen=True)
class Mutant:
    """One change of one rule: where the rule stands, what is changed, and the rule afterwards."""

    group: int
    index: int
    rule: str
    change: str
    changed: dict[str, Any]


def mutants(document: dict[str, Any]) -> Iterator[Mutant]:
    """Every change, in the order of the file."""
    for group, each in enumerate(document["groups"]):
        for index, rule in enumerate(each["rules"]):
            for key, change, value in _changes(rule):
                yield Mutant(group, index, name_of(rule), f"{key}: {change}", {**rule, key: value})


def _changes(rule: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    expr = rule["expr"]
    for site in _SITE.finditer(expr):
        if site["compare"]:
            others: Iterable[str] = (_NEIGHBOUR[site["compare"]],)
        elif site["range"]:
            seconds, step = _seconds(site["range"]), site["step"] or ""
            others = (f"[{seconds // 2}s{step}]", f"[{seconds * 2}s{step}]")
        elif site["number"]:
            number = float(site["number"])
            count = number.is_integer() and number < 10
            others = (f"{number + 1:g}", f"({number - 1:g})") if count else _nearby(number)
        else:
            continue
        for other in others:
            before = expr[max(0, site.start() - 40) : site.start()].replace("\n", " ")
            yield "expr", f"…{before}{site[0]} → {other}", expr[: site.start()] + other + expr[site.end() :]
    for key in ("for", "keep_firing_for"):
        if key in rule:
            seconds = _seconds(rule[key])
            # Rules are tried every minute: less than that is not to be seen.
            for other in (f"{seconds // 120 * 60}s", f"{seconds * 2}s") if seconds else ("60s",):
                yield key, f"{rule[key]} → {other}", other


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def _nearby(number: float) -> tuple[str, str]:
    return f"{number * 1.1:g}", f"{number * 0.9:g}"


def survives(document: dict[str, Any], mutant: Mutant) -> bool:
    """Whether every test that could notice passes with the change."""
    if misnamed(mutant.changed):
        return False  # tests/pack/test_rules.py
    changed = copy.deepcopy(document)
    changed["groups"][mutant.group]["rules"][mutant.index] = mutant.changed
    for name in (*read_by(document, mutant.rule), "Normalising"):
        files = sorted(TESTS.glob(f"{name}.yaml")) + sorted(TESTS.glob(f"{name}.every*.yaml"))
        part = changed if name == "Normalising" else resting_on(changed, {name})
        if name == "Normalising" and "alert" in mutant.changed:
            continue
        if files and not passes(part, files):
            return False
    return True


def passes(document: dict[str, Any], files: Iterable[Path]) -> bool:
    """Whether promtool passes the test files on these rules."""
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder) / "tests"
        tests.mkdir()
        (Path(folder) / RULES.name).write_text(json.dumps(document))  # which is YAML too, and quick to write
        copies = []
        for file in files:
            copies.append(tests / file.name)
            copies[-1].write_text(file.read_text())
        run = subprocess.run(["promtool", "test", "rules", *map(str, copies)], capture_output=True, check=False)
    return run.returncode == 0


def main(only: set[str]) -> int:
    """Print what survives; 1 where something does that is not explained."""
    document = yaml.safe_load(RULES.read_text())
    chosen = [each for each in mutants(document) if not only or each.rule in only]
    alive = unexplained = 0
    with ThreadPoolExecutor(PARALLEL) as pool:
        for mutant, lives in zip(chosen, pool.map(lambda each: survives(document, each), chosen), strict=True):
            if not lives:
                continue
            why = next((why for rule, part, why in EQUIVALENT if rule == mutant.rule and part in mutant.change), None)
            alive, unexplained = alive + 1, unexplained + (why is None)
            said = "SURVIVES" if why is None else f"equivalent ({why})"
            print(f"{said}: {mutant.rule}: {mutant.change}", flush=True)  # noqa: T201 - a script
    print(f"{len(chosen)} changes, {alive} not caught, {unexplained} of these unexplained")  # noqa: T201
    return 1 if unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main(set(sys.argv[1:])))
