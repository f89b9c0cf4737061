"""Values: what the house passes around. Nothing changes one; another is made of it (``dataclasses.replace``)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass with slots that compares and hashes by its fields, and whose fields nobody assigns.

    The type checker keeps them: it reads every line of the house and refuses one that assigns to a field. Guarding them
    at run time too (``frozen=True``) makes every field of every value that is built several times as dear, and a
    tick builds 240 of them: a fifth of its time (benchmarks/README.md).
    """
    made = dataclass(slots=True, unsafe_hash=True)(cls)
    # Pickled without the names of its fields, as a dataclass that is guarded at run time is: a log keeps thousands.
    made.__getstate__ = _values  # type: ignore[method-assign]
    made.__setstate__ = _take  # type: ignore[attr-defined]
    return made


def _values(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _take(self: Any, values: list[Any]) -> None:
    for each, taken in zip(fields(self), values, strict=True):
        setattr(self, each.name, taken)
