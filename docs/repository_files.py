"""mkdocs' hook: what pages link to outside docs/ becomes a page of the site, so that one link serves both.

``../deploy/examples/policy.yaml`` is on the site as ``repository/deploy/examples/policy.yaml``, highlighted; a folder
shows its README, else what is in it. Links inside such pages are followed as well.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: The folder of the site in which files of the repository stand, by their paths.
PLACE = "repository"
_FENCED = re.compile(r"(^ *(`{3,}).*?^ *\2)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
#: Not in the search: code would drown the pages.
_UNSEARCHED = "---\nsearch: {exclude: true}\n---\n\n"
_LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".json": "json", ".toml": "toml", ".proto": "protobuf"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for everything outside docs/ that a page, or a page so added, links to."""
    from mkdocs.structure.files import File, InclusionLevel

    asked = [item for item in _strings(config.nav) if item.startswith(f"{PLACE}/")]
    waiting = [item.removeprefix(f"{PLACE}/") for item in asked]
    for file in files.documentation_pages():
        waiting += outside(file.content_string, f"docs/{file.src_uri}")
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(page_of(path)) is not None or not (ROOT / path).exists():
            continue
        text = content(path)
        files.append(
            File.generated(config, page_of(path), content=relinked(text, path), inclusion=InclusionLevel.NOT_IN_NAV)
        )
        waiting += outside(text, path)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Links of docs/ that leave it, to the pages made of what they lead to."""
    if page.file.src_uri.startswith(f"{PLACE}/"):
        return markdown
    return relinked(markdown, f"docs/{page.file.src_uri}")


def content(path: str) -> str:
    """The page made of a file or a folder of the repository."""
    there = ROOT / path
    if there.is_dir():
        names = sorted(
            each.name for each in there.iterdir() if each.is_file() and not each.name.startswith((".", "__"))
        )
        return f"# {path}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    text = there.read_text(encoding="utf-8")
    if there.suffix == ".md":
        return text
    fence = "`" * (max([2, *(len(run) for run in re.findall(r"`+", text))]) + 1)
    return f"{_UNSEARCHED}# {path}\n\n{fence}{_LANGUAGES.get(there.suffix, 'text')}\n{text}\n{fence}\n"


def page_of(path: str) -> str:
    """Where the site has a file or a folder of the repository."""
    if (ROOT / path).is_dir():
        return f"{PLACE}/{path}/README.md"
    return f"{PLACE}/{path}" if path.endswith(".md") else f"{PLACE}/{path}.md"


def outside(markdown: str, path: str) -> Iterator[str]:
    """The paths outside docs/ that a file of the repository links to; of a folder, its README where it has one."""
    found: list[str] = []

    def note(target: str) -> str | None:
        if not target.startswith("docs/"):
            found.append(target)
        return None

    _each_link(markdown, path, note)
    for target in found:
        readme = f"{target}/README.md"
        yield readme if (ROOT / readme).exists() else target


def relinked(markdown: str, path: str) -> str:
    """The text with its links as the site has what they lead to. A file of docs/ keeps its links within docs/."""
    here = path.removeprefix("docs/") if path.startswith("docs/") else page_of(path)

    def to_page(target: str) -> str | None:
        inside = target.startswith("docs/")
        if inside and path.startswith("docs/"):
            return None
        page = target.removeprefix("docs/") if inside else page_of(target)
        return posixpath.relpath(page, posixpath.dirname(here) or ".")

    return _each_link(markdown, path, to_page)


def _each_link(markdown: str, path: str, change: Callable[[str], str | None]) -> str:
    """The text with each link to a file of the repository as ``change`` says, given its path; None: left alone. What
    stands in fences is no link.
    """
    folder = path if (ROOT / path).is_dir() else posixpath.dirname(path)

    def one(match: re.Match[str]) -> str:
        if "://" in match[2] or match[2].startswith(("mailto:", "data:")):
            return match[0]
        changed = change(posixpath.normpath(posixpath.join(folder, match[2])))
        return match[0] if changed is None else f"{match[1]}{changed}{match[3] or ''}{match[4]}"

    parts = _FENCED.split(markdown)
    # A split by two groups: text, the fence with all in it, the fence's mark, text, ...
    return "".join(
        _LINK.sub(one, part) if index % 3 == 0 else part for index, part in enumerate(parts) if index % 3 < 2
    )


def _strings(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from (text for each in nav.values() for text in _strings(each))
    elif isinstance(nav, list):
        yield from (text for each in nav for text in _strings(each))
