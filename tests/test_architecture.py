"""The arrows between the rooms of the house: who may import whom, and what a module may be called.

Imports are read from the source, not run: a local import inside a function counts as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "scaler"
LONGEST_LINES = 350
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}

#: `control` is a pure function: values in, a value out. No clock, files, sockets, threads or logs among these.
PURE_STANDARD_LIBRARY = {
    "__future__",
    "collections.abc",
    "dataclasses",
    "datetime",
    "enum",
    "math",
    "operator",
    "typing",
}
CONTROL_MAY_USE = (
    "scaler.control",
    "scaler.policy.model",
    "scaler.policy.jump",
    "scaler.policy.errors",
    "scaler.signals.model",
    "scaler.value",
)

#: The room may import nothing from these rooms. `cli → serve, lab → control → policy, signals.model`.
FORBIDDEN = {
    "policy": ("scaler.signals", "scaler.control", "scaler.serve", "scaler.lab", "scaler.agent", "scaler.cli"),
    "signals": ("scaler.control", "scaler.serve", "scaler.lab", "scaler.agent", "scaler.cli"),
    "serve": ("scaler.lab", "scaler.agent", "scaler.cli"),
    "lab": ("scaler.serve", "scaler.agent", "scaler.cli"),
    "agent": ("scaler.serve", "scaler.lab", "scaler.cli"),
}

#: These rooms import nothing of ours but themselves: what an engine's side needs, and what every process needs.
ALONE = ("consume", "process")


@cache
def sources() -> tuple[Path, ...]:
    """Our own Python files; generated ones say so in their name."""
    files = (
        path
        for folder in (PACKAGE, ROOT / "tests", ROOT / "proto", ROOT / "benchmarks")
        for path in folder.rglob("*.py")
    )
    return tuple(sorted(path for path in files if "_pb2" not in path.name))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    yield from imported_by(path, path.read_text(encoding="utf-8"))


def imported_by(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import. ``from a import b`` gives ``a.b`` too: b may be a module."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def lies_in(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def files_of(room: str) -> list[Path]:
    files = [path for path in sources() if path.is_relative_to(PACKAGE / room)]
    assert files, f"scaler/{room} has no files: the check would pass for nothing"
    return files


def test_control_imports_nothing_that_does_io() -> None:
    bad = []
    for path in files_of("control"):
        for line, module in imported(path):
            parent = module.rpartition(".")[0]
            pure = module in PURE_STANDARD_LIBRARY or parent in PURE_STANDARD_LIBRARY
            ours = lies_in(module, *CONTROL_MAY_USE) or module in {"scaler.policy", "scaler.signals"}
            if not pure and not ours:
                bad.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert not bad, "\n".join(["control is pure; it may import neither clock nor I/O nor other rooms:", *bad])


def test_control_never_asks_what_time_it_is() -> None:
    """`datetime` is allowed for its arithmetic; its clock is not."""
    clocks = {"now", "utcnow", "today"}
    asked = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files_of("control")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in clocks
    ]
    assert not asked, f"control is told the time, as `now`; it asks for it in {asked}"


@pytest.mark.parametrize("room", FORBIDDEN)
def test_imports_point_one_way(room: str) -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in files_of(room)
        for line, module in imported(path)
        if lies_in(module, *FORBIDDEN[room])
    ]
    assert not bad, "\n".join([f"{room} must not import {', '.join(FORBIDDEN[room])}:", *bad])


@pytest.mark.parametrize("room", ALONE)
def test_some_rooms_stand_alone(room: str) -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in files_of(room)
        for line, module in imported(path)
        if lies_in(module, "scaler") and module != "scaler" and not lies_in(module, f"scaler.{room}")
    ]
    assert not bad, "\n".join([f"{room} must import nothing of ours but itself:", *bad])


def test_the_product_does_not_import_its_tests() -> None:
    product = [path for path in sources() if path.is_relative_to(PACKAGE)]
    assert not [path for path in product for _, module in imported(path) if lies_in(module, "tests", "benchmarks")]


def test_module_names_say_what_is_inside() -> None:
    vague = [
        path.relative_to(ROOT) for path in sources() if VAGUE_NAMES & {path.stem, *path.parent.relative_to(ROOT).parts}
    ]
    assert not vague, f"name these after what is in them: {vague}"


def test_files_have_one_reason_to_exist() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if path.is_relative_to(PACKAGE)
        and (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_LINES
    }
    assert not long, f"over {LONGEST_LINES} lines; look for the second reason in: {long}"


def test_the_reader_of_imports_sees_every_form() -> None:
    """The checks above are worth what this sees."""
    path = PACKAGE / "control" / "imagined.py"
    source = "import os.path\nfrom time import sleep\nfrom ..serve import loop\ndef f():\n    from . import model\n"
    found = {module for _, module in imported_by(path, source)}
    assert {"os.path", "time", "time.sleep", "scaler.serve.loop", "scaler.control.model"} <= found
