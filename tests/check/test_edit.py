"""Corrections leave everything else as it is: a property over generated layouts, and the places that are awkward."""

from __future__ import annotations

from textwrap import dedent

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.check.edit import Edit, Insert, Remove, Rename, Write, corrected
from scaler.check.manifest import Manifest, read_content

BLOCK = dedent("""\
    kind: X  # kind
    spec:
      a: 1   # one
      # about b
      b:
        c: |
          text

        d: [1, 2]
      list:
      - first: x
        second: y   # two

      - third
    tail: {x: 1, y: {z: 2}}   # end
    """)


def edited(text: str, *edits: Edit) -> str:
    [manifest] = read_content("f", text).manifests
    return corrected(text, [(manifest, edit) for edit in edits])


def value(text: str) -> object:
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (Write(("spec", "a"), "2"), "a: 1", "a: 2"),
        (Write(("tail", "y", "z"), '"q"'), "z: 2", 'z: "q"'),
        (Rename(("spec", "a"), "aa"), "a: 1", "aa: 1"),
        (Remove(("spec", "a")), "  a: 1   # one\n", ""),
        (Remove(("spec", "b")), "  b:\n    c: |\n      text\n\n    d: [1, 2]\n", ""),
        (Remove(("spec", "list", 0, "first")), "first: x\n    second", "second"),
        (Remove(("spec", "list", 0, "second")), "    second: y   # two\n", ""),
        (Remove(("tail", "x")), "{x: 1, y", "{y"),
        (Remove(("tail", "y")), ", y: {z: 2}", ""),
        (Remove(("tail", "y", "z")), "{z: 2}", "{}"),
        (Insert(("spec",), "new: 3", after="a"), "# one\n", "# one\n  new: 3\n"),
        (Insert(("spec", "b"), "e:\n  f: 1"), "d: [1, 2]\n", "d: [1, 2]\n    e:\n      f: 1\n"),
        (Insert(("spec", "b"), "e: 1", after="c"), "text\n\n", "text\n\n    e: 1\n"),
        (Insert(("spec", "list", 0), "e: 1"), "# two\n", "# two\n    e: 1\n"),
        (Insert(("tail",), "e: [1]"), "{x: 1,", "{e: [1], x: 1,"),
        (Insert((), "e: 1"), "# end\n", "# end\ne: 1\n"),
    ],
)
def test_an_edit_changes_its_place_only(edit: Edit, old: str, new: str) -> None:
    assert old in BLOCK
    assert edited(BLOCK, edit) == BLOCK.replace(old, new, 1)


@pytest.mark.parametrize("edit", [Write(("no",), "1"), Remove(("spec", "no")), Insert(("spec", "a"), "b: 1")])
def test_a_place_that_is_not_there_changes_nothing(edit: Edit) -> None:
    assert edited(BLOCK, edit) == BLOCK


def test_what_lies_in_something_removed_falls_away() -> None:
    text = edited(BLOCK, Remove(("spec", "b")), Write(("spec", "b", "d"), "3"), Rename(("spec", "b", "c"), "x"))
    assert text == edited(BLOCK, Remove(("spec", "b")))


def test_a_file_without_a_last_newline() -> None:
    assert value(edited("kind: X\nspec:\n  a: 1", Insert(("spec",), "b: 2"))) == {"kind": "X", "spec": {"a": 1, "b": 2}}
    assert value(edited("kind: X\nspec:\n  a: 1\n  b: 2", Remove(("spec", "b")))) == {"kind": "X", "spec": {"a": 1}}


KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
LEAVES = st.one_of(st.integers(0, 99), st.sampled_from(["text", "two words", "multi\nline\n", "true", "", "- x", "#"]))
TREES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.dictionaries(KEYS, inner), st.lists(inner, max_size=3)), max_leaves=12
)


@settings(max_examples=150)
@given(st.dictionaries(KEYS, TREES, min_size=1), st.sampled_from([None, True, False]), st.data())
def test_of_any_document_exactly_the_entry_is_removed_or_added(
    tree: dict[str, object], flow: bool | None, data: st.DataObject
) -> None:
    document = {"kind": "X", **tree}
    text = yaml.safe_dump(document, default_flow_style=flow, sort_keys=False)
    [manifest] = read_content("f", text).manifests
    mappings = list(_mappings(document, ()))
    path, mapping = data.draw(st.sampled_from(mappings))
    if mapping and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(mapping)))
        edit: Edit = Remove((*path, key))
        del mapping[key]
    else:
        edit = Insert(path, "new:\n  x: 1")
        mapping["new"] = {"x": 1}
    after = corrected(text, [(manifest, edit)])
    assert after == text or _same(yaml.safe_load(after), document)


def test_nearly_every_edit_is_made() -> None:
    """The property above allows an edit to be left undone; this says where that is so."""
    text = "kind: X\nlist:\n- only: 1\n"
    assert edited(text, Remove(("list", 0, "only"))) == text


def _mappings(value: object, path: tuple[str | int, ...]) -> object:
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from _mappings(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _mappings(inner, (*path, index))


def _same(one: object, other: object) -> bool:
    """Equal, where a mapping whose last entry was removed may read as null."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other or (one is None and other == {})


def test_manifest_says_what_is_written() -> None:
    [manifest] = read_content("f", "kind: X\na: 'quoted'\n").manifests
    assert isinstance(manifest, Manifest)
    assert manifest.written(("a",)) == "'quoted'"
    assert manifest.written(("b",)) == ""
