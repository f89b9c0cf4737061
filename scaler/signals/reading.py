"""Turns one endpoint's samples into one :class:`EngineSample`, by the engine's preset: the same rules for a metrics
body and for what a Prometheus tells of it.

What may not be trusted is left out, never guessed: a family that is absent here is *unknown* to the window fold, and
unknown never lowers anything. So a NaN gauge takes its whole family with it (the sum of the others would look like less
load), and every such loss is a warning that says what was lost and why.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from scaler.signals import quantity
from scaler.signals.exposition import Exposition, ExpositionError, Sample, parse
from scaler.signals.family import Family, sample_names
from scaler.signals.observation import SECONDS_SPENT, Buckets, EngineSample
from scaler.signals.preset import PROCESS_START, Preset
from scaler.signals.quantity import NotAQuantityError, present

#: A sample with an explicit time stamp older than this describes the past (a gateway's memory of a pod that is gone).
STALE_AFTER_SECONDS: Final = 45.0

#: Families that are born with the first request at the latest. Once that is counted, one of them that is absent is not
#: unborn but renamed, and must not be read as zero.
_BORN_WITH_THE_FIRST_REQUEST: Final = ("running", "waiting", "finished", "prompt_tokens", "generation_tokens")
_COUNTS_THE_FIRST_REQUEST: Final = ("finished", "generation_tokens")


def read_engine(
    body: str, preset: Preset, at: float, *, model_name: str | None, now_unix: float, seconds: float
) -> EngineSample:
    """Apply ``preset`` to a whole ``/metrics`` body that was read at monotonic time ``at`` in ``seconds``.

    ``model_name``: read only series of this served model (exact match); None reads the preset's default model, or all.
    ``now_unix`` is Unix seconds, for judging explicit time stamps.

    Raises :class:`ExpositionError` if the body is none, or has none of the engine's metrics.
    """
    exposition = parse(body, preset.wanted.__contains__)
    if exposition.samples.keys() <= {PROCESS_START}:
        raise ExpositionError(_wrong_engine(exposition, preset))
    warnings = _damage(exposition)
    samples, old = _fresh(exposition.samples, now_unix - STALE_AFTER_SECONDS)
    if old:
        warnings.append(f"samples older than {STALE_AFTER_SECONDS:g} s left out: {old}")
    sample = engine_sample(
        samples,
        exposition.spellings,
        preset,
        at,
        model_name=model_name,
        seconds=seconds,
        warnings=warnings,
        lost=frozenset(exposition.damaged.keys() | (exposition.samples.keys() - samples.keys())),
    )
    return replace(sample, dropped_series=old) if old else sample


def engine_sample(
    samples: Mapping[str, Sequence[Sample]],
    spellings: Mapping[str, str],
    preset: Preset,
    at: float,
    *,
    model_name: str | None,
    seconds: float,
    warnings: Iterable[str] = (),
    lost: frozenset[str] = frozenset(),
) -> EngineSample:
    """Apply ``preset`` to one endpoint's samples of monotonic time ``at``, from wherever they came.

    ``samples`` and ``spellings`` are keyed by normalised names, as in :class:`Exposition`; ``spellings`` has also the
    names of which no sample is usable. ``warnings`` are what is to be said about them already. ``lost`` are names with
    lines that cannot be used: a family that lacks some is unknown, neither what its others add up to nor unborn. (Of a
    histogram a lost line costs its series a bucket, or the series.)

    Inside the endpoint rank copies count once (the greatest), data-parallel engines are summed, and a ratio is the
    greatest of its engines, with the mean beside it as ``<family>_mean``.
    """
    told = list(warnings)
    chosen, complaint = _of_model(samples, preset, model_name or preset.default_model)
    if complaint:
        told.append(complaint)
    # Where nothing of the wanted model is on the page nothing of it is unborn either: the name may be wrong.
    unborn = _unborn(preset, chosen) if chosen else frozenset[str]()
    ranks = preset.rank_labels
    gauges: dict[str, float] = {}
    counters: dict[str, Mapping[str, float]] = {}
    histograms: dict[str, Mapping[str, Buckets]] = {}
    for key, family in preset.families.items():
        name = present(family, chosen)
        source = name or _present_derived(family, chosen)
        less = lost.intersection(sample_names(family)) if lost else ()
        if less and (key in unborn if source is None else family.kind != "histogram"):
            told.append(f"{key}: lines of {', '.join(sorted(less))} are lost; read as unknown")
            continue
        if source is None:
            if key in unborn:
                _read_unborn(key, family, gauges, counters, histograms)
            elif family.if_absent and spellings.keys().isdisjoint(sample_names(family)):
                told.append(family.if_absent)
            continue
        try:
            if name is None:
                assert family.derived is not None
                if family.kind == "gauge":
                    counters[SECONDS_SPENT[key]] = quantity.seconds_spent(source, family.derived, chosen, ranks)
                    told.append(f"{key} is estimated from {spellings[source]}")
                else:
                    histograms[key] = quantity.mean(source, family.derived, chosen, ranks)
            elif family.kind == "gauge":
                gauges.update(quantity.gauge(key, name, family, chosen, ranks))
            elif family.kind == "info":
                if (value := quantity.info(name, family, chosen, preset.engine_label)) is not None:
                    gauges[key] = value
            elif family.kind == "counter":
                counters[key] = quantity.counter(name, family, chosen, ranks)
            else:
                histograms[key], broken = quantity.histogram(name, family, chosen, ranks)
                if broken:
                    spelled = spellings[f"{name}_bucket"].removesuffix("_bucket")
                    told.append(f"{key}: malformed series of {spelled} left out: {broken}")
        except NotAQuantityError as error:
            told.append(f"{key}: {spellings[source]} {error}; read as unknown")

    started = [sample.value for sample in samples.get(PROCESS_START, ()) if math.isfinite(sample.value)]
    return EngineSample(
        at=at,
        process_start_seconds=max(started, default=None),
        gauges=gauges,
        counters=counters,
        histograms=histograms,
        warnings=tuple(told),
        seconds=seconds,
        not_applicable=preset.not_applicable,
        identity=_identity(chosen, preset),
    )


def _identity(samples: _Samples, preset: Preset) -> str:
    """What the page says of itself that a rollout would change: the served model, and which facts the engine tells of
    its configuration (other versions tell others). Not their values: two equal replicas' KV caches differ by a little.
    """
    told = {name for family in preset.families.values() if family.kind == "info" for name in family.names}
    facts = sorted({label for name in told for sample in samples.get(name, ()) for label in sample.labels.values})
    label = preset.model_label or ""
    model = next((sample.labels.values.get(label, "") for group in samples.values() for sample in group), "")
    digest = hashlib.blake2s(",".join(facts).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{preset.name} {model} {digest}" if facts else f"{preset.name} {model}"


_Samples = Mapping[str, Sequence[Sample]]


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


def _present_derived(family: Family, chosen: _Samples) -> str | None:
    names = family.derived.names if family.derived else ()
    return next((name for name in names if name in chosen), None)


def _unborn(preset: Preset, chosen: _Samples) -> frozenset[str]:
    """The families whose absence means that nothing of theirs has happened yet."""
    counted = any(key in preset.families and present(preset.families[key], chosen) for key in _COUNTS_THE_FIRST_REQUEST)
    return frozenset(
        key
        for key, family in preset.families.items()
        if family.born_at_first_increment and not (counted and key in _BORN_WITH_THE_FIRST_REQUEST)
    )


def _read_unborn(
    key: str,
    family: Family,
    gauges: dict[str, float],
    counters: dict[str, Mapping[str, float]],
    histograms: dict[str, Mapping[str, Buckets]],
) -> None:
    """Reported, and nothing counted yet."""
    match family.kind:
        case "gauge":
            gauges[key] = 0.0
        case "counter":
            counters[key] = {}
        case "histogram":
            histograms[key] = {}


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
