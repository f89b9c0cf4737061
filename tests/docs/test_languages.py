"""The Chinese README says what the English one says, as far as a program can tell: blocks, links, figures, headings."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, blocks_of

ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def links(page: str) -> list[str]:
    """What the page links to and shows, but for the other language."""
    found = re.findall(r"\]\(([^)\s]+)\)", text(page))
    return [link for link in found if link not in (ENGLISH, CHINESE)]


def prose_parts(page: str) -> list[str]:
    """The page without its blocks, divided at its headings."""
    return re.split(r"^## .*$", re.sub(r"^```.*?^```$", "", text(page), flags=re.MULTILINE | re.DOTALL), flags=re.M)


def spans(markdown: str) -> list[str]:
    return sorted(" ".join(span.split()) for span in re.findall(r"`([^`]+)`", markdown))


def test_each_links_to_the_other() -> None:
    assert f"]({CHINESE})" in text(ENGLISH)
    assert f"]({ENGLISH})" in text(CHINESE)


def test_blocks_of_code_are_the_same() -> None:
    said = [(block.language, block.text) for block in blocks_of(ENGLISH)]
    assert len(said) > 5
    assert said == [(block.language, block.text) for block in blocks_of(CHINESE)]


def test_links_are_the_same_and_in_the_same_order() -> None:
    assert links(CHINESE) == links(ENGLISH)


def test_sections_are_the_same_in_number() -> None:
    assert len(prose_parts(CHINESE)) == len(prose_parts(ENGLISH))


@pytest.mark.parametrize("section", range(len(prose_parts(ENGLISH))))
def test_a_section_has_the_same_figures_and_code(section: int) -> None:
    """Each number and each span of code of the one is in the same section of the other."""
    english, chinese = prose_parts(ENGLISH)[section], prose_parts(CHINESE)[section]
    assert spans(chinese) == spans(english)
    assert sorted(_NUMBER.findall(chinese)) == sorted(_NUMBER.findall(english))
