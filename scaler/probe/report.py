"""What a probe found, as one value: everything that is told to a person, before it is laid out."""

from __future__ import annotations

from typing import Literal

from scaler.value import frozen

Status = Literal["found", "estimated", "nothing yet", "missing", "not applicable"]


@frozen
class FamilyFound:
    """One family of a preset. ``name`` is the alias that matched, as the page spells it ("": none).

    ``value`` is what it says now, in words. ``age_seconds`` is None where the samples carry no time of their own.
    ``note`` says why it is not there, and what that disables.
    """

    family: str
    status: Status
    name: str = ""
    value: str = ""
    age_seconds: float | None = None
    note: str = ""


@frozen
class Report:
    """``what`` the URL is, in one line; ``facts`` one line each; ``policy`` the YAML to write ("": there is none).

    ``usable``: loadtide can read something there.
    """

    what: str
    usable: bool
    facts: tuple[str, ...] = ()
    families: tuple[FamilyFound, ...] = ()
    warnings: tuple[str, ...] = ()
    policy: str = ""
