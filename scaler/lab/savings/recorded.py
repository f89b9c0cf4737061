"""What a Prometheus has recorded of our own ``/metrics``: replicas asked for, demand, capacity, bounds and prices.

One query for a day of all workloads, sampled every minute: ``max by`` the workload, because every scaler tells all of
them, and a scaler that is restarted or loses its place leaves nothing out. What was not recorded is None, for everybody
that is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scaler.lab.backtest.asking import Ask, AskError
from scaler.lab.backtest.matrix import read_matrix
from scaler.lab.backtest.questions import sampled
from scaler.lab.backtest.span import Span
from scaler.policy.promql import quoted
from scaler.signals.prometheus.answer import AnswerError

STEP_SECONDS = 60.0
#: A day a query: 1,440 samples of each series.
PART_SECONDS = 86_400
#: Columns by the metric that tells them, without ``loadtide_``; of ``signal`` each signal is one.
METRICS = (
    "desired_replicas",
    "replicas_floor",
    "replicas_ceiling",
    "capacity_sequences",
    "gpus_per_replica",
    "gpu_hour_price",
)
SIGNALS = ("asked_replicas", "running", "waiting", "pending")
_BY = "namespace, workload, __name__, signal, currency"

Column = list[float | None]


@dataclass(slots=True)
class Recorded:
    """One workload's minutes: a column of values for each name of :data:`METRICS` and :data:`SIGNALS`."""

    workload: str
    minutes: int
    currency: str = ""
    columns: dict[str, Column] = field(default_factory=dict)

    def column(self, name: str) -> Sequence[float | None]:
        """The values of one name, None where nothing was recorded."""
        return self.columns.get(name) or [None] * self.minutes


def question(match: Mapping[str, str]) -> str:
    """The query; ``match`` are further labels that our series have, for example the cluster's."""
    names = "|".join((*METRICS, "signal"))
    narrow = "".join(f",{label}={quoted(value)}" for label, value in sorted(match.items()))
    wanted = "|".join(("", *SIGNALS))
    return f'max by ({_BY}) ({{__name__=~"loadtide_({names})",signal=~"{wanted}"{narrow}}})'


async def read_recorded(
    ask: Ask, span: Span, match: Mapping[str, str], done: Callable[[float], None]
) -> dict[str, Recorded]:
    """Every workload that was recorded in ``span``, by name. ``done`` is told the share that has been read.

    Raises :class:`~scaler.lab.backtest.asking.AskError`.
    """
    query, minutes = question(match), int(span.seconds // STEP_SECONDS)
    found: dict[str, Recorded] = {}
    begin = span.since
    while begin < span.until:
        part = span.part(begin, PART_SECONDS)
        body = await ask(sampled(query, part.seconds, STEP_SECONDS), part.until)
        try:
            matrix = read_matrix(body, part.since)
        except AnswerError as error:
            raise AskError(str(error)) from error
        for series in matrix.series:
            _take(found, series.labels, zip(series.times, series.values, strict=True), span.since, minutes)
        begin = part.until
        done((begin - span.since) / span.seconds)
    return found


def _take(
    found: dict[str, Recorded],
    labels: Mapping[str, str],
    samples: Iterable[tuple[float, float]],
    since: float,
    minutes: int,
) -> None:
    name = labels.get("signal") or labels.get("__name__", "").removeprefix("loadtide_")
    workload = f"{labels.get('namespace', '')}/{labels.get('workload', '')}"
    recorded = found.setdefault(workload, Recorded(workload, minutes))
    recorded.currency = labels.get("currency") or recorded.currency
    column = recorded.columns.setdefault(name, [None] * minutes)
    for at, value in samples:
        minute = round((at - since) / STEP_SECONDS) - 1  # a sample tells of the minute before it
        if 0 <= minute < minutes:
            column[minute] = value
