"""What the audit makes of pip-audit's answers: above all, no answer is not a good one."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.deploy.tools import REPOSITORY


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", REPOSITORY / "deploy" / "image" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["audit"] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def clean(name: str) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": []}


def vulnerable(name: str, *fixed: str) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": list(fixed)}]}


def skipped(name: str) -> dict[str, Any]:
    return {"name": name, "skip_reason": f"Dependency not found on PyPI and could not be audited: {name} (1.0)"}


def test_nothing_known_is_good_where_something_can_be_known(audit: ModuleType) -> None:
    verdict = audit.judged({"dependencies": [clean("aiohttp"), vulnerable("jinja2", "2.10.1")]})
    assert (verdict.status, "1 packages" in verdict.text) == (0, True)


def test_an_index_without_advisories_is_no_pass(audit: ModuleType) -> None:
    """pip-audit itself ends with 0 and "No known vulnerabilities found" here."""
    verdict = audit.judged({"dependencies": [skipped("aiohttp"), skipped("jinja2")]})
    assert verdict.status == audit.NOT_AUDITED
    assert "NOT AUDITED" in verdict.text
    assert "not found on PyPI" in verdict.text


def test_nor_is_one_that_knows_of_nothing(audit: ModuleType) -> None:
    assert audit.judged({"dependencies": [clean("aiohttp"), clean("jinja2")]}).status == audit.NOT_AUDITED


def test_what_is_known_is_told_with_what_mends_it(audit: ModuleType) -> None:
    verdict = audit.judged({"dependencies": [vulnerable("aiohttp", "1.1"), vulnerable("jinja2")]})
    assert verdict.status == 1
    assert "aiohttp 1.0: PYSEC-2019-217, fixed in 1.1" in verdict.text


def test_one_that_could_not_be_judged_is_not_passed_over(audit: ModuleType) -> None:
    verdict = audit.judged({"dependencies": [clean("aiohttp"), skipped("grpcio"), vulnerable("jinja2")]})
    assert verdict.status == 1
    assert "grpcio" in verdict.text


def test_the_bill_of_materials_has_every_locked_package(audit: ModuleType) -> None:
    bill = json.loads(audit.bill_of_materials("9.9.9"))
    locked = [line.split()[0] for line in audit.LOCK.read_text().splitlines() if "==" in line]
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"] == "9.9.9"
    assert {each["purl"] for each in bill["components"]} == {
        f"pkg:pypi/{name}@{number}" for name, _, number in (pin.partition("==") for pin in locked)
    }
