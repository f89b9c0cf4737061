"""Turns one metrics body into one :class:`EngineSample`, by the engine's preset.

What may not be trusted is left out, never guessed: a family that is absent here is *unknown* to the window fold, and
unknown never lowers anything. So a NaN gauge takes its whole family with it (the sum of the others would look like less
load), and every such loss is a warning that says what was lost and why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from scaler.signals.exposition import Exposition, ExpositionError, Labels, Sample, parse
from scaler.signals.observation import Buckets, EngineSample
from scaler.signals.preset import PROCESS_START, Family, Preset, sample_names

#: A sample with an explicit time stamp older than this describes the past (a gateway's memory of a pod that is gone).
STALE_AFTER_SECONDS: Final = 45.0

#: Ratios lie in 0..1, and a little over by rounding; beyond this the value is something else (a percentage).
LARGEST_RATIO: Final = 1.5


def read_engine(
    body: str, preset: Preset, at: float, *, model_name: str | None, now_unix: float, seconds: float
) -> EngineSample:
    """Apply ``preset`` to a whole ``/metrics`` body that was read at monotonic time ``at`` in ``seconds``.

    ``model_name``: read only series of this served model (exact match); None reads all. ``now_unix`` is Unix seconds,
    for judging explicit time stamps.

    Inside the endpoint rank copies count once (the greatest), data-parallel engines are summed, and a ratio is the
    greatest of its engines, with the mean beside it as ``<family>_mean``.

    Raises :class:`ExpositionError` if the body is none, or has none of the engine's metrics.
    """
    exposition = parse(body, preset.wanted.__contains__)
    if exposition.samples.keys() <= {PROCESS_START}:
        raise ExpositionError(_wrong_engine(exposition, preset))
    warnings = _damage(exposition)
    samples, old = _fresh(exposition.samples, now_unix - STALE_AFTER_SECONDS)
    if old:
        warnings.append(f"samples older than {STALE_AFTER_SECONDS:g} s left out: {old}")

    chosen, complaint = _of_model(samples, preset, model_name)
    if complaint:
        warnings.append(complaint)
    gauges: dict[str, float] = {}
    counters: dict[str, Mapping[str, float]] = {}
    histograms: dict[str, Mapping[str, Buckets]] = {}
    for key, family in preset.families.items():
        name = next((name for name in family.names if _marker(name, family) in chosen), None)
        if name is None:
            if family.if_absent and exposition.samples.keys().isdisjoint(sample_names(family)):
                warnings.append(family.if_absent)
            continue
        try:
            match family.kind:
                case "gauge":
                    gauges.update(_gauge(key, family, _per_engine(chosen[name], preset)))
                case "info":
                    if (value := _info(chosen[name], family, preset)) is not None:
                        gauges[key] = value
                case "counter":
                    counters[key] = _per_engine(chosen[name], preset)
                case "histogram":
                    histograms[key], broken = _histogram(name, chosen, preset)
                    if broken:
                        spelled = exposition.spellings[f"{name}_bucket"].removesuffix("_bucket")
                        warnings.append(f"{key}: malformed series of {spelled} left out: {broken}")
        except _NotAQuantityError as error:
            warnings.append(f"{key}: {exposition.spellings[name]} {error}; read as unknown")

    started = [sample.value for sample in samples.get(PROCESS_START, ()) if math.isfinite(sample.value)]
    return EngineSample(
        at=at,
        process_start_seconds=max(started, default=None),
        gauges=gauges,
        counters=counters,
        histograms=histograms,
        warnings=tuple(warnings),
        seconds=seconds,
    )


class _NotAQuantityError(Exception):
    """A value that cannot be what its family measures; the text goes on from the metric's name."""


_Samples = Mapping[str, tuple[Sample, ...]]


def _marker(name: str, family: Family) -> str:
    """The sample whose presence means that the family is exposed under ``name``."""
    return f"{name}_bucket" if family.kind == "histogram" else name


def _damage(exposition: Exposition) -> list[str]:
    warnings = []
    if exposition.bad_lines:
        warnings.append(f"unreadable lines of the metrics skipped: {exposition.bad_lines}")
    if exposition.duplicates:
        warnings.append(f"lines that repeat a series (the first one counts): {exposition.duplicates}")
    return warnings


def _fresh(samples: _Samples, oldest_unix: float) -> tuple[_Samples, int]:
    """The samples without those whose own time stamp is too old, and how many those were."""
    old = sum(sample.unix is not None and sample.unix < oldest_unix for group in samples.values() for sample in group)
    if not old:  # nearly always: engines write no time stamps
        return samples, 0
    kept = {
        name: tuple(sample for sample in group if sample.unix is None or sample.unix >= oldest_unix)
        for name, group in samples.items()
    }
    return {name: group for name, group in kept.items() if group}, old


def _of_model(samples: _Samples, preset: Preset, model_name: str | None) -> tuple[_Samples, str]:
    """The engine's samples of the wanted model, and what a person should know about the choice ("" if nothing)."""
    label = preset.model_label
    if label is None:
        ignored = f"engine {preset.name} does not name its model in the metrics; model_name is not applied"
        return samples, "" if model_name is None else ignored
    models = {sample.labels.values.get(label) for group in samples.values() for sample in group} - {None, ""}
    names = ", ".join(f'"{name}"' for name in sorted(filter(None, models))) or "none"
    if model_name is None:
        shared = f"{len(models)} models share the endpoint and are added up: {names}; choose one with model_name"
        return samples, shared if len(models) > 1 else ""
    if model_name not in models:
        return {}, f'no metrics of {label}="{model_name}"; the models that are there: {names}'
    # Information about the whole process carries no model, and belongs to every one.
    unnamed = {name for family in preset.families.values() if family.kind == "info" for name in family.names}
    kept = {
        name: tuple(
            sample
            for sample in group
            if sample.labels.values.get(label, model_name if name in unnamed else None) == model_name
        )
        for name, group in samples.items()
    }
    return {name: group for name, group in kept.items() if group}, ""


def _per_engine(samples: Iterable[Sample], preset: Preset) -> dict[str, float]:
    """Label text → value, rank copies counted once. Raises :class:`_NotAQuantityError` unless finite and ≥ 0."""
    values: dict[str, float] = {}
    for labels, value, _ in samples:
        if not 0 <= value < math.inf:
            raise _NotAQuantityError(f"is {value:g}")
        series = _without_ranks(labels, preset.rank_labels)
        values[series] = max(value, values.get(series, 0.0))
    return values


def _without_ranks(labels: Labels, rank_labels: frozenset[str]) -> str:
    """The series' label text without the labels in which rank copies differ (and without ``le``)."""
    if rank_labels.isdisjoint(labels.values):
        return labels.series
    kept = sorted(item for item in labels.values.items() if item[0] not in rank_labels and item[0] != "le")
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in kept)
    return ",".join(f'{name}="{value}"' for name, value in escaped)


def _gauge(key: str, family: Family, per_engine: Mapping[str, float]) -> dict[str, float]:
    values = [value * family.scale for value in per_engine.values()]
    total, greatest = sum(values), max(values)
    if family.combine == "sum":
        if total == math.inf:
            raise _NotAQuantityError("is too large to add up")
        return {key: total}
    if greatest > LARGEST_RATIO:
        raise _NotAQuantityError(f"is {greatest:g}, which is no ratio (a percentage needs scale: 0.01 in the preset)")
    return {key: greatest, f"{key}_mean": total / len(values)}


def _info(samples: Iterable[Sample], family: Family, preset: Preset) -> float | None:
    """The number that stands in labels: of each engine the greatest (an engine that changes its mind leaves its old
    series behind), then the sum. None if no series has one.
    """
    engines: dict[str, float] = {}
    for sample in samples:
        products = (_product(sample.labels.values, names) for names in family.labels)
        value = next((product for product in products if product is not None), None)
        if value is not None:
            engine = sample.labels.values.get(preset.engine_label or "", "")
            engines[engine] = max(value, engines.get(engine, 0.0))
    total = sum(engines.values())
    return total if engines and total < math.inf else None


def _product(values: Mapping[str, str], names: Sequence[str]) -> float | None:
    """The product of labels that are counts; None if one is missing or none (vLLM writes "None")."""
    texts = [values.get(name, "") for name in names]
    return math.prod(map(float, texts)) if all(text.isascii() and text.isdigit() for text in texts) else None


def _histogram(name: str, samples: _Samples, preset: Preset) -> tuple[dict[str, Buckets], int]:
    """Label text → buckets of every whole series (of rank copies the one with most in it); how many are malformed."""
    rows: dict[str, list[tuple[float, float]]] = {}
    kept_labels: dict[str, Labels] = {}
    for labels, value, _ in samples[f"{name}_bucket"]:
        series = labels.series
        if series not in rows:
            rows[series], kept_labels[series] = [], labels
        rows[series].append((labels.bound, value))
    sums = {labels.series: value for labels, value, _ in samples.get(f"{name}_sum", ())}
    counts = {labels.series: value for labels, value, _ in samples.get(f"{name}_count", ())}

    whole: dict[str, Buckets] = {}
    broken = 0
    for series, row in rows.items():
        buckets = _buckets(row, sums.get(series, math.nan), counts.get(series))
        if buckets is None:
            broken += 1
            continue
        key = _without_ranks(kept_labels[series], preset.rank_labels)
        if key not in whole or whole[key].count < buckets.count:
            whole[key] = buckets
    return whole, broken


def _buckets(rows: list[tuple[float, float]], total: float, count: float | None) -> Buckets | None:
    """One series put together; None unless it is whole: distinct bounds up to +Inf, counts that never fall, a sum."""
    rows = sorted(rows)
    bounds, cumulative = zip(*rows, strict=True)
    count = cumulative[-1] if count is None else count
    whole = (
        not any(map(math.isnan, bounds))
        and bounds[-1] == math.inf
        and len(set(bounds)) == len(bounds)
        and all(map(math.isfinite, (*cumulative, total, count)))
        and cumulative[0] >= 0
        and list(cumulative) == sorted(cumulative)
    )
    return Buckets(bounds, cumulative, total, count) if whole else None


def _wrong_engine(exposition: Exposition, preset: Preset) -> str:
    """What the body has instead of the engine's metrics, as prefixes: usually the name of another engine."""
    ordinary = {"python_", "process_", "http_", "go_", "promhttp_"}
    prefixes = {
        name.partition(":")[0] + ":" if ":" in name else name.partition("_")[0] + "_" for name in exposition.names
    }
    others = sorted(prefixes - ordinary, key=lambda prefix: (not prefix.endswith(":"), prefix))[:5]
    if not others:
        return f"the body has none of the metrics of engine: {preset.name}; is the engine still loading?"
    return f"the body has {', '.join(others)} metrics; is engine: {preset.name} right?"
