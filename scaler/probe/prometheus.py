"""A Prometheus looked at through its API: which presets' families have series, of which workloads, and how old. A few
queries whatever it holds; what they say is put in order by pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from scaler.policy.promql import quoted
from scaler.probe.engine_page import matched_name
from scaler.probe.fitting import Fit, apart, fits, wanted_names
from scaler.probe.losses import disabled_by
from scaler.probe.policy_lines import Declared, gpu_source_lines, prometheus_lines
from scaler.probe.report import FamilyFound, Report, Status
from scaler.serve.quantities import duration
from scaler.signals.dcgm import FIELDS, read_rows
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.exposition import normalised
from scaler.signals.kube_state import METRICS
from scaler.signals.preset import FAMILIES, PROCESS_START, Preset, load_preset
from scaler.signals.prometheus.answer import Answer
from scaler.signals.prometheus.gpus import by_cluster, query
from scaler.value import frozen

#: Workloads that are listed, and for which policy lines are written.
_LISTED, _WRITTEN = 12, 5
#: A sample older than this is of a pod that is gone, or of a Prometheus that scrapes rarely.
_OLD_SECONDS: Final = 60.0

Ask: TypeAlias = Callable[[str], Awaitable[Answer]]


@frozen
class Bound:
    """One workload's series: the labels that bind them, and how many replicas have them."""

    match: Mapping[str, str]
    replicas: int


@frozen
class Held:
    """What a Prometheus holds of one engine. ``spelled`` are the names that are there; ages are in seconds, by family,
    of its newest sample; ``oldest_seconds`` of any replica's. ``labels`` are those of one series.
    """

    fit: Fit
    spelled: Mapping[str, str]
    workloads: tuple[Bound, ...]
    ages: Mapping[str, float]
    oldest_seconds: float | None
    labels: Mapping[str, str]


async def look_at_prometheus(
    ask: Ask, url: str, headers: Mapping[str, str], *, engine: str | None = None, model: str | None = None
) -> Report:
    """What the Prometheus at ``url`` holds; ``ask`` evaluates a query. ``headers`` are those that were sent.

    Raises :class:`~scaler.signals.prometheus.api.QueryError`, and :class:`~scaler.signals.family.PresetError` for an
    ``engine`` that is not known.
    """
    if engine is not None:
        load_preset(engine)
    answer = await ask(names_query())
    series = {row.labels["__name__"]: int(row.value) for row in answer.rows if "__name__" in row.labels}
    spelled: dict[str, str] = {}
    for name in sorted(series):  # of two spellings of one name the scaler, too, takes the first
        spelled.setdefault(normalised(name), name)
    found = fits(frozenset(spelled))
    taken, less = apart(fit for fit in found if engine is None or fit.name == engine)
    if engine is not None and not taken:
        taken, less = tuple(fit for fit in less if fit.name == engine), ()
    held = [await _held(ask, fit, spelled, model) for fit in taken]
    gateways = [fit for fit in found if fit.kind == "gateway" and fit.share == 1]
    warnings = [f"partial data: {answer.partial}"] if answer.partial else []
    if engine is not None and not taken:
        warnings.append(f"engine {engine} was named, but no series of it is there")
    gpus = None
    if any(name in series for name in FIELDS):
        rows = by_cluster(await ask(query(None))).values()
        gpus = DcgmGpus(read_rows(row for each in rows for row in each))
    return _report(url, headers, series, held, less, gateways, model, warnings, gpus)


def names_query() -> str:
    """How many series there are of every name that any preset reads. Of histograms buckets are not counted."""
    names = sorted(name for name in wanted_names() if not name.endswith("_bucket") and name != PROCESS_START)
    return f'count by (__name__) ({{__name__=~"{"|".join(re.sub("_", "[:_]", name, count=2) for name in names)}"}})'


def binding_labels(preset: Preset) -> tuple[str, ...]:
    """The labels that tell workloads of one engine apart."""
    return ("cluster", "namespace", preset.model_label or "job")


def workloads_query(preset: Preset, name: str) -> str:
    """Replicas by workload: a replica may have many series."""
    binding = ", ".join(binding_labels(preset))
    replicas = f"count by ({binding}, pod, exported_pod, instance) ({_series(name)})"
    return f"count by ({binding}) ({replicas})"


def ages_query(names: Mapping[str, str], presence: str) -> str:
    """The age of each family's newest sample (label ``family``), and of the oldest of ``presence`` (``oldest``)."""
    newest = [_labelled(f"min(time() - timestamp({_series(name)}))", family) for family, name in names.items()]
    return " or ".join([*newest, _labelled(f"max(time() - timestamp({_series(presence)}))", "oldest")])


def _labelled(expression: str, family: str) -> str:
    return f'label_replace({expression}, "family", {quoted(family)}, "", "")'


def _series(name: str) -> str:
    return f"{{__name__={quoted(name)}}}"


async def _held(ask: Ask, fit: Fit, spelled: Mapping[str, str], model: str | None) -> Held:
    preset = load_preset(fit.name)
    names = {
        key: spelled[name]
        for key, family in preset.families.items()
        if (name := matched_name(family, spelled)) is not None
    }
    presence = next(names[key] for key in FAMILIES if key in names)
    rows = (await ask(workloads_query(preset, presence))).rows
    bound = [Bound(_match(preset, row.labels), int(row.value)) for row in rows]
    if model is not None and preset.model_label is not None:
        bound = [each for each in bound if each.match.get(preset.model_label) == model]
    ages = {row.labels.get("family", ""): row.value for row in (await ask(ages_query(names, presence))).rows}
    one = (await ask(f"topk(1, {_series(presence)})")).rows
    return Held(
        fit,
        names,
        tuple(sorted(bound, key=lambda each: list(each.match.values()))),
        {family: max(0.0, age) for family, age in ages.items() if family != "oldest"},
        ages.get("oldest"),
        one[0].labels if one else {},
    )


def _match(preset: Preset, labels: Mapping[str, str]) -> dict[str, str]:
    return {label: labels[label] for label in binding_labels(preset) if labels.get(label)}


def _report(
    url: str,
    headers: Mapping[str, str],
    series: Mapping[str, int],
    held: Sequence[Held],
    less: Sequence[Fit],
    gateways: Sequence[Fit],
    model: str | None,
    warnings: list[str],
    gpus: DcgmGpus | None,
) -> Report:
    facts = []
    for each in held:
        replicas = sum(bound.replicas for bound in each.workloads)
        facts.append(f"engine {each.fit}: workloads: {len(each.workloads)}, replicas: {replicas}")
        facts += [f"  {_labels(bound.match)}: replicas: {bound.replicas}" for bound in each.workloads[:_LISTED]]
        if len(each.workloads) > _LISTED:
            facts.append(f"  and {len(each.workloads) - _LISTED} more")
        facts.append(f"  replicas are told apart by {_replica_label(each.labels)}")
        warnings += _warnings(each, model)
    if less:
        facts.append(f"fits less: {', '.join(map(str, less))}")
    facts += [f"gateway {each.name}: its series are there; its own page is read: gateway.urls" for each in gateways]
    facts += [_dcgm(gpus, series), _kube_state(series)]
    bindable = [
        Declared(each.fit.name, bound.match, None if gpus is None else bound.match.get("namespace") in _holding(gpus))
        for each in held
        for bound in each.workloads
        if bound.match
    ]
    policy = ""
    if bindable:
        policy = prometheus_lines(url, headers, bindable[:_WRITTEN], max(0, len(bindable) - _WRITTEN))
    elif gpus:
        policy = gpu_source_lines(url, headers)
    families = [family for each in held for family in _families(each, series, alone=len(held) == 1)]
    return Report("a Prometheus", bool(policy), tuple(facts), tuple(families), tuple(warnings), policy)


def _warnings(held: Held, model: str | None) -> list[str]:
    told = []
    if model is not None and not held.workloads:
        told.append(f"no series of engine {held.fit.name} names the model {model!r}")
    if any(not bound.match for bound in held.workloads):
        told.append(f"series of engine {held.fit.name} without any label that says whose they are cannot be bound")
    if held.oldest_seconds is not None and held.oldest_seconds > _OLD_SECONDS:
        told.append(
            f"engine {held.fit.name}: the oldest replica's sample is {duration(held.oldest_seconds)} old: a pod that "
            "is gone, or a Prometheus that scrapes rarely (then set prometheus.scrape_interval_seconds)"
        )
    return told


def _families(held: Held, series: Mapping[str, int], *, alone: bool) -> Iterable[FamilyFound]:
    preset = load_preset(held.fit.name)
    for key in FAMILIES:
        shown = key if alone else f"{preset.name} {key}"
        family = preset.families.get(key)
        if key in preset.not_applicable:
            yield FamilyFound(shown, "not applicable", note=preset.not_applicable[key].partition(": ")[2])
        elif key in held.spelled and family is not None:
            name = held.spelled[key]
            derived = family.derived is not None and normalised(name) in family.derived.names
            status: Status = "estimated" if derived else "found"
            shown_name = name.removesuffix("_count").removesuffix("_sum") if family.kind == "histogram" else name
            yield FamilyFound(shown, status, shown_name, f"{series[name]} series", held.ages.get(key))
        elif family is not None and family.born_at_first_increment:
            yield FamilyFound(shown, "nothing yet", note="appears with the first request; read as none until then")
        elif family is not None:
            yield FamilyFound(shown, "missing", note=disabled_by(key))


def _replica_label(labels: Mapping[str, str]) -> str:
    label = next((label for label in ("pod", "exported_pod", "instance") if labels.get(label)), None)
    return label or "nothing: no series has pod, exported_pod or instance"


def _dcgm(gpus: DcgmGpus | None, series: Mapping[str, int]) -> str:
    fields = [name for name in FIELDS if name in series]
    if gpus is None:
        return "DCGM: no series"
    held = ", ".join(_holding(gpus)) or "no namespace that is told: gpu.match must say by other labels whose they are"
    return f"DCGM: {len(fields)} of {len(FIELDS)} fields, {len(gpus)} GPUs or MIG instances, held by pods in: {held}"


def _holding(gpus: DcgmGpus) -> list[str]:
    """The namespaces of pods that hold a GPU, sorted."""
    return sorted({pod.namespace for gpu in gpus for pod in gpu.pods} - {""})


def _kube_state(series: Mapping[str, int]) -> str:
    if any(name in series for name in METRICS):
        return "kube-state-metrics: there; with target.name it counts replicas asked for where the cluster is not asked"
    return "kube-state-metrics: no series; replicas asked for are known only from the cluster itself"


def _labels(match: Mapping[str, str]) -> str:
    return ", ".join(f"{label}={quoted(value)}" for label, value in match.items()) or "no label to bind by"
