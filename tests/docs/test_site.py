"""The documentation as a site: it is built strictly, every page has its place, and it loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scaler.policy.keys import GROUPS, KEYS
from tests.docs.building import built_site
from tests.docs.pages import ROOT, pages

NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
REFERENCE = tuple(f"docs/reference/{path.name}" for path in (ROOT / "docs" / "reference").glob("*.md"))
#: Groups and keys of other things that look like policy keys.
NOT_KEYS = {"gpu.dcgm", "memory.db", "policy.yaml"}


def listed(part: object) -> list[str]:
    """The pages that a part of the navigation names."""
    if isinstance(part, str):
        return [part]
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    return [page for each in inner for page in listed(each)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_site(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("page", [*(page for page in pages() if page.startswith("docs/")), *REFERENCE])
def test_a_page_has_its_place_in_the_navigation(page: str) -> None:
    name = page.removeprefix("docs/")
    assert name in listed(yaml.safe_load(NAV)["nav"]), (
        f"{page} is in no place of the site: add a line `- TITLE: {name}` under nav in mkdocs.yml, "
        f"in the section whose readers it is for"
    )


def test_every_place_in_the_navigation_has_its_page() -> None:
    for name in listed(yaml.safe_load(NAV)["nav"]):
        inside, _, path = name.partition("repository/")
        assert (ROOT / path if not inside else ROOT / "docs" / name).exists(), f"mkdocs.yml's nav names {name}"


def test_what_pages_link_to_in_the_repository_is_on_the_site(site: Path) -> None:
    """A file that is no Markdown becomes a page that shows it, a folder one that lists it."""
    policy = (site / "repository/deploy/examples/policy.yaml/index.html").read_text(encoding="utf-8")
    assert "office-hours" in policy
    examples = (site / "repository/deploy/examples/index.html").read_text(encoding="utf-8")
    assert 'href="policy.yaml/"' in examples
    assert (site / "repository/rules/runbooks/StoreDown/index.html").exists()


def test_nothing_in_the_site_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")
    for page in site.rglob("*.html"):
        assert loaded.findall(page.read_text(encoding="utf-8")) == [], page


def test_no_block_of_code_is_left_as_text(site: Path) -> None:
    """A fence inside a list needs four columns; with fewer it shows as text."""
    for page in site.rglob("*.html"):
        prose = re.sub(r"<(code|pre)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "```" not in prose, page


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/")])
def test_every_policy_key_named_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    dotted = {key.dotted for key in KEYS.values()}
    named = {
        name
        for name in re.findall(r"`([a-z]+\.[a-z_]+)(?::[^`]*)?`", text)
        if name.partition(".")[0] in GROUPS and name not in NOT_KEYS
    }
    assert {name for name in named if not any(key == name or key.startswith(f"{name}.") for key in dotted)} == set()
