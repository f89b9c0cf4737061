"""Numbers that stand for words: a timeline draws numbers, people read words. Colours say how bad it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scaler.control.model import LoadState
from scaler.pack.dashboards.model import Color, Word
from scaler.pack.dashboards.queries import chosen
from scaler.pack.promql import by
from scaler.signals.model import Status, Verdict

#: In the order of urgency: where two scalers disagree for a moment, the more urgent state is shown.
_STATES: Mapping[LoadState, Color] = {
    LoadState.UNKNOWN: "purple",
    LoadState.IDLE: "text",
    LoadState.LOW: "blue",
    LoadState.NORMAL: "green",
    LoadState.HIGH: "orange",
    LoadState.CRITICAL: "red",
    LoadState.STALLED: "dark-red",
}
#: Those that hold come after those that satisfy.
_STATUSES: Mapping[Status, Color] = {
    "known": "green",
    "not_applicable": "text",
    "stale": "orange",
    "unknown": "red",
}
_VERDICTS: Mapping[Verdict, Color] = {
    "met": "green",
    "undecided": "yellow",
    "breached": "red",
    "infeasible": "text",
}


def _words(colors: Iterable[tuple[str, Color]]) -> dict[float, Word]:
    return {float(number): Word(word.replace("_", " "), color) for number, (word, color) in enumerate(colors)}


STATES, STATUSES, VERDICTS = map(_words, (_STATES.items(), _STATUSES.items(), _VERDICTS.items()))
RUNGS = {0.0: Word("awake", "green"), 1.0: Word("asleep", "blue")}
YES_NO = {0.0: Word("no", "red"), 1.0: Word("yes", "green")}
HELD = {1.0: Word("held back", "orange")}
ZERO_REPLICAS = {0.0: Word("scaled to zero", "text")}


def state() -> str:
    """Each workload's load state, as a number of ``STATES``."""
    return _numbered("loadtide_load_state", "state", _STATES, "namespace, workload")


def status(signals: str) -> str:
    """The status of each signal that matches the pattern ``signals``, as a number of ``STATUSES``."""
    labels = "namespace, workload, signal"
    return _numbered("loadtide_signal_status", "status", _STATUSES, labels, f',signal=~"{signals}"')


def verdict() -> str:
    """What is said of each objective's bound, as a number of ``VERDICTS``."""
    labels = "namespace, workload, objective, bound"
    return _numbered("loadtide_objective_verdict", "verdict", _VERDICTS, labels)


def _numbered(metric: str, label: str, words: Iterable[str], labels: str, matchers: str = "") -> str:
    """A one-hot metric as one number: the place in ``words`` of the one that holds."""
    selected = (chosen(metric, f'{label}="{word}"{matchers}') for word in words)
    ones = (f"({selector} == 1) * {number}" for number, selector in enumerate(selected))
    return by("max", labels, "\nor\n".join(ones))
