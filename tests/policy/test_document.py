"""YAML with lines: scalars as people mean them, and limits."""

from __future__ import annotations

import pytest

from scaler.policy.document import read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("22:00", "22:00"),
        ("08:00", "08:00"),
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("010", 10),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("2026-01-01", "2026-01-01"),
        ("~", None),
        ("'5'", "5"),
        ("!!int abc", "abc"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    assert read(f"key: {text}").value == {"key": value}
    assert type(read(f"key: {text}").value["key"]) is type(value)  # type: ignore[index]


def test_keys_are_texts() -> None:
    assert read("on: 1\n5: 2\nnull: 3").value == {"on": 1, "5": 2, "null": 3}


def test_every_place_has_its_line() -> None:
    document = read("a:\n  b: 1\n\n  c:\n    - 1\n    - d: 2\n")
    assert document.line(("a", "b")) == 2
    assert document.line(("a", "c", 1, "d")) == 6
    assert document.line(("a", "c", 0, "missing", 3)) == 5
    assert document.line(("nowhere",)) == 1


def test_merge_keys_and_aliases_work_and_own_keys_win() -> None:
    document = read("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: {<<: [{x: 4}, *a]}\n")
    assert document.value == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 4, "y": 2}}
    assert not document.problems


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a:\n\tb: 1", 2, "a tab; indent with spaces"),
        ("a: 1\n---\nb: 2", 2, "one document"),
        ("a: 1\nb: [", 2, "is not YAML"),
        ("a: 1\nb: 2\na: 3", 3, "stands here twice (first on line 1)"),
        ("a: 1\n? [b]\n: c", 2, "a key is a list or mapping"),
        ("a: !python/object:os.system x", 1, "leave it out"),
        ("a: &a [*a]", 1, "nested too deeply"),
        ("a: &a {<<: *a}", 1, "nested too deeply"),
        ("[" * 5000, 1, "nested too deeply"),
        ("<<: 3", 1, "<< takes a mapping"),
        ('a: "\\UFFFFFFFF"', 1, "is not YAML"),
        ("a: \x00", 1, "is not YAML"),
    ],
)
def test_what_is_wrong_has_a_line(text: str, line: int, says: str) -> None:
    (problem,) = read(text).problems
    assert problem.line == line
    assert says in problem.text


def test_aliases_do_not_grow_without_bound() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "values" in read("\n".join(lines)).problems[0].text
    merges = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    assert "values" in read("\n".join(merges)).problems[0].text
