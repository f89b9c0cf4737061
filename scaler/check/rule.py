"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Generic, TypeVar

from scaler.check.edit import Edit
from scaler.policy.keys import Path
from scaler.value import frozen

S = TypeVar("S")


class Severity(StrEnum):
    """``error``: it fails, or costs at once. ``warning``: it works, but not as meant. ``info``: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@frozen
class Hit:
    """One place where a rule applies: ``path`` in the object, the reason in one sentence, what to write there, and the
    edits that write it where only one correction can be meant.
    """

    path: Path
    reason: str
    fix: str = ""
    edits: tuple[Edit, ...] = ()


@frozen
class Rule(Generic[S]):
    """One rule over subjects of one type. ``summary`` says what is found, ``why`` what it leads to, ``fix`` what is
    right; :mod:`scaler.check.table` makes the reference of them.
    """

    id: str
    severity: Severity
    summary: str
    why: str
    fix: str
    find: Callable[[S], Iterator[Hit]]


@frozen
class Finding:
    """What is told to a person: one hit of one rule, in its file. ``line`` counts from 1."""

    file: str
    line: int
    rule: str
    severity: Severity
    reason: str
    fix: str = ""
    fixable: bool = False
