"""A metrics page looked at as a whole: whose it is, what it holds for loadtide, and how it is declared. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaler.probe.engine_page import copies_of, families_found, models_of, started
from scaler.probe.fitting import Fit, fits, wanted_names
from scaler.probe.policy_lines import dcgm_lines, gateway_lines, scrape_lines
from scaler.probe.report import FamilyFound, Report
from scaler.serve.quantities import duration, number
from scaler.signals.dcgm import FIELDS, DcgmGpu, read_text
from scaler.signals.exposition import Exposition, ExpositionError, parse
from scaler.signals.family import Family
from scaler.signals.gateway import GatewayPage, read_gateway
from scaler.signals.gateway_preset import GatewayPreset, load_gateway_preset
from scaler.signals.kube_state import METRICS
from scaler.signals.preset import load_preset
from scaler.signals.reading import read_engine

_SHOWN = 8


def look_at_page(
    body: str, url: str, now_unix: float, *, engine: str | None = None, model: str | None = None
) -> Report:
    """What the page at ``url`` is and holds. ``engine`` and ``model`` are what the caller says of it.

    Raises :class:`ExpositionError` for a body that is no metrics page, and
    :class:`~scaler.signals.family.PresetError` for an engine that is not known.
    """
    if engine is not None:
        load_preset(engine)
    exposition = parse(body, wanted_names().__contains__)
    there = frozenset(exposition.samples)
    found = fits(there)
    best = found[0] if found else None
    if engine is not None and (best is None or best.name != engine):
        chosen = next((fit for fit in found if (fit.kind, fit.name) == ("engine", engine)), None)
        said = f"engine {engine} was named, but this page fits {best} better" if best else ""
        if chosen is None:
            return _not_the_engine(exposition, engine, best)
        return _engine_page(body, url, exposition, chosen, found, now_unix, model, (said,))
    if best is not None and best.kind == "engine":
        return _engine_page(body, url, exposition, best, found, now_unix, model, ())
    if best is not None:
        return _gateway_page(exposition, url, best)
    if there & FIELDS.keys():
        return _dcgm_page(read_text(body, now_unix), url, exposition)
    if there & {*METRICS}:
        return Report(
            "a kube-state-metrics page",
            False,
            ("loadtide reads its counts through a Prometheus (prometheus.source with target.name), not from its page",),
        )
    return _nothing(exposition)


def _engine_page(
    body: str,
    url: str,
    exposition: Exposition,
    fit: Fit,
    found: Sequence[Fit],
    now_unix: float,
    model: str | None,
    said: Sequence[str],
) -> Report:
    preset = load_preset(fit.name)
    warnings = [*said]
    try:
        sample = read_engine(body, preset, 0.0, model_name=model, now_unix=now_unix, seconds=0.0)
    except ExpositionError as error:
        return Report(f"a metrics page like engine {fit.name}'s", False, warnings=(*warnings, str(error)))
    warnings += sample.warnings
    models = models_of(exposition, preset)
    if model is not None and preset.model_label is not None and model not in models:
        return Report(f"a metrics page of engine {fit.name}", False, warnings=tuple(warnings))
    families = families_found(exposition, preset, sample, now_unix)
    facts = [f"engine: {fit}"]
    if len(others := [str(each) for each in found if each is not fit]):
        facts.append(f"fits less: {', '.join(others)}")
    if preset.model_label is not None:
        facts.append(f"models ({preset.model_label}): {_listed(models) or 'none named'}")
    facts += [*copies_of(exposition, preset), *started(exposition, now_unix), _ages(families)]
    policy_model = model if model is not None and preset.model_label is not None else None
    of_many = () if preset.default_model in models else models  # an ensemble's parts are no models to choose from
    return Report(
        f"a metrics page of engine {fit.name}",
        True,
        tuple(facts),
        families,
        tuple(warnings),
        scrape_lines(url, fit.name, of_many, policy_model),
    )


def _ages(families: Sequence[FamilyFound]) -> str:
    ages = [family.age_seconds for family in families if family.age_seconds is not None]
    if not ages:
        return "samples carry no time stamps: they are of now"
    return f"samples carry time stamps: the oldest is {duration(max(ages))} old"


def _gateway_page(exposition: Exposition, url: str, fit: Fit) -> Report:
    preset = load_gateway_preset(fit.name)
    sample = read_gateway(GatewayPage(0.0, exposition, 0.0), preset, {}, {})
    told = {
        "pending": f"{number(sample.pending)} now" if "pending" in fit.found else "",
        "refused": f"{number(sum(sample.refused.values()))} in all",
        "arrivals": f"{number(sum((sample.arrivals or {}).values()))} in all",
    }
    families = []
    for key in ("pending", "refused", "arrivals"):
        family = preset.families.get(key)
        if family is None:
            if key != "arrivals":
                families.append(FamilyFound(key, "not applicable", note="this gateway does not report it"))
        elif key in fit.found:
            families.append(FamilyFound(key, "found", _spelled(exposition, family), told[key]))
        else:
            families.append(
                FamilyFound(key, "nothing yet", note="appears with its first value; read as none until then")
            )
    label, values = _binding(exposition, preset)
    facts = [f"gateway: {fit}"]
    if label:
        facts.append(f"{label}: {_listed(values)}")
    if preset.counts_in_flight:
        facts.append("pending includes requests that a replica is answering")
    return Report(
        f"a metrics page of gateway {fit.name}",
        True,
        tuple(facts),
        tuple(families),
        sample.warnings,
        gateway_lines(url, fit.name, {label: values[0]} if label else {}, values[1:_SHOWN]),
    )


def _spelled(exposition: Exposition, family: Family) -> str:
    best = next((name for name in family.names if name in exposition.samples), None)
    names = [name for name in (best, *family.plus) if name is not None and name in exposition.samples]
    return " + ".join(exposition.spellings[name] for name in names)


def _binding(exposition: Exposition, preset: GatewayPreset) -> tuple[str, tuple[str, ...]]:
    """The first of the gateway's usual labels that the page has, and its values; "" where it has none."""
    labels: list[Mapping[str, str]] = [
        sample.labels.values
        for name, samples in exposition.samples.items()
        if name in preset.wanted
        for sample in samples
    ]
    for label in preset.match_labels:
        if values := tuple(sorted({each.get(label, "") for each in labels} - {""})):
            return label, values
    return "", ()


def _dcgm_page(gpus: Sequence[DcgmGpu], url: str, exposition: Exposition) -> Report:
    if not gpus:
        return Report("a DCGM exporter's page", False, warnings=("no series has a GPU's UUID and a value that can be",))
    families = tuple(
        FamilyFound(name, "found", exposition.spellings[name], f"{len(exposition.samples[name])} series")
        if name in exposition.samples
        else FamilyFound(name, "missing", note="the exporter does not export this field")
        for name in FIELDS
    )
    pods = sorted({f"{pod.namespace}/{pod.name}" for gpu in gpus for pod in gpu.pods})
    names = sorted({gpu.reading.name for gpu in gpus if gpu.reading.name})
    facts = (
        f"{len(gpus)} GPUs or MIG instances: {_listed(names) or 'not named'}",
        f"held by pods: {_listed(pods) or 'not told (gpu.match can bind by other labels)'}",
        "GPU telemetry is never required: it tells busy GPUs from waiting ones",
    )
    return Report("a DCGM exporter's page", True, facts, families, (), dcgm_lines(url))


def _not_the_engine(exposition: Exposition, engine: str, best: Fit | None) -> Report:
    warnings = [f"engine {engine} was named, but none of its metrics is on this page"]
    if best is not None:
        warnings.append(f"it fits {best.kind} {best}; leave --engine out to see it")
    return Report("a metrics page of something else", False, (_holds(exposition),), warnings=tuple(warnings))


def _nothing(exposition: Exposition) -> Report:
    facts = (
        _holds(exposition),
        "is the engine still loading, or its metrics switched off (SGLang: --enable-metrics, llama.cpp: --metrics)?",
        "to look into a Prometheus give its API's address, without /metrics",
    )
    return Report("a metrics page of no engine or gateway that is known", False, facts)


def _holds(exposition: Exposition) -> str:
    prefixes: dict[str, int] = {}
    for name in exposition.names:
        prefix = name.partition(":")[0] + ":" if ":" in name else name.partition("_")[0] + "_"
        prefixes[prefix] = prefixes.get(prefix, 0) + 1
    listed = sorted(prefixes, key=lambda prefix: -prefixes[prefix])
    return f"it holds {len(exposition.names)} metrics: {_listed([f'{prefix}*' for prefix in listed])}"


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values[:_SHOWN]) + (f", and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")
