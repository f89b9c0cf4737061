"""Reasons and what was held back as sentences, out of the words of :mod:`scaler.serve.words`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from scaler.control.model import Code, Decision, Reason, Suppressed, Target, Targets
from scaler.serve.quantities import compared, counted, duration, number, phrase, quantity, title
from scaler.serve.words import ADMISSIONS, WORDINGS
from scaler.signals.model import CATALOG

#: The end of a template that tells an outcome: a cause alone ends before it.
_CAUSE = re.compile(r"(: [^:]*|, )\{(same|up|down)\}.*$")
#: Codes that tell of what is published; every other tells of what the laws decided.
_OF_WHO_RULES = frozenset(
    {Code.ADVISORY, Code.ASKED_UNKNOWN, Code.PAUSED, Code.OVERRIDE, Code.OVERRIDE_ENDED, Code.RESUMED}
)


def sentence(
    reason: Reason, targets: Targets | None = None, *, need: int | None = None, batch_before: int | None = None
) -> str:
    """One reason as a sentence, lower case, without a full stop: ``3 req/s arriving needs 2 replicas``.

    ``targets`` are those of the reason's decision; without them the cause alone is told. ``need`` is the replicas the
    load asks for before floor, ceiling and holds (without it: those decided); ``batch_before`` lets a cut say by how
    much.
    """
    wording = WORDINGS[reason.code]
    measured = reason.value is not None and reason.signal is not None
    template = wording.measured if measured and wording.measured else wording.plain
    fields = _measures(reason)
    if targets is None:
        wanted = "replicas" if need is None else counted(need, "replicas")
        return _CAUSE.sub("", template).format_map({**fields, "replicas": wanted})
    fields["replicas"] = counted(targets.replicas if need is None else need, "replicas")
    return template.format_map({**fields, **_outcomes(reason.target, targets, batch_before)})


def decided_sentence(reason: Reason, decision: Decision, batch_before: int | None = None) -> str:
    """A reason of ``decision`` as a sentence: on what is published, or on what the laws would have published."""
    targets = decision.targets
    if decision.advised is not None and reason.code not in _OF_WHO_RULES:
        targets = decision.advised
    return sentence(reason, targets, need=decision.need, batch_before=batch_before)


def suppressed_sentence(suppressed: Suppressed) -> str:
    """What was held back, and by what: ``wanted batch 64, kept 32: cooldown has 41 s left``."""
    why = _held_by(suppressed)
    target, wanted, kept = suppressed.target, suppressed.wanted, suppressed.kept
    if wanted is None:
        return f"{_NOUNS[target]} kept{'' if kept is None else f' at {_moved(target, kept)}'}: {why}"
    what = {
        Target.REPLICAS: counted(wanted, "replicas"),
        Target.ACTIVE: _moved(target, wanted),
    }.get(target, f"{_NOUNS[target]} {number(wanted)}")
    return f"wanted {what}{'' if kept is None else f', kept {_moved(target, kept)}'}: {why}"


def _held_by(suppressed: Suppressed) -> str:
    """The cause alone: these templates end in an outcome, and what was held back has none."""
    wording = WORDINGS[suppressed.code]
    measured = suppressed.value is not None and suppressed.signal is not None
    template = wording.held or (wording.measured if measured and wording.measured else wording.plain).partition(":")[0]
    why = template.format_map(_measures(suppressed))
    if suppressed.remaining_seconds is not None:
        left = duration(suppressed.remaining_seconds)
        why += f" has {left} left" if suppressed.code is Code.COOLDOWN else f", {left} left"
    if wording.held and measured and suppressed.signal in CATALOG:
        why += f" ({compared(suppressed.signal, suppressed.value, suppressed.threshold)})"
    return why


_NOUNS: Mapping[Target, str] = {
    Target.REPLICAS: "replicas",
    Target.ACTIVE: "activity",
    Target.BATCH: "batch",
    Target.TOKEN_BUDGET: "token budget",
    Target.ADMISSION: "admission",
    Target.RUNG: "rung",
}


def _moved(target: Target, value: float) -> str:
    if target is Target.ACTIVE:
        return "active" if value else "zero replicas"
    return number(value)


def _measures(reason: Reason | Suppressed) -> dict[str, str]:
    value, threshold = reason.value, reason.threshold
    of_override = reason.code is Code.OVERRIDE
    # "over 0" says nothing that the value does not say.
    against = None if threshold == 0 else threshold
    return {
        "measured": phrase(reason.signal, value),
        "compared": compared(reason.signal, value, against),
        "signal": title(reason.signal),
        "for": "" if value is None else duration(value),
        "count": "" if value is None else number(value),
        "each": "" if against is None else f" (one serves {quantity(reason.signal, against)})",
        "target": "" if threshold is None else number(threshold),
        "who": reason.signal or "somebody",
        "until": _moment(value) if of_override else "",
    }


def _moment(unix: float | None) -> str:
    try:
        return f"{datetime.fromtimestamp(unix or 0.0, UTC):%Y-%m-%d %H:%M UTC}"
    except (OverflowError, ValueError, OSError):  # no day of any calendar
        return "a day that never comes"


def _outcomes(target: Target, targets: Targets, batch_before: int | None) -> dict[str, str]:
    """The decided value on ``target``, told as a cut (``down``), a rise (``up``) and as it stands (``same``)."""
    match target:
        case Target.REPLICAS:
            return dict.fromkeys(("down", "up", "same"), counted(targets.replicas, "replicas"))
        case Target.ACTIVE:
            return dict.fromkeys(("down", "up", "same"), _moved(target, float(targets.active)))
        case Target.RUNG:
            return dict.fromkeys(("down", "up", "same"), targets.rung.value)
        case Target.ADMISSION:
            return dict.fromkeys(("down", "up", "same"), ADMISSIONS[targets.admission])
        case Target.BATCH:
            noun, value = "batch", targets.batch
        case Target.TOKEN_BUDGET:
            noun, value = "token budget", targets.token_budget
    if value is None:
        return dict.fromkeys(("down", "up", "same"), f"the engine's own {noun}")
    cut, raised = f"{noun} cut to {number(value)}", f"{noun} raised to {number(value)}"
    if target is Target.BATCH and batch_before:
        if 2 * value == batch_before:
            cut = f"batch halved to {value}"
        elif value == 2 * batch_before:
            raised = f"batch doubled to {value}"
        elif value >= batch_before:
            cut = f"batch {value}"
        if value <= batch_before:
            raised = f"batch {value}"
    return {"down": cut, "up": raised, "same": f"{noun} {number(value)}"}
