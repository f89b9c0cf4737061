"""A YAML text as a plain value plus the line of every place in it, so that an error can say where it is.

YAML 1.1 reads ``22:00`` as 1320, ``on`` as true and ``010`` as 8. Here scalars follow YAML 1.2's core schema instead:
only ``true`` and ``false`` are switches, numbers are decimal, everything else is the text that stands there. Keys are
always texts. Aliases and merge keys (``<<``) work, within limits: a small text must not grow into a huge value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from scaler.policy.keys import Path

#: More values than this, aliases written out, are a mistake or an attack.
VALUES_LIMIT = 100_000
#: A policy is four levels deep.
DEPTH_LIMIT = 32

_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge")
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at one place: ``line`` counts from 1, ``path`` is empty for the whole text."""

    line: int
    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """What a YAML text says. ``lines`` has the line of every key and list item by its path."""

    value: object
    lines: dict[Path, int]
    problems: tuple[Problem, ...]

    def line(self, path: Path) -> int:
        """The line of ``path``, or of the nearest place that encloses it."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), 1)


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
    """The value of a YAML text. Never raises: what is wrong with it stands in ``problems``."""
    try:
        root = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        return Document(None, {}, (_syntax_problem(error),))
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: an escape such as \UFFFFFFFF
        return Document(None, {}, (Problem(1, (), f"is not YAML: {' '.join(str(error).split())}"),))
    except RecursionError:
        return Document(None, {}, (Problem(1, (), f"is nested too deeply; write at most {DEPTH_LIMIT} levels"),))
    builder = _Builder()
    try:
        value = None if root is None else builder.build(root, (), 0)
    except _TooLargeError as error:
        return Document(None, builder.lines, (Problem(error.line, (), str(error)),))
    return Document(value, builder.lines, tuple(builder.problems))


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
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
    """Turns YAML nodes into values, noting lines and problems on the way."""

    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def build(self, node: yaml.Node, path: Path, depth: int) -> object:
        self._count(node, depth)
        if isinstance(node, yaml.MappingNode):
            value: dict[str, object] = {}
            for name, line, child in self._entries(node, path, depth):
                self.lines[(*path, name)] = line
                value[name] = self.build(child, (*path, name), depth + 1)
            return value
        if isinstance(node, yaml.SequenceNode):
            for index, child in enumerate(node.value):
                self.lines[(*path, index)] = _line(child)
            return [self.build(child, (*path, index), depth + 1) for index, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _count(self, node: yaml.Node, depth: int) -> None:
        self.values += 1
        if self.values > VALUES_LIMIT:
            raise _TooLargeError(_line(node), f"has more than {VALUES_LIMIT} values, aliases written out; write fewer")
        if depth > DEPTH_LIMIT:
            raise _TooLargeError(_line(node), f"is nested too deeply; write at most {DEPTH_LIMIT} levels")

    def _entries(self, node: yaml.MappingNode, path: Path, depth: int) -> Iterator[tuple[str, int, yaml.Node]]:
        """The mapping's entries; those merged in by ``<<`` first, where its own do not replace them."""
        own: dict[str, tuple[int, yaml.Node]] = {}
        merged: dict[str, tuple[int, yaml.Node]] = {}
        for key, child in node.value:
            self._count(key, depth)
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append(Problem(_line(key), path, "a key is a list or mapping; write a text"))
            elif key.tag == _MERGE:
                for name, line, inherited in self._merged(child, path, depth + 1):
                    merged.setdefault(name, (line, inherited))
            elif key.value in own:
                first = own[key.value][0]
                text = f"stands here twice (first on line {first}); keep one"
                self.problems.append(Problem(_line(key), (*path, key.value), text))
            else:
                own[key.value] = (_line(key), child)
        for name, (line, child) in (merged | own).items():
            yield name, line, child

    def _merged(self, node: yaml.Node, path: Path, depth: int) -> Iterator[tuple[str, int, yaml.Node]]:
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
