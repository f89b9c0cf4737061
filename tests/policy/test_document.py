"""YAML with lines: scalars as people mean them, and limits."""

from __future__ import annotations

import pytest

from scaler.policy.document import read, read_all


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


class TestSeveralDocuments:
    TEXT = "# head\na: 1\n---\nb:\n  - x: 'q'\n---\n---\nc: {d: 2}\n"

    def test_have_the_files_lines(self) -> None:
        documents = read_all(self.TEXT)
        assert [document.value for document in documents] == [{"a": 1}, {"b": [{"x": "q"}]}, None, {"c": {"d": 2}}]
        assert documents[1].line(("b", 0, "x")) == 5
        assert documents[1].line(("nowhere",)) == 4

    def test_after_a_mistake_nothing_more_is_read(self) -> None:
        first, wrong = read_all("a: 1\n---\nb: [\n---\nc: 1\n")
        assert first.value == {"a": 1}
        assert (wrong.value, wrong.problems[0].line) == (None, 4)

    def test_limits_hold_for_each(self) -> None:
        assert not read_all("[1, 2, 3]\n---\n[4, 5, 6]\n", values_limit=5)[1].problems
        assert read_all("[1, 2, 3]\n", values_limit=2)[0].problems


def test_every_value_has_its_place_in_the_text() -> None:
    text = "a: 'q' # c\nb:\n  - {c: 1}\n  - |\n    t\n'k': plain\n"
    spans = read(text).spans
    written = {path: (text[at.key_start : at.key_end], text[at.start : at.end], at.style) for path, at in spans.items()}
    assert written[("a",)] == ("a", "'q'", "quoted")
    assert written[("b", 0)] == ("", "{c: 1}", "flow")
    assert written[("b", 0, "c")] == ("c", "1", "plain")
    assert written[("b", 1)] == ("", "|\n    t\n", "block")
    assert written[("k",)] == ("'k'", "plain", "plain")
