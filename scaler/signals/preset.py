"""Engine presets: which of an engine's metrics is which quantity. Data (``engines/*.yaml``), and its one format.

The format, as :class:`_PresetFile` and :class:`_FamilyFile` check it::

    name: vllm                         # the file's name; what policies write as `engine:`
    continuous_batching: true          # requests join and leave the batch at every step
    preallocates_gpu_memory: true      # free VRAM then says nothing about load
    model_label: model_name            # label with the served model's name; null: the engine has none
    engine_label: engine               # label that tells data-parallel engines of one endpoint apart; null: has none
    rank_labels: [tp_rank, pp_rank]    # series that differ only in these are copies: the greatest counts
    not_applicable: []                 # families this engine does not have, so that absence is no fault
    families:                          # every family of FAMILIES, unless it stands in not_applicable
      kv_use:
        kind: gauge                    # gauge, info, counter or histogram
        names: [vllm:kv_cache_usage_perc, vllm:gpu_cache_usage_perc]
        combine: max                   # sum over the endpoint's engines; max for ratios, which gives <family>_mean too
        scale: 1                       # gauges: what a value is multiplied by (0.01 for a percentage)
        if_absent: "..."               # a warning for a person when no name is in the body
      kv_capacity_tokens:
        kind: info                     # the number stands in labels, the value is always 1
        names: [vllm:cache_config_info]
        labels: [[kv_cache_size_tokens], [num_gpu_blocks, block_size]]   # the first product that is a number counts

``names`` are as exposed (counters with ``_total``, histograms without ``_bucket``), best first: the first one that the
body has is read, and never a second one added to it. ``:`` and ``_`` are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Final, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from scaler.signals.exposition import normalised

Kind = Literal["gauge", "info", "counter", "histogram"]
Combine = Literal["sum", "max"]

#: The families that the window fold reads, and the kinds each may have.
FAMILIES: Final[Mapping[str, tuple[Kind, ...]]] = {
    "running": ("gauge",),
    "waiting": ("gauge",),
    "kv_use": ("gauge",),
    "kv_capacity_tokens": ("gauge", "info"),
    "finished": ("counter",),
    "preemptions": ("counter",),
    "prompt_tokens": ("counter",),
    "generation_tokens": ("counter",),
    "admission_rejections": ("counter",),
    "ttft": ("histogram",),
    "tpot": ("histogram",),
    "e2e": ("histogram",),
    "queue": ("histogram",),
    "prefill": ("histogram",),
    "decode": ("histogram",),
    "prompt_length": ("histogram",),
    "generation_length": ("histogram",),
}

#: Unix time at which the engine's process began; every Prometheus client library names it so.
PROCESS_START: Final = "process_start_time_seconds"


class PresetError(ValueError):
    """No such preset, or one that cannot be meant. The text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Family:
    """One canonical family of an engine: where to read it and how its series combine inside one endpoint."""

    kind: Kind
    names: tuple[str, ...]
    """Normalised, best first."""
    combine: Combine = "sum"
    scale: float = 1.0
    labels: tuple[tuple[str, ...], ...] = ()
    if_absent: str = ""


@dataclass(frozen=True, slots=True)
class Preset:
    """How one engine is read. The module's docstring explains each field."""

    name: str
    continuous_batching: bool
    preallocates_gpu_memory: bool
    model_label: str | None
    engine_label: str | None
    rank_labels: frozenset[str]
    not_applicable: frozenset[str]
    families: Mapping[str, Family]
    wanted: frozenset[str]
    """Every normalised sample name that any family may be read from, and the process start."""


@cache
def load_preset(name: str) -> Preset:
    """The preset of engine ``name``. Raises :class:`PresetError`, which lists the engines there are."""
    if name not in known_engines():
        raise PresetError(f"engine {name!r} is not known; write one of: {', '.join(known_engines())}")
    return read_preset(_ENGINES.joinpath(f"{name}.yaml").read_text(encoding="utf-8"), name)


@cache
def known_engines() -> tuple[str, ...]:
    """The engines that have a preset, in alphabetical order."""
    files = (entry.name for entry in _ENGINES.iterdir())
    return tuple(sorted(file.removesuffix(".yaml") for file in files if file.endswith(".yaml")))


def read_preset(text: str, name: str) -> Preset:
    """A preset from its YAML. Raises :class:`PresetError` naming the preset, the place and what is wrong there."""
    try:
        declared = _PresetFile.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise PresetError(f"preset {name}: not YAML: {error}") from error
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, at['loc'])) or 'preset'}: {at['msg']}" for at in error.errors())
        raise PresetError(f"preset {name}: {'; '.join(problems)}") from error
    if declared.name != name:
        raise PresetError(f"preset {name}: its name is {declared.name!r}; write name: {name}")
    families = {key: family.frozen() for key, family in declared.families.items()}
    return Preset(
        name=name,
        continuous_batching=declared.continuous_batching,
        preallocates_gpu_memory=declared.preallocates_gpu_memory,
        model_label=declared.model_label,
        engine_label=declared.engine_label,
        rank_labels=frozenset(declared.rank_labels),
        not_applicable=frozenset(declared.not_applicable),
        families=families,
        wanted=frozenset({PROCESS_START, *(name for family in families.values() for name in sample_names(family))}),
    )


def sample_names(family: Family) -> tuple[str, ...]:
    """The names of the sample lines that make up a family: a histogram has three for each of its names."""
    if family.kind != "histogram":
        return family.names
    return tuple(name + suffix for name in family.names for suffix in ("_bucket", "_sum", "_count"))


_ENGINES: Final = resources.files("scaler.signals").joinpath("engines")

LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
MetricName = Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _FamilyFile(_Strict):
    kind: Kind
    names: Annotated[tuple[MetricName, ...], Field(min_length=1)]
    combine: Combine = "sum"
    scale: PositiveFloat = 1.0
    labels: tuple[Annotated[tuple[LabelName, ...], Field(min_length=1)], ...] = ()
    if_absent: str = ""

    @model_validator(mode="after")
    def _meant(self) -> Self:
        for name in self.names:
            # The two that look like a quantity and are a clock: a creation time, and vLLM's LoRA information.
            if name.endswith("_created"):
                raise ValueError(f"{name} is a time of creation, never a quantity")
            if name.endswith("_info") and self.kind != "info":
                raise ValueError(f"the value of {name} means nothing; read its labels with kind: info")
        if bool(self.labels) != (self.kind == "info"):
            raise ValueError("labels is for kind: info, which needs it")
        if self.combine == "max" and self.kind != "gauge":
            raise ValueError("combine: max is for gauges that are ratios")
        if self.scale != 1.0 and self.kind != "gauge":
            raise ValueError("scale is for gauges")
        return self

    def frozen(self) -> Family:
        names = tuple(dict.fromkeys(normalised(name) for name in self.names))
        return Family(self.kind, names, self.combine, self.scale, self.labels, self.if_absent)


class _PresetFile(_Strict):
    name: str
    continuous_batching: bool
    preallocates_gpu_memory: bool
    model_label: LabelName | None
    engine_label: LabelName | None
    rank_labels: tuple[LabelName, ...]
    not_applicable: tuple[str, ...] = ()
    families: dict[str, _FamilyFile]

    @model_validator(mode="after")
    def _every_family_once(self) -> Self:
        declared, left_out = set(self.families), set(self.not_applicable)
        if unknown := sorted((declared | left_out) - set(FAMILIES)):
            raise ValueError(f"no such family: {', '.join(unknown)}; the families are {', '.join(FAMILIES)}")
        if both := sorted(declared & left_out):
            raise ValueError(f"both in families and in not_applicable: {', '.join(both)}")
        if missing := [key for key in FAMILIES if key not in declared | left_out]:
            raise ValueError(f"neither in families nor in not_applicable: {', '.join(missing)}")
        for key, family in self.families.items():
            if family.kind not in FAMILIES[key]:
                raise ValueError(f"{key} must be of kind {' or '.join(FAMILIES[key])}, not {family.kind}")
        return self
