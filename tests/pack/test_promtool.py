"""The rules in a real Prometheus' own tools: they load, and every alert does what its cases say (G6-04)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scaler.pack.model import Options
from scaler.pack.rules import SOURCES
from scaler.pack.written import alerts, prometheus_rules
from tests.pack.cases.written import RULES
from tests.pack.closure import resting_on
from tests.pack.promtool import RELEASES, run

pytestmark = pytest.mark.real

PACK = RULES / "loadtide.rules.yaml"
DOCUMENT = yaml.safe_load(PACK.read_text())
NAMES = sorted({alert.name for alert in alerts(Options())})


def check(path: Path, release: str = "2") -> None:
    status, said = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", path, release=release)
    assert status == 0, said


@pytest.mark.parametrize("release", RELEASES)
def test_prometheus_loads_the_pack(release: str) -> None:
    check(PACK, release)


@pytest.mark.parametrize("source", [*SOURCES, ",".join(SOURCES)])
def test_prometheus_loads_the_pack_without_a_source(source: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(prometheus_rules(Options(without=frozenset(source.split(",")))))
    check(path)


def test_prometheus_loads_the_pack_with_every_wait_shortened(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(prometheus_rules(Options(), shortened=60))
    check(path)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_when_its_cases_say_and_not_before(name: str, release: str, tmp_path: Path) -> None:
    """On the rules that it rests on, word for word: the others only cost time."""
    files = list(_copied(name, tmp_path))
    assert files, f"no cases of {name}"
    (tmp_path / PACK.name).write_text(json.dumps(resting_on(DOCUMENT, {name})))  # which is YAML too
    status, said = run("promtool", "test", "rules", *files, release=release)
    assert status == 0, said


@pytest.mark.parametrize("release", RELEASES)
def test_series_are_normalised(release: str, tmp_path: Path) -> None:
    (tmp_path / PACK.name).write_text(PACK.read_text())
    status, said = run("promtool", "test", "rules", *_copied("Normalising", tmp_path), release=release)
    assert status == 0, said


def _copied(name: str, folder: Path) -> Iterator[Path]:
    (folder / "tests").mkdir()
    for pattern in (f"{name}.yaml", f"{name}.every*.yaml"):
        for path in (RULES / "tests").glob(pattern):
            copy = folder / "tests" / path.name
            copy.write_text(path.read_text())
            yield copy
