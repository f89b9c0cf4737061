"""``words.md``: signals, load states, causes, and every reason code with its sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from scaler.check.table import RULES
from scaler.pack.reference.markdown import code, sentence, table
from scaler.serve.words import ADMISSIONS, CAUSES, MODES, STATES, WORDINGS
from scaler.signals.model import CATALOG

#: Fields of a wording, with nothing between them.
_FIELDS = re.compile(r"(\{\w+\})+")
_Word = TypeVar("_Word", bound=StrEnum)
_HEAD = """\
# Words

What `loadtide explain`, the page, logs, API and metrics call things. [Concepts](../concepts.md) says how they hang
together.

## Signals

A signal is known, stale, unknown or not applicable; `loadtide_signal` has its value, `loadtide_signal_status` the rest.

"""
_REASONS = """
## Reasons

The `code` of a reason in the log, in the API and in `loadtide_decisions_total` and `loadtide_suppressed`. What stands
in braces is filled in: `{measured}` the value, `{compared}` the value beside its threshold, `{same}`, `{up}` and
`{down}` what becomes of the target.

"""
_RULES = """
## Findings of `loadtide check`

"""


def words_page() -> str:
    """The page."""
    signals = (
        (code(name), kind.unit, sentence(kind.combine), ", ".join(kind.required_for), sentence(kind.meaning))
        for name, kind in CATALOG.items()
    )
    reasons = (
        (code(each.value), _FIELDS.sub(r"`\g<0>`", sentence(wording.measured or wording.plain)))
        for each, wording in WORDINGS.items()
    )
    rules = ((code(rule.id), rule.severity, sentence(rule.summary), rule.why) for rule in RULES)
    return "".join(
        (
            _HEAD,
            table(("signal", "unit", "combined over series and pods", "needed for", "meaning"), signals),
            _words("Load states", "state", STATES),
            _words("Causes", "cause", CAUSES),
            _words("Modes", "mode", MODES),
            _words("Admission", "admission", ADMISSIONS),
            _REASONS,
            table(("code", "sentence"), reasons),
            _RULES,
            table(("rule", "severity", "finds", "why"), rules),
        )
    )


def _words(title: str, head: str, words: Mapping[_Word, str]) -> str:
    rows = ((code(word.value), sentence(text)) for word, text in words.items())
    return f"\n## {title}\n\n{table((head, 'meaning'), rows)}"
