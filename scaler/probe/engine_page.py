"""An engine's metrics page, looked at as the scaler reads it: which alias matched, what it says, what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scaler.probe.losses import disabled_by
from scaler.probe.report import FamilyFound
from scaler.serve.quantities import duration, number
from scaler.signals.exposition import Exposition, Sample
from scaler.signals.family import Family, sample_names
from scaler.signals.observation import SECONDS_SPENT, EngineSample
from scaler.signals.preset import FAMILIES, PROCESS_START, Preset

_SHOWN = 8


def families_found(
    exposition: Exposition, preset: Preset, sample: EngineSample, now_unix: float
) -> tuple[FamilyFound, ...]:
    """Every family of the catalog of families, in its order. ``sample`` is what the scaler reads of the same page."""
    return tuple(_family(key, exposition, preset, sample, now_unix) for key in FAMILIES)


def _family(key: str, exposition: Exposition, preset: Preset, sample: EngineSample, now_unix: float) -> FamilyFound:
    if key in preset.not_applicable:
        return FamilyFound(key, "not applicable", note=preset.not_applicable[key].partition(": ")[2])
    family = preset.families.get(key)
    if family is None:
        derived = "derived from what finished and what is inside" if key == "arrivals" else disabled_by(key)
        return FamilyFound(key, "not applicable", note=f"this engine has none; {derived}")
    name = matched_name(family, exposition.samples)
    if name is None:
        if _value(key, sample):
            return FamilyFound(key, "nothing yet", note="appears with the first request; read as none until then")
        return FamilyFound(key, "missing", note=disabled_by(key))
    age = _age(exposition.samples[name], now_unix)
    spelled = exposition.spellings[name]
    if family.kind == "histogram":
        spelled = spelled.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
    value = _value(key, sample)
    if not value:
        return FamilyFound(key, "missing", spelled, "", age, f"there, but not usable; {disabled_by(key)}".rstrip("; "))
    derived_from = family.derived is not None and name in family.derived.names
    note = "stands in for a metric of its own" if derived_from else ""
    return FamilyFound(key, "estimated" if derived_from else "found", spelled, value, age, note)


def matched_name(family: Family, there: Mapping[str, object]) -> str | None:
    """The normalised sample name that the family is read from: the first alias that is there; None: it is not."""
    return next((name for name in sample_names(family) if name in there), None)


def _value(key: str, sample: EngineSample) -> str:
    """What the scaler reads of the family, in words; "" where it reads nothing."""
    if key in sample.gauges:
        value = sample.gauges[key]
        return f"{value:.1%}" if key == "kv_use" else number(value)
    spent = SECONDS_SPENT.get(key, "")
    if spent in sample.counters:
        return f"{duration(sum(sample.counters[spent].values()))} spent so, in all"
    if key in sample.counters:
        return f"{number(sum(sample.counters[key].values()))} in all"
    if key in sample.histograms:
        series = sample.histograms[key].values()
        count, total = sum(each.count for each in series), sum(each.sum for each in series)
        if not count or not math.isfinite(total):
            return f"{number(count)} samples"
        mean = number(total / count) + " tokens" if key.endswith("_length") else duration(total / count)
        return f"{number(count)} samples, mean {mean}"
    return ""


def _age(samples: Sequence[Sample], now_unix: float) -> float | None:
    stamps = [sample.unix for sample in samples if sample.unix is not None]
    return max(0.0, now_unix - max(stamps)) if stamps else None


def models_of(exposition: Exposition, preset: Preset) -> tuple[str, ...]:
    """The served models that the page names, sorted."""
    return _values(exposition, preset, preset.model_label)


def copies_of(exposition: Exposition, preset: Preset) -> tuple[str, ...]:
    """What is said of several engines and rank copies on the page, one line each."""
    told = []
    engines = _values(exposition, preset, preset.engine_label)
    if len(engines) > 1:
        told.append(
            f"{len(engines)} engines in one replica ({preset.engine_label} = {_listed(engines)}): "
            "their requests are added, of ratios the greatest counts"
        )
    for label in sorted(preset.rank_labels):
        ranks = _values(exposition, preset, label)
        if len(ranks) > 1:
            told.append(f"{len(ranks)} copies by {label} ({_listed(ranks)}): they count once, the greatest of them")
    return tuple(told)


def started(exposition: Exposition, now_unix: float) -> tuple[str, ...]:
    """How long the engine's process runs, if it says so."""
    starts = [sample.value for sample in exposition.samples.get(PROCESS_START, ()) if math.isfinite(sample.value)]
    if starts:
        return (f"its process runs for {duration(max(0.0, now_unix - max(starts)))}",)
    return ("it does not say when its process started: a restart shows only where a counter falls",)


def _values(exposition: Exposition, preset: Preset, label: str | None) -> tuple[str, ...]:
    if label is None:
        return ()
    found = {
        sample.labels.values.get(label, "")
        for name, samples in exposition.samples.items()
        if name in preset.wanted
        for sample in samples
    }
    return tuple(sorted(found - {""}))


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
