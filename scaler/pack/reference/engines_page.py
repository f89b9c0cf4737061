"""``engines.md``: what the presets read of each engine and gateway, and what each does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scaler.pack.reference.markdown import code, sentence, table
from scaler.signals.family import Family
from scaler.signals.gateway_preset import known_gateways, load_gateway_preset
from scaler.signals.preset import FAMILIES, Preset, known_engines, load_preset

_HEAD = """\
# Engines and gateways

What loadtide reads of each, by its presets: data in `scaler/signals/engines` and `scaler/signals/gateways`, where the
sources of every name stand. A colon in a name is written as an underscore here; of several names in a cell the first
that a server has is taken. `loadtide probe URL` says the same of a server that runs. Engines of your own:
`loadtide serve --presets FOLDER`. Where GPU memory is reserved at start, memory pressure is the KV cache's; where not,
free GPU memory.

"""
_GATEWAYS = """
## Gateways

For `gateway.preset` ([demand at the door](../demand-at-zero.md)).

"""


def engines_page() -> str:
    """The page."""
    engines = [load_preset(name) for name in known_engines()]
    facts = (
        (
            code(preset.name),
            code(preset.model_label or ""),
            ", ".join(map(code, sorted(preset.rank_labels))),
            "continuous" if preset.continuous_batching else "static",
            "reserved at start" if preset.preallocates_gpu_memory else "taken as needed",
        )
        for preset in engines
    )
    heads = ("engine", "model's label", "labels of copies", "batches are", "GPU memory is")
    return "".join((_HEAD, table(heads, facts), *map(_engine, engines), _GATEWAYS, _gateways()))


def _engine(preset: Preset) -> str:
    rows = table(("quantity", "read from"), _quantities(preset))
    return f"\n## {preset.name}\n\n{rows}"


def _quantities(preset: Preset) -> Iterator[tuple[str, str]]:
    for name in FAMILIES:
        if name in preset.families:
            yield code(name), _names(preset.families[name])
        elif (reason := preset.not_applicable.get(name)) is not None:
            yield code(name), f"not there: {reason.removeprefix(f'engine {preset.name}: ')}"


def _names(family: Family) -> str:
    if not family.names and family.derived is not None:
        return f"reckoned from {', '.join(map(code, (*family.derived.names, *family.derived.count)))}"
    told = " or ".join(map(code, family.names))
    if family.plus:
        told += f", with {', '.join(map(code, family.plus))} added"
    only = [
        f"{code(label)} {' or '.join(value or 'empty' for value in sorted(values))}"
        for label, values in {**family.where, **family.or_where}.items()
    ]
    return f"{told}, of {', '.join(only)}" if only else told


def _gateways() -> str:
    def told(families: Mapping[str, Family], name: str) -> str:
        return _names(families[name]) if name in families else ""

    rows = (
        (
            code(preset.name),
            told(preset.families, "pending"),
            told(preset.families, "refused"),
            ", ".join(map(code, preset.match_labels)),
            sentence("yes" if preset.counts_in_flight else "no"),
        )
        for preset in map(load_gateway_preset, known_gateways())
    )
    heads = ("gateway", "requests that wait", "requests refused", "labels that bind", "counts what is being answered")
    return table(heads, rows)
