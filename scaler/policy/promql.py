"""PromQL as text: quoting a label value into it, and reading of an operator's query what deserves a warning.

Reading is by tokens, not by a whole grammar: which aggregations stand outermost, what each selector matches, and
whether ``vector(0)`` turns "absent" into zero. A server is the judge of everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from scaler.value import frozen

#: PromQL's aggregation operators (prometheus/prometheus promql/parser/lex.go), the experimental ones included.
AGGREGATIONS: Final = frozenset(
    {
        "avg",
        "bottomk",
        "count",
        "count_values",
        "group",
        "limit_ratio",
        "limitk",
        "max",
        "min",
        "quantile",
        "stddev",
        "stdvar",
        "sum",
        "topk",
    }
)
#: Words that stand before a list of labels; PromQL's keywords are words in any case.
_GROUPINGS: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORD_OPERATORS: Final = frozenset({"and", "or", "unless", "atan2", "bool", "offset", "start", "end", "inf", "nan"})

_TOKEN: Final = re.compile(
    r"(?P<blank>\s+|\#[^\n]*)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)"
    # A number or a duration: 1.5e3, 0x1F, 5m, 1h30m.
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+|[a-zA-Z0-9]*))"
    r"|(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"|(?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^=<>(){}\[\],@:.])"
)
_CLOSING: Final = {"(": ")", "{": "}", "[": "]"}


class PromqlError(ValueError):
    """A query that no server will accept; the text says where it stops making sense."""


class _Token(NamedTuple):
    kind: str
    """``text`` (quoted), ``number`` (durations too), ``word`` or ``sign``."""
    text: str


@frozen
class Reading:
    """What was read of one query."""

    outermost: tuple[str, ...]
    """The aggregations that stand in no other one, in lower case, as written: two for ``sum(a)/sum(b)``."""
    selectors: tuple[Mapping[str, tuple[str, str]], ...]
    """Of every selector its matchers: label → (operator, value); the metric's name is not among them."""
    absent_is_zero: bool
    """Whether ``vector(0)`` stands in it: with it, no data reads as no load."""


def quoted(value: str) -> str:
    """A label value as a PromQL string, quotes included. Whatever is in it, it cannot end the string."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def any_of(values: list[str]) -> str:
    """A matcher's operator and value for one or several exact label values: ``="a"`` or ``=~"a|b"``."""
    if len(values) == 1:
        return "=" + quoted(values[0])
    # RE2 refuses a backslash before a letter, digit, space or "_"; so only what means something is escaped.
    return "=~" + quoted("|".join(re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", value) for value in values))


def read(query: str) -> Reading:
    """Read a query. Raises :class:`PromqlError` for an empty one, one with a character or quote no PromQL has, and one
    whose brackets do not pair.
    """
    tokens = list(_tokens(query))
    if not tokens:
        raise PromqlError("the query is empty")
    _pair_up(tokens)
    return Reading(
        outermost=tuple(_outermost(tokens)),
        selectors=tuple(_selectors(tokens)),
        absent_is_zero=any(_is_vector_zero(tokens, at) for at in range(len(tokens))),
    )


def _tokens(query: str) -> Iterator[_Token]:
    position = 0
    while position < len(query):
        match = _TOKEN.match(query, position)
        if match is None:
            odd = "a quote that does not end" if query[position] in "\"'`" else f"{query[position]!r}"
            raise PromqlError(f"character {position + 1} of the query is {odd}")
        position = match.end()
        if match.lastgroup and match.lastgroup != "blank":
            yield _Token(match.lastgroup, match[0])


def _pair_up(tokens: list[_Token]) -> None:
    opened: list[str] = []
    for token in tokens:
        if token.kind != "sign":
            continue
        if token.text in _CLOSING:
            opened.append(_CLOSING[token.text])
        elif token.text in _CLOSING.values() and (not opened or opened.pop() != token.text):
            raise PromqlError(f"the query has a {token.text} that closes nothing")
    if opened:
        raise PromqlError(f"the query lacks a {opened[-1]}")


def _outermost(tokens: list[_Token]) -> Iterator[str]:
    at = 0
    while at < len(tokens):
        begin = _argument_of(tokens, at)
        if begin is None:
            at += 1
            continue
        yield tokens[at].text.lower()
        at = _past(tokens, begin)  # what stands inside is not outermost


def _argument_of(tokens: list[_Token], at: int) -> int | None:
    """Where the parenthesis of the aggregation at ``at`` opens; None if none is there. A metric may be called ``sum``,
    but then no parenthesis follows.
    """
    if tokens[at].kind != "word" or tokens[at].text.lower() not in AGGREGATIONS:
        return None
    after = at + 1
    if after < len(tokens) and tokens[after].text.lower() in ("by", "without") and _opens(tokens, after + 1, "("):
        after = _past(tokens, after + 1)
    return after if _opens(tokens, after, "(") else None


def _opens(tokens: list[_Token], at: int, sign: str) -> bool:
    return at < len(tokens) and tokens[at] == ("sign", sign)


def _past(tokens: list[_Token], opening: int) -> int:
    """The place behind the bracket that closes the one at ``opening``. Brackets pair: :func:`read` has checked."""
    depth = 0
    for at in range(opening, len(tokens)):
        if tokens[at].kind == "sign":
            depth += (tokens[at].text in _CLOSING) - (tokens[at].text in _CLOSING.values())
        if depth == 0:
            return at + 1
    return len(tokens)


def _selectors(tokens: list[_Token]) -> Iterator[Mapping[str, tuple[str, str]]]:
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if _opens(tokens, at, "{"):
            end = _past(tokens, at)
            yield _matchers(tokens[at + 1 : end - 1])
            at = end
        elif _opens(tokens, at, "["):
            at = _past(tokens, at)  # a range: durations, no metrics
        elif token.kind == "word" and token.text.lower() in _GROUPINGS:
            at = _past(tokens, at + 1) if _opens(tokens, at + 1, "(") else at + 1
        else:
            called = _opens(tokens, at + 1, "(") or _argument_of(tokens, at) is not None
            bare = token.kind == "word" and token.text.lower() not in _WORD_OPERATORS and not called
            if bare and not _opens(tokens, at + 1, "{"):
                yield {}
            at += 1


def _matchers(tokens: list[_Token]) -> dict[str, tuple[str, str]]:
    """The matchers between the braces. A quoted metric name (``{"my.metric"}``) is none."""
    found = {}
    for name, operator, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if operator.text in ("=", "!=", "=~", "!~") and value.kind == "text" and name.kind in ("word", "text"):
            label = name.text if name.kind == "word" else _content(name.text)
            if label != "__name__":
                found[label] = (operator.text, _content(value.text))
    return found


def _content(text: str) -> str:
    """What a quoted text says. The escapes of numbers (``\\x41``) stay as written: nobody compares with those."""
    if text[0] == "`":
        return text[1:-1]
    return re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), text[1:-1])


def _is_vector_zero(tokens: list[_Token], at: int) -> bool:
    words = [token.text.lower() for token in tokens[at : at + 4]]
    if len(words) < 4 or words[:2] != ["vector", "("] or words[3] != ")":
        return False
    try:
        return float(words[2]) == 0
    except ValueError:
        return False
