"""What we give people to start from passes our own check."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler.check.examine import examine

EXAMPLES = sorted((Path(__file__).parents[2] / "deploy" / "examples").glob("*.yaml"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_no_findings(path: Path) -> None:
    assert examine({path.name: path.read_text(encoding="utf-8")}) == []


def test_all_of_them_together_agree() -> None:
    assert examine({path.name: path.read_text(encoding="utf-8") for path in EXAMPLES}) == []
