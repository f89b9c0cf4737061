"""docs/reference is what the code says now, whole: no key, metric, route, command or word without its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from scaler.cli import app
from scaler.control.model import Code
from scaler.pack.model import Options
from scaler.pack.reference.markdown import sentence, table
from scaler.pack.reference.written import pages
from scaler.pack.written import alerts
from scaler.policy.keys import KEYS
from scaler.serve.gauges import GAUGES
from scaler.signals.gateway_preset import known_gateways
from scaler.signals.model import CATALOG
from scaler.signals.preset import FAMILIES, OPTIONAL, known_engines

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = pages()


def first_column(page: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", PAGES[page], re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_the_generated_one(name: str) -> None:
    path = FOLDER / name
    assert path.exists(), f"docs/reference/{name} is missing; write it with: python -m scaler.pack.reference"
    assert path.read_text(encoding="utf-8") == PAGES[name], (
        f"docs/reference/{name} is not what the code says now; write it anew with: python -m scaler.pack.reference"
    )


def test_no_page_is_left_from_before() -> None:
    assert {path.name for path in FOLDER.iterdir()} == PAGES.keys()


def test_every_engine_tells_of_every_quantity() -> None:
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGES["engines.md"], re.MULTILINE | re.DOTALL))
    for engine in known_engines():
        told = set(re.findall(r"^\| `(\w+)` \|", sections[engine], re.MULTILINE))
        assert FAMILIES.keys() - OPTIONAL <= told, engine
    assert set(known_gateways()) <= first_column("engines.md")


def test_every_alert_has_its_line_and_a_runbook_behind_it() -> None:
    linked = re.findall(r"^\| \[\w+\]\(([^)]+)\)", PAGES["alerts.md"], re.MULTILINE)
    assert {Path(link).stem for link in linked} == {alert.name for alert in alerts(Options())}
    assert [link for link in linked if not (FOLDER / link).exists()] == []
    assert "$labels" not in PAGES["alerts.md"]


def test_every_key_metric_command_signal_and_code_has_its_line() -> None:
    assert {key.dotted for key in KEYS.values()} <= first_column("policy.md")
    assert {f"loadtide_{name}" for name in GAUGES} <= first_column("metrics.md")
    assert CATALOG.keys() | {code.value for code in Code} <= first_column("words.md")
    named = set(re.findall(r"^## loadtide (\w+)$", PAGES["commands.md"], re.MULTILINE))
    assert named == getattr(get_command(app), "commands", {}).keys()


@pytest.mark.parametrize("name", PAGES)
def test_every_line_says_what_it_means(name: str) -> None:
    rows = [line for line in PAGES[name].splitlines() if line.startswith(("| `", "| ["))]
    assert rows
    assert [line for line in rows if re.search(r"\| *\|$", line)] == []


def test_every_metric_that_a_page_names_is_in_the_reference() -> None:
    root = FOLDER.parents[1]
    pages = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("rules/**/*.md"), *root.glob("d*/README.md")]
    listed = first_column("metrics.md")
    # A model's parameter for Triton, and what the plugin adds to an engine's page.
    listed |= {"loadtide_before", "loadtide_engine_batch_size"}
    for page in pages:
        # Not what goes on (`loadtide_agent_*`), nor a file or a module.
        for name in re.findall(r"(?<![\w./])(loadtide_[a-z_]*[a-z])(?![\w*.])", page.read_text(encoding="utf-8")):
            assert name in listed, f"{page.relative_to(root)} names {name}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the count is high", "The count is high."),
        ("metricType is not AverageValue", "metricType is not AverageValue."),
        ("fallback.replicas is 0", "fallback.replicas is 0."),
        ("Asks no cluster.", "Asks no cluster."),
    ],
)
def test_a_name_keeps_its_spelling_at_the_beginning_of_a_sentence(text: str, said: str) -> None:
    assert sentence(text) == said


def test_a_pipe_in_a_cell_divides_nothing() -> None:
    assert table(("a", "b"), [("x|y", "z\n  w")]) == "| a | b |\n| --- | --- |\n| x\\|y | z w |\n"
