"""A figure that the README or the design notes give is one that was measured: the page with its command has it too."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

MEASURED = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("docs/lab.md", "benchmarks/README.md"))
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w]|\.\d)")
TOLD = {float(number.replace(",", "")) for number in _NUMBER.findall(MEASURED)}


def rows() -> list[tuple[str, str]]:
    """(figure, command) of each row of the README's table of results."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## What was measured\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    return [(figure, command.strip("`")) for _, figure, command in cells[2:]]


def decimals(page: str) -> list[str]:
    """Numbers with a fraction: what is measured, and not counted or declared."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return sorted({number for number in _NUMBER.findall(text) if "." in number})


def is_measured(number: str) -> bool:
    """Whether one of the figures told there is this one, rounded as it is here, or as a share of one."""
    value, digits = float(number.replace(",", "")), len(number.partition(".")[2])
    return any(value in (round(told, digits), round(100 * told, digits)) for told in TOLD)


@pytest.mark.parametrize(("figure", "command"), rows())
def test_a_result_is_one_that_was_measured(figure: str, command: str) -> None:
    wrong = [number for number in _NUMBER.findall(figure) if not is_measured(number)]
    assert wrong == [], f"no figure of docs/lab.md or benchmarks/README.md; run {command}, and write it in both"


@pytest.mark.parametrize(("figure", "command"), rows())
def test_a_result_names_the_command_that_gives_it(figure: str, command: str) -> None:
    if command.startswith("loadtide score"):
        assert (ROOT / "benchmarks" / "scorecard.json").exists()
        return
    name = command.removeprefix("python -m benchmarks.").removeprefix("make bench NAME=").split()[0]
    assert (ROOT / "benchmarks" / f"{name}.py").exists(), command
    assert f"## {name}" in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", decimals("docs/design-notes.md"))
def test_a_figure_of_the_design_notes_is_one_that_was_measured(number: str) -> None:
    assert is_measured(number), f"docs/design-notes.md says {number}; docs/lab.md and benchmarks/README.md do not"
