"""What a rule test is, and the words the cases are written in. ``python -m tests.pack.cases`` writes them for promtool.

A case feeds series, minute by minute from 0, and says at which minutes which alerts are firing: all of that name, with
exactly these labels. Where the rules look every minute or oftener, a value is scraped half a step before they do: a
sample on the left edge of a window belongs to it before Prometheus 3 and not since, and no real scrape lies there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Labels = Mapping[str, str]
#: (minute, firing alerts or expected samples)
At = tuple[int, tuple[Labels, ...]]

CHAT = {"namespace": "chat", "workload": "m"}
POD = "m-6d5f7c9b8d-x2x4z"
OTHER_POD = "m-6d5f7c9b8d-k7k8w"


@dataclass(frozen=True)
class Case:
    """``series`` is promtool's notation by selector. ``expected`` names every firing alert ``alert``, or, where
    ``query`` is given, the samples of that (their value under the label ``value``). ``which`` narrows the alerts to
    those with these labels. The rules look every ``step`` minutes, and a value stands for a step, at most a minute.
    """

    alert: str
    name: str
    series: Mapping[str, str]
    expected: Sequence[At]
    query: str = ""
    step: float = 1
    which: Labels = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The case as promtool reads it."""
        return {
            "name": self.name,
            "interval": "1m" if self.step > 1 else f"{30 * self.step:g}s",
            "input_series": [
                {"series": series, "values": values if self.step > 1 else _between_evaluations(values)}
                for series, values in self.series.items()
            ],
            "promql_expr_test": [
                {
                    "expr": self.query
                    or _selector("ALERTS", {"alertname": self.alert, "alertstate": "firing", **self.which}),
                    "eval_time": f"{minute}m",
                    "exp_samples": [self._sample(labels) for labels in found],
                }
                for minute, found in self.expected
            ],
        }

    def _sample(self, labels: Labels) -> dict[str, Any]:
        if self.query:
            wanted = {name: value for name, value in labels.items() if name not in ("value", "__name__")}
            return {"labels": _selector(labels.get("__name__", ""), wanted), "value": float(labels["value"])}
        told = {"alertname": self.alert, "alertstate": "firing", **labels}
        return {"labels": _selector("ALERTS", told), "value": 1}


#: promtool's notation: a value or ``_`` and how often it is repeated, or a value and what each next one has more.
_REPEATED = re.compile(r"(?P<first>_|-?[\d.]+(?:e[+-]?\d+)?)(?P<each>[+-][\d.]+(?:e[+-]?\d+)?)?x(?P<times>\d+)")


def _between_evaluations(values: str) -> str:
    """The first value at 0, every other half a step before its evaluation."""
    words = [word for part in values.split() for word in _written_out(part)]
    return " _ ".join([" ".join(words[:2]), *words[2:]])


def _written_out(part: str) -> list[str]:
    repeated = _REPEATED.fullmatch(part)
    if repeated is None:
        return [part]
    first, each, times = repeated["first"], repeated["each"], int(repeated["times"])
    if each is None:
        return [first] * (times + (first != "_"))
    return [f"{float(first) + float(each) * number:.15g}" for number in range(times + 1)]


def _selector(name: str, labels: Labels) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def series(name: str, values: str, /, **labels: str) -> dict[str, str]:
    """One series by its selector."""
    return {_selector(name, labels): values}


def own(name: str, values: str, /, **labels: str) -> dict[str, str]:
    """One of loadtide's series about chat/m."""
    return series(f"loadtide_{name}", values, **{**CHAT, "job": "loadtide", "instance": "10.0.0.9:8080", **labels})


def engine(name: str, values: str, /, pod: str = POD, **labels: str) -> dict[str, str]:
    """One series of a pod of chat/m, scraped through a PodMonitor."""
    placed = {"namespace": "chat", "pod": pod, "job": "chat/engines", "instance": f"{pod}:8000"}
    return series(name, values, **{**placed, **labels})


def vllm(name: str, values: str, /, pod: str = POD, colon: bool = True, **labels: str) -> dict[str, str]:
    """One of vLLM's series."""
    spelt = f"vllm:{name}" if colon else f"vllm_{name}"
    return engine(spelt, values, pod, **{"model_name": "llama", "engine": "0", **labels})


#: A counter's values over time, for what it grows by each minute.
Pattern = Callable[[float], str]


def growing(minutes: int) -> Pattern:
    """A counter from 0, without a break."""
    return lambda each: f"0+{each:g}x{minutes}"


def with_gap(before: int, after: int) -> Pattern:
    """A counter of which one scrape failed, after ``before`` minutes."""
    return lambda each: f"0+{each:g}x{before} stale {each * (before + 2):g}+{each:g}x{after}"


def with_reset(before: int, after: int) -> Pattern:
    """A counter that began anew after ``before`` minutes, as of an engine that restarted."""
    return lambda each: f"0+{each:g}x{before} 0+{each:g}x{after}"


def ending(minutes: int) -> Pattern:
    """A counter whose pod goes away after so many minutes."""
    return lambda each: f"0+{each:g}x{minutes} stale"


def histogram(name: str, each_minute: Mapping[str, float], pattern: Pattern, /, **labels: Any) -> dict[str, str]:
    """A vLLM histogram into which so many requests fall each minute, by upper bound, not cumulative."""
    found: dict[str, str] = {}
    total = 0.0
    for bound, count in each_minute.items():
        total += count
        found |= vllm(f"{name}_bucket", pattern(total), **{**labels, "le": bound})
    return found


def steady(value: float | str, minutes: int) -> str:
    """The same value every minute. promtool repeats numbers, but not infinity."""
    return f"{value}x{minutes}" if value != "Inf" else then((value, minutes))


def then(*parts: tuple[float | str, int]) -> str:
    """(value, minutes) one after the other; ``_`` is a scrape that failed, ``stale`` the end of the series."""
    words: list[str] = []
    for value, minutes in parts:
        words += [str(value)] * minutes
    return " ".join(words)


def objective(
    minutes: int, *, warning: float = 1, critical: float = 5, name: str = "ttft", **labels: str
) -> dict[str, str]:
    """The bounds of one objective."""
    return own("objective_seconds", steady(warning, minutes), objective=name, bound="warning", **labels) | own(
        "objective_seconds", steady(critical, minutes), objective=name, bound="critical", **labels
    )


def fires(minute: int, *labels: Labels) -> list[At]:
    """Firing at that minute and not at the one before."""
    return [(minute - 1, ()), (minute, tuple(labels))]


def silent(*minutes: int) -> list[At]:
    """Not firing at any of these minutes."""
    return [(minute, ()) for minute in minutes]
