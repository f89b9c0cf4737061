"""A YAML text as a plain value plus where every value of it stands, so that an error can say the line and a correction
can replace just that place.

YAML 1.1 reads ``22:00`` as 1320, ``on`` as true and ``010`` as 8. Here scalars follow YAML 1.2's core schema instead:
only ``true`` and ``false`` are switches, numbers are decimal, everything else is the text that stands there. Keys are
always texts. Aliases and merge keys (``<<``) work, within limits: a small text must not grow into a huge value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import yaml

from scaler.policy.keys import Path
from scaler.value import frozen

Style = Literal["plain", "quoted", "block", "flow"]

#: More values than this, aliases written out, are a mistake or an attack.
VALUES_LIMIT = 100_000
#: A policy is four levels deep.
DEPTH_LIMIT = 32

_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge")
)


@frozen
class Problem:
    """Something wrong at one place: ``line`` counts from 1, ``path`` is empty for the whole text."""

    line: int
    path: Path
    text: str


@frozen
class Span:
    """Where one value stands: offsets into the text. ``key_start``..``key_end`` is its key (an item of a list has none:
    both are ``start``), ``start``..``end`` the value as written. ``style`` is how: ``flow`` is ``{a: 1}`` or ``[1]``.
    """

    key_start: int
    key_end: int
    start: int
    end: int
    style: Style


@frozen
class Document:
    """What a YAML text says. ``lines`` has the line of every key and list item by its path, ``spans`` where it stands;
    ``first_line`` is where the document itself begins.
    """

    value: object
    lines: Mapping[Path, int]
    problems: tuple[Problem, ...]
    spans: Mapping[Path, Span] = field(default_factory=dict, repr=False)
    first_line: int = 1

    def line(self, path: Path) -> int:
        """The line of ``path``, or of the nearest place that encloses it."""
        known = (self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines)
        return next(known, self.first_line)


class _CoreLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2's core schema (PyYAML knows only 1.1's)."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  PyYAML's own way to give a loader its resolvers


for _tag, _pattern, _first in (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?[0-9]+", list("-+0123456789")),
    (_FLOAT, r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    (_MERGE, r"<<", ["<"]),
):
    _CoreLoader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z", re.ASCII), _first)


def read(text: str) -> Document:
    """The value of a YAML text of one document. Never raises: what is wrong with it stands in ``problems``."""
    try:
        root = yaml.compose(text, Loader=_CoreLoader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        return Document(None, {}, (_syntax_problem(error),))
    return _document(root, VALUES_LIMIT)


def read_all(text: str, values_limit: int = VALUES_LIMIT) -> tuple[Document, ...]:
    """The documents of a YAML text, parted by ``---``. Never raises: at a syntax error the last one holds the problem,
    and nothing after it is read. ``values_limit`` holds for each document.
    """
    documents = []
    loader = None
    try:
        loader = _CoreLoader(text)
        while loader.check_node():
            documents.append(_document(loader.get_node(), values_limit))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        documents.append(Document(None, {}, (_syntax_problem(error),)))
    finally:
        if loader is not None:
            loader.dispose()
    return tuple(documents)


def _document(root: yaml.Node | None, values_limit: int) -> Document:
    builder = _Builder(values_limit)
    first_line = 1 if root is None else _line(root)
    try:
        value = None if root is None else builder.build(root, (), 0)
    except _TooLargeError as error:
        return Document(None, builder.lines, (Problem(error.line, (), str(error)),), builder.spans, first_line)
    return Document(value, builder.lines, tuple(builder.problems), builder.spans, first_line)


def _syntax_problem(error: Exception) -> Problem:
    if isinstance(error, RecursionError):
        return Problem(1, (), f"is nested too deeply; write at most {DEPTH_LIMIT} levels")
    if not isinstance(error, yaml.MarkedYAMLError):  # not even characters, or an escape such as \\UFFFFFFFF
        return Problem(1, (), f"is not YAML: {' '.join(str(error).split())}")
    mark = error.problem_mark or error.context_mark
    said = " ".join(filter(None, (error.context, error.problem)))
    if "'\\t'" in said:
        said = "a tab; indent with spaces"
    elif "single document" in said:
        said = "a second document begins; write one document, without ---"
    return Problem(1 if mark is None else mark.line + 1, (), f"is not YAML: {said}")


class _TooLargeError(Exception):
    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


@dataclass(slots=True)
class _Builder:
    """Turns YAML nodes into values, noting lines, spans and problems on the way."""

    values_limit: int
    lines: dict[Path, int] = field(default_factory=dict)
    spans: dict[Path, Span] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def build(self, node: yaml.Node, path: Path, depth: int) -> object:
        self._count(node, depth)
        self.spans.setdefault(path, _span(node, node))
        if isinstance(node, yaml.MappingNode):
            value: dict[str, object] = {}
            for name, key, child in self._entries(node, path, depth):
                self.lines[(*path, name)] = _line(key)
                self.spans[(*path, name)] = _span(key, child)
                value[name] = self.build(child, (*path, name), depth + 1)
            return value
        if isinstance(node, yaml.SequenceNode):
            for index, child in enumerate(node.value):
                self.lines[(*path, index)] = _line(child)
            return [self.build(child, (*path, index), depth + 1) for index, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _count(self, node: yaml.Node, depth: int) -> None:
        self.values += 1
        if self.values > self.values_limit:
            raise _TooLargeError(
                _line(node), f"has more than {self.values_limit} values, aliases written out; write fewer"
            )
        if depth > DEPTH_LIMIT:
            raise _TooLargeError(_line(node), f"is nested too deeply; write at most {DEPTH_LIMIT} levels")

    def _entries(self, node: yaml.MappingNode, path: Path, depth: int) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """The mapping's (name, key, value); those merged in by ``<<`` first, where its own do not replace them."""
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, child in node.value:
            self._count(key, depth)
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append(Problem(_line(key), path, "a key is a list or mapping; write a text"))
            elif key.tag == _MERGE:
                for name, its_key, inherited in self._merged(child, path, depth + 1):
                    merged.setdefault(name, (its_key, inherited))
            elif key.value in own:
                first = _line(own[key.value][0])
                text = f"stands here twice (first on line {first}); keep one"
                self.problems.append(Problem(_line(key), (*path, key.value), text))
            else:
                own[key.value] = (key, child)
        for name, (key, child) in (merged | own).items():
            yield name, key, child

    def _merged(self, node: yaml.Node, path: Path, depth: int) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        self._count(node, depth)
        if isinstance(node, yaml.MappingNode):
            yield from self._entries(node, path, depth)
        elif isinstance(node, yaml.SequenceNode) and depth <= DEPTH_LIMIT:
            for child in node.value:
                yield from self._merged(child, path, depth + 1)
        else:
            self.problems.append(Problem(_line(node), path, "<< takes a mapping; write an alias such as <<: *name"))

    def _scalar(self, node: yaml.Node, path: Path) -> object:
        text = str(node.value)
        try:
            match node.tag:
                case tag if tag == _STR:
                    return text
                case tag if tag == _NULL:
                    return None
                case tag if tag == _BOOL:
                    return {"true": True, "false": False}[text.lower()]
                case tag if tag == _INT:
                    return int(text)
                case tag if tag == _FLOAT:
                    return float(text)
        except (ValueError, KeyError):
            pass  # a wrong explicit tag, or more digits than an int may have: the text itself is judged by the model
        else:
            self.problems.append(Problem(_line(node), path, f"the tag {node.tag} means nothing here; leave it out"))
        return text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _span(key: yaml.Node, node: yaml.Node) -> Span:
    key_start, key_end = (key.start_mark.index, key.end_mark.index) if key is not node else (node.start_mark.index,) * 2
    return Span(key_start, key_end, node.start_mark.index, node.end_mark.index, _style(node))


def _style(node: yaml.Node) -> Style:
    if isinstance(node, yaml.CollectionNode):
        return "flow" if node.flow_style else "block"
    written = getattr(node, "style", None)
    return "plain" if written is None else "quoted" if written in "'\"" else "block"
