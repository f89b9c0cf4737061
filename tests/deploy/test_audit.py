"""What the audit makes of pip-audit's answers: above all, no answer is not a good one."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web

from tests.agent.running_agent import beside
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


@pytest.mark.parametrize(
    ("vulnerable_too", "status", "said"),
    [(set(), 0, "nothing is known"), ({"pyyaml"}, 1, "PYSEC-2000-1, fixed in 99.0"), (None, 3, "NOT AUDITED")],
    ids=["clean", "one known", "away"],
)
def test_pip_audit_itself_is_asked_so(
    audit: ModuleType, vulnerable_too: set[str] | None, status: int, said: str
) -> None:
    """The real one, with a stand-in for the service that it asks: its options and its JSON are what is expected."""
    if vulnerable_too is None:
        verdict = audit.asked("http://127.0.0.1:9/v1/query")
    else:
        known = {"jinja2", *vulnerable_too}

        async def query(request: web.Request) -> web.Response:
            name = (await request.json())["package"]["name"]
            return web.json_response({"vulns": [advisory(name)]} if name in known else {})

        with beside([web.post("/v1/query", query)]) as url:
            verdict = audit.asked(f"{url}/v1/query")
    assert verdict.status == status, verdict.text
    assert said in verdict.text


def advisory(name: str) -> dict[str, Any]:
    """In the form of OSV (https://ossf.github.io/osv-schema)."""
    events = [{"introduced": "0"}, {"fixed": "99.0"}]
    package = {"ecosystem": "PyPI", "name": name}
    return {
        "id": "PYSEC-2000-1",
        "published": "2000-01-01T00:00:00Z",
        "details": "not safe",
        "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}], "versions": []}],
    }


def test_the_bill_of_materials_has_every_locked_package(audit: ModuleType) -> None:
    bill = json.loads(audit.bill_of_materials("9.9.9"))
    locked = [line.split()[0] for line in audit.LOCK.read_text().splitlines() if "==" in line]
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"] == "9.9.9"
    assert {each["purl"] for each in bill["components"]} == {
        f"pkg:pypi/{name}@{number}" for name, _, number in (pin.partition("==") for pin in locked)
    }
