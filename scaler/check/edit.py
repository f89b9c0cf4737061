"""Corrections of a YAML text that leave everything else as it is: comments, order, quoting and layout.

A correction replaces, inserts or removes one entry where it stands. Writing the document anew from its values would
lose what its author wrote around them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from textwrap import indent
from typing import NamedTuple, TypeAlias

import yaml

from scaler.check.manifest import Manifest
from scaler.policy.document import Span
from scaler.policy.keys import Path
from scaler.value import frozen


@frozen
class Write:
    """The scalar at ``path`` becomes ``text``."""

    path: Path
    text: str


@frozen
class Rename:
    """The key at ``path`` becomes ``key``."""

    path: Path
    key: str


@frozen
class Remove:
    """The entry at ``path`` goes, with everything under it."""

    path: Path


@frozen
class Insert:
    """The mapping at ``parent`` gets the entries of ``text`` (block YAML), behind its entry ``after`` or at its end."""

    parent: Path
    text: str
    after: str | None = None


Edit: TypeAlias = Write | Rename | Remove | Insert


class _Replacement(NamedTuple):
    start: int
    end: int
    text: str


def corrected(text: str, edits: Iterable[tuple[Manifest, Edit]]) -> str:
    """``text`` with the edits made, each in a manifest of this text. One inside a removed entry falls away; of two at
    one place the first is made.
    """
    replacements = {found for manifest, edit in edits if (found := _replacement(manifest, edit)) is not None}
    pieces, done, written = [], 0, 0
    for start, end, new in sorted(replacements, key=_order):
        if start < done or (start == end and start < written):
            continue
        pieces += [text[written:start], new]
        written, done = end, end
    return "".join([*pieces, text[written:]])


def _order(replacement: _Replacement) -> tuple[int, int, int, str]:
    """From the start of the text. Of two insertions at one place the deeper one belongs to what is there: first."""
    new = replacement.text.lstrip("\n")
    return replacement.start, -replacement.end, -(len(new) - len(new.lstrip(" "))), new


def _replacement(manifest: Manifest, edit: Edit) -> _Replacement | None:
    """The edit as offsets into the text; None where the place is not there."""
    span = manifest.span(edit.parent if isinstance(edit, Insert) else edit.path)
    if span is None:
        return None
    match edit:
        case Write(text=text):
            return _Replacement(span.start, span.end, text if span.start > span.key_end + 1 else f" {text}")
        case Rename(key=key):
            return _Replacement(span.key_start, span.key_end, key)
        case Remove(path=path):
            return _removal(manifest, path, span)
        case Insert():
            return _insertion(manifest, edit, span)


def _insertion(manifest: Manifest, edit: Insert, parent: Span) -> _Replacement | None:
    if parent.style == "flow":
        entries = yaml.safe_load(edit.text)
        flow = ", ".join(f"{key}: {json.dumps(value)}" for key, value in entries.items())
        more = ", " if manifest.get(*edit.parent) else ""
        return _Replacement(parent.start + 1, parent.start + 1, flow + more)
    entries = _entries(manifest, edit.parent)
    if not entries:
        return None
    first = min(entries.values(), key=lambda span: span.key_start)
    last = max(entries, key=lambda name: entries[name].key_start)
    after = edit.after if edit.after in entries else last
    end = _content_end(manifest, (*edit.parent, after))
    lines = indent(edit.text.strip("\n"), " " * _column(manifest.text, first.key_start))
    if manifest.text[end - 1] == "\n":  # behind a block text, whose end is the next line's beginning
        return _Replacement(end, end, f"{lines}\n")
    line_end = _line_end(manifest.text, end)
    return _Replacement(line_end, line_end, f"\n{lines}")


def _removal(manifest: Manifest, path: Path, span: Span) -> _Replacement | None:
    siblings = sorted(_entries(manifest, path[:-1]).values(), key=lambda each: each.key_start)
    following = next((each for each in siblings if each.key_start > span.key_start), None)
    parent = manifest.span(path[:-1])
    if parent is not None and parent.style == "flow":
        before = next((each for each in reversed(siblings) if each.key_start < span.key_start), None)
        if following is not None:
            return _Replacement(span.key_start, following.key_start, "")
        return _Replacement(before.end if before else span.key_start, span.end, "")
    line_start = manifest.text.rfind("\n", 0, span.key_start) + 1
    if manifest.text[line_start : span.key_start].strip():  # the first key of a list's item, behind its dash
        return _Replacement(span.key_start, following.key_start, "") if following else None
    end = _content_end(manifest, path)
    line_end = end if manifest.text[end - 1] == "\n" else _line_end(manifest.text, end) + 1
    return _Replacement(line_start, line_end, "")


def _entries(manifest: Manifest, path: Path) -> dict[str, Span]:
    """The entries of the mapping at ``path`` that stand inside it, not those an alias brought in."""
    parent = manifest.span(path)
    found = {name: manifest.span((*path, name)) for name in manifest.mapping(*path)}
    return {
        name: span
        for name, span in found.items()
        if span is not None and parent is not None and parent.start <= span.key_start < parent.end
    }


def _content_end(manifest: Manifest, path: Path) -> int:
    """Where the value at ``path`` ends: a block collection's own mark lies behind the comments that follow it."""
    span, value = manifest.span(path), manifest.get(*path)
    assert span is not None
    if span.style != "block" or not isinstance(value, Mapping | list) or not value:
        return span.end
    parts = value if isinstance(value, Mapping) else range(len(value))
    inside = [(*path, part) for part in parts]
    ends = [_content_end(manifest, each) for each in inside if (at := manifest.span(each)) and at.end <= span.end]
    return max(ends, default=span.end)


def _column(text: str, offset: int) -> int:
    return offset - (text.rfind("\n", 0, offset) + 1)


def _line_end(text: str, offset: int) -> int:
    found = text.find("\n", offset)
    return len(text) if found < 0 else found
