"""Which metrics an expression reads: for the descriptions, and for the tests that ask whether each of them exists."""

from __future__ import annotations

import re

#: What can hold words that are no metric: texts, selectors, ranges, lists of labels.
_ASIDE = re.compile(
    r'"(?:[^"\\]|\\.)*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)'
)
_WORD = re.compile(r"(?<![\w:$.])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")
_KEYWORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right"}
_NUMBERS = {"inf", "nan"}


def metric_names(expr: str) -> tuple[str, ...]:
    """The metrics that ``expr`` selects, each once, in order. Reads what this pack writes, not all of PromQL."""
    texts_gone = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)  # a brace inside a text closes no selector
    words = _WORD.findall(re.sub(r"\boffset\s+\S+", " ", _ASIDE.sub(" ", texts_gone)))
    return tuple(dict.fromkeys(word for word in words if word.lower() not in _KEYWORDS | _NUMBERS))
