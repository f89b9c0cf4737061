"""Demand as gateways see it, from their own metrics: what waits there, and what was refused for want of a replica.

At zero replicas no engine counts anything, so these numbers decide whether a workload wakes. Three cases are kept
apart: the gateway is up and has no series for the workload (nobody asked: zero), the gateway is up and has some (their
sum), the gateway cannot be read, or not what it says of the workload (unknown: never zero). A refused request counts
once, in the tick that sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace

from scaler.signals import counters
from scaler.signals.exposition import Exposition, Labels, Sample, parse
from scaler.signals.family import Family, sample_names
from scaler.signals.gateway_preset import GatewayPreset
from scaler.signals.observation import Demand, ReadFailure
from scaler.signals.quantity import LARGEST_COUNT
from scaler.value import frozen

_SHOWN = 5
#: Of a counter: beyond it a float no longer tells one request.
_LARGEST_TOTAL = 2.0**53


@frozen
class GatewaySample:
    """One successful read of one gateway: what it says of one workload at monotonic time ``at``.

    ``pending`` is 0.0 where no series is the workload's. ``refused`` and ``arrivals`` are totals per series, because a
    reset shows only there; ``arrivals`` is None where the gateway does not count them. ``in_flight``: ``pending``
    includes what replicas are answering. ``doubt`` says which of the workload's series could not be used, so that the
    others are a lower bound ("": none). ``seconds`` is how long the read took.
    """

    at: float
    pending: float = 0.0
    refused: Mapping[str, float] = field(default_factory=dict)
    arrivals: Mapping[str, float] | None = None
    in_flight: bool = False
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    doubt: str = ""


@frozen
class GatewayPage:
    """One whole page of one gateway, of which every workload behind it takes its own series."""

    at: float
    exposition: Exposition
    seconds: float


def read_page(body: str, preset: GatewayPreset, at: float, seconds: float) -> GatewayPage:
    """A ``/metrics`` body that was read at ``at`` (monotonic) in ``seconds``. Raises
    :class:`scaler.signals.exposition.ExpositionError` if it is none.
    """
    return GatewayPage(at, parse(body, preset.wanted.__contains__), seconds)


def read_gateway(
    page: GatewayPage, preset: GatewayPreset, match: Mapping[str, str], exclude: Mapping[str, str]
) -> GatewaySample:
    """What a page says of one workload, by ``preset``.

    Only series that have every label of ``match`` with exactly its value are the workload's; without ``match`` all are.
    Left out are those with a label value that ``exclude`` (values with ``|`` between) or the preset names.
    """
    no_demand: tuple[Mapping[str, Collection[str]], ...] = (
        preset.exclude,
        {label: values.split("|") for label, values in exclude.items()},
    )
    exposition = page.exposition
    warnings = []
    if exposition.bad_lines:
        warnings.append(f"unreadable lines of the gateway's metrics skipped: {exposition.bad_lines}")

    def ours(labels: Labels) -> bool:
        return all(labels.values.get(label) == value for label, value in match.items())

    def excluded(labels: Labels) -> bool:
        return any(labels.values.get(label) in values for listed in no_demand for label, values in listed.items())

    told: dict[str, dict[str, float]] = {}
    doubts: list[str] = []
    for key, family in preset.families.items():
        series = told[key] = {}
        for name, sample in _samples(family, exposition.samples):
            labels = sample.labels
            if ours(labels) and not excluded(labels) and _flagged(labels, family):
                if 0 <= sample.value <= (LARGEST_COUNT if family.kind == "gauge" else _LARGEST_TOTAL):
                    series[f"{name}{{{labels.text}}}"] = sample.value
                else:
                    doubts.append(f"{key}: {exposition.spellings[name]} is {sample.value:g}; that series is left out")
        doubts += [
            f"{key}: a line of {name} cannot be read"
            for name in sorted(exposition.damaged.keys() & sample_names(family))
            if any(_may_be_ours(line, match) for line in exposition.damaged[name])
        ]
    if match and not any(ours(sample.labels) for group in exposition.samples.values() for sample in group):
        warnings.append(_nothing_of_ours(preset, match, exposition.samples))
    return GatewaySample(
        at=page.at,
        pending=sum(told.get("pending", {}).values()),
        refused=told.get("refused", {}),
        arrivals=told.get("arrivals"),
        in_flight=preset.counts_in_flight,
        warnings=(*warnings, *doubts),
        seconds=page.seconds,
        doubt="; ".join(doubts),
    )


@frozen
class GatewayHistory:
    """What the next reads are counted from: each gateway's last good sample, by its URL. Empty at the start."""

    last: Mapping[str, GatewaySample] = field(default_factory=dict)


def fold_gateways(
    history: GatewayHistory, reads: Mapping[str, GatewaySample | ReadFailure]
) -> tuple[GatewayHistory, Demand | None]:
    """Take one read of every gateway into ``history``; the demand they show together (None: there are no gateways).

    Pending is what waits now plus what was refused since each gateway's last good read: both wanted a replica. A
    gateway's first read only is what the next is counted from. Where one cannot be read whole, what is shown is a lower
    bound: told if above zero, for it may wake, and not told else, for it proves nothing.
    """
    if not reads:
        return history, None
    pending = in_flight = arrived = 0.0
    counted_arrivals = False
    failures: list[str] = []
    doubts: dict[str, None] = {}
    warnings: dict[str, None] = {}
    last: dict[str, GatewaySample] = {}
    for url, read in reads.items():
        before = history.last.get(url)
        if isinstance(read, ReadFailure):
            failures.append(read.reason)
            if before is not None:
                last[url] = before
            continue
        warnings |= dict.fromkeys(read.warnings)
        doubts |= dict.fromkeys([read.doubt] if read.doubt else ())
        last[url] = read if before is None else _carried(before, read)
        pending += read.pending
        in_flight += read.pending if read.in_flight else 0.0
        if before is None or read.at <= before.at:
            continue
        pending += counters.increase(before.refused, read.refused)[0]
        if read.arrivals is not None:
            counted_arrivals = True
            arrived += counters.increase(before.arrivals or {}, read.arrivals)[0] / (read.at - before.at)
    unread = f"{len(failures)} of {len(reads)} gateways could not be read; {failures[0]}" if failures else ""
    reason = "; ".join((*filter(None, [unread]), *doubts))
    demand = Demand(
        at=min([read.at for read in reads.values()]),
        pending=(pending or None) if reason else pending,
        wake_requested=False,
        arrivals_per_second=((arrived or None) if reason else arrived) if counted_arrivals else None,
        reason=reason,
        in_flight=in_flight,
        warnings=tuple(warnings),
    )
    return GatewayHistory(last), demand


def _carried(before: GatewaySample, read: GatewaySample) -> GatewaySample:
    """What to count from next time: a series missing from one page comes back with its whole total."""
    totals = counters.carried(
        {"refused": before.refused, "arrivals": before.arrivals or {}},
        {"refused": read.refused, "arrivals": read.arrivals or {}},
    )
    return replace(read, refused=totals["refused"], arrivals=None if read.arrivals is None else totals["arrivals"])


def merge_demand(*demands: Demand | None) -> Demand | None:
    """Several sources' demand as one: it adds up. None where no source is configured.

    A source that does not know leaves the others' sum a lower bound, told only where it is above zero.
    """
    told = [demand for demand in demands if demand is not None]
    if len(told) <= 1:
        return told[0] if told else None
    known = [demand.pending for demand in told if demand.pending is not None]
    pending: float | None = sum(known)
    arrivals = [demand.arrivals_per_second for demand in told if demand.arrivals_per_second is not None]
    return Demand(
        at=min(demand.at for demand in told),
        pending=pending if len(known) == len(told) else pending or None,
        wake_requested=any(demand.wake_requested for demand in told),
        arrivals_per_second=sum(arrivals) if arrivals else None,
        reason="; ".join(demand.reason for demand in told if demand.reason),
        in_flight=sum(demand.in_flight for demand in told),
        warnings=tuple(warning for demand in told for warning in demand.warnings),
    )


def _samples(family: Family, samples: Mapping[str, tuple[Sample, ...]]) -> Iterable[tuple[str, Sample]]:
    """The family's samples under its best name, and those of every name that is added."""
    best = next((name for name in family.names if name in samples), None)
    for name in (best, *family.plus):
        if name is not None:
            yield from ((name, sample) for sample in samples.get(name, ()))


def _may_be_ours(line: str, match: Mapping[str, str]) -> bool:
    """Whether a line that cannot be read may be the workload's: one without its labels' values is another's, which
    must not cost all who share the gateway their knowledge.
    """
    return all(value in line for value in match.values())


def _flagged(labels: Labels, family: Family) -> bool:
    """Whether the series is one that ``where`` or ``or_where`` wants."""
    return _has(labels, family.where) or (bool(family.or_where) and _has(labels, family.or_where))


def _has(labels: Labels, wanted: Mapping[str, frozenset[str]]) -> bool:
    """Whether each label has one of its values; ``UF,URX`` are two flags."""
    return all(not allowed.isdisjoint(labels.values.get(label, "").split(",")) for label, allowed in wanted.items())


def _nothing_of_ours(preset: GatewayPreset, match: Mapping[str, str], samples: Mapping[str, tuple[Sample, ...]]) -> str:
    """Not an error (nobody may have asked yet), but the commonest way to never wake is a wrong label."""
    wanted = ", ".join(f'{label}="{value}"' for label, value in match.items())
    if not samples:
        return f"gateway {preset.name}: none of its request metrics is on the page yet, so nothing of {wanted}"
    there = {
        label: {sample.labels.values.get(label, "") for group in samples.values() for sample in group} - {""}
        for label in match
    }
    listed = "; ".join(
        f"{label}: {', '.join(sorted(values)[:_SHOWN])}{', ...' if len(values) > _SHOWN else ''}"
        if values
        else f"{label}: no series has it (usual labels: {', '.join(preset.match_labels)})"
        for label, values in there.items()
    )
    return f"gateway {preset.name}: no series of {wanted} yet; on the page there is {listed}"
