"""What can be said of the page without a browser: what it is served as, and that it asks nobody but us."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from importlib import resources

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry

from scaler.serve.http import make_app, start_http
from tests.serve.tide import FakeWorkloads

FILES = {file.name: file.read_text() for file in resources.files("scaler.serve").joinpath("page").iterdir()}
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
#: As for any other file of the project.
LONGEST_LINES = 250


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    app = make_app(FakeWorkloads(), token=None, registry=CollectorRegistry(), stopping=asyncio.Event())
    runner, port = await start_http(app, "127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await runner.cleanup()


@pytest.mark.parametrize("name", FILES)
async def test_each_file_is_served_as_what_it_is_and_asked_for_anew_after_an_upgrade(
    session: ClientSession, name: str
) -> None:
    async with session.get("/" if name == "index.html" else f"/page/{name}") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == f"{KINDS[name.rpartition('.')[2]]}; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert await answer.text() == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_no_file_asks_anybody_else(name: str) -> None:
    text = FILES[name]
    for foreign in ("https://", "//cdn", "@import", "url(", "import("):
        assert foreign not in text
    assert text.count("http://") == text.count("http://www.w3.org/2000/svg")


@pytest.mark.parametrize("name", FILES)
def test_no_text_becomes_markup_or_code(name: str) -> None:
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in FILES[name]


def test_nothing_is_written_inline_and_everything_named_is_there() -> None:
    page = FILES["index.html"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page)
    assert set(re.findall(r'(?:src|href)="page/([^"]+)"', page)) <= FILES.keys()
    for text in FILES.values():
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= FILES.keys()


def test_every_element_that_the_scripts_look_for_is_in_the_page() -> None:
    made_by_scripts = {"fact-age"}
    wanted = {name for text in FILES.values() for name in re.findall(r'element\("([a-z-]+)"\)', text)}
    there = set(re.findall(r'\bid="([a-z-]+)"', FILES["index.html"]))
    assert wanted - made_by_scripts <= there


def test_the_files_are_as_short_as_any_other() -> None:
    assert {name: text.count("\n") for name, text in FILES.items() if text.count("\n") > LONGEST_LINES} == {}
