"""Engine presets: which of an engine's metrics is which quantity. Data (``engines/*.yaml``), and its one format.

The format, as :class:`_PresetFile` checks it; :mod:`scaler.signals.family` explains a family::

    name: vllm                         # the file's name; what policies write as `engine:`
    continuous_batching: true          # requests join and leave the batch at every step
    preallocates_gpu_memory: true      # free VRAM then says nothing about load
    model_label: model_name            # label with the served model's name; null: the engine has none
    default_model: null                # the model to read where the policy names none (an ensemble's inner one)
    engine_label: engine               # label that tells data-parallel engines of one endpoint apart; null: has none
    rank_labels: [tp_rank, pp_rank]    # series that differ only in these are copies: the greatest counts
    not_applicable:                    # families this engine does not have, and why, so that absence is no fault
      ttft: it measures no time to the first token
    families:                          # every family of FAMILIES, unless it stands in not_applicable or is OPTIONAL
      running: {kind: gauge, names: [vllm:num_requests_running]}

Operators add their own: a folder of such files is given to :func:`register_presets`, once, at start. A file named as a
shipped preset takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Self

from pydantic import field_validator, model_validator

from scaler.signals.family import Family as Family
from scaler.signals.family import FamilyFile, Kind, LabelName, Strict, read_file
from scaler.signals.family import PresetError as PresetError
from scaler.signals.family import sample_names as sample_names
from scaler.value import frozen

#: The families that the window fold reads, and the kinds each may have.
FAMILIES: Final[Mapping[str, tuple[Kind, ...]]] = {
    "running": ("gauge",),
    "waiting": ("gauge",),
    "kv_use": ("gauge",),
    "kv_capacity_tokens": ("gauge", "info"),
    "arrivals": ("counter",),
    "finished": ("counter",),
    "preemptions": ("counter",),
    "prompt_tokens": ("counter",),
    "generation_tokens": ("counter",),
    "admission_rejections": ("counter",),
    "steps": ("counter",),
    "awake_engines": ("gauge",),
    "ttft": ("histogram",),
    "tpot": ("histogram",),
    "e2e": ("histogram",),
    "queue": ("histogram",),
    "prefill": ("histogram",),
    "decode": ("histogram",),
    "prompt_length": ("histogram",),
    "generation_length": ("histogram",),
}

#: Families whose absence says nothing: arrivals are derived where no counter tells them, and ``steps`` (whatever counts
#: while the engine computes) is needed only where nothing else moves during one long answer; ``awake_engines`` (0 while
#: the model is off the GPU) exists where an engine can be put to sleep.
OPTIONAL: Final = frozenset({"arrivals", "steps", "awake_engines"})

#: Unix time at which the engine's process began; every Prometheus client library names it so.
PROCESS_START: Final = "process_start_time_seconds"


@frozen
class Preset:
    """How one engine is read. The module's docstring explains each field."""

    name: str
    continuous_batching: bool
    preallocates_gpu_memory: bool
    model_label: str | None
    default_model: str | None
    engine_label: str | None
    rank_labels: frozenset[str]
    not_applicable: Mapping[str, str]
    """Family → why this engine does not have it, for a person. Beside the declared ones: ``arrivals`` where nothing
    counts requests, ``awake_engines`` where it has no sleep, ``gpu_memory_free`` where the engine preallocates."""
    families: Mapping[str, Family]
    wanted: frozenset[str]
    """Every normalised sample name that any family may be read from, and the process start."""


_SHIPPED: Final = resources.files("scaler.signals").joinpath("engines")
_added: dict[str, Preset] = {}


@cache
def load_preset(name: str) -> Preset:
    """The preset of engine ``name``. Raises :class:`PresetError`, which lists the engines there are."""
    if name in _added:
        return _added[name]
    if name not in known_engines():
        raise PresetError(f"engine {name!r} is not known; write one of: {', '.join(known_engines())}")
    return read_preset(_SHIPPED.joinpath(f"{name}.yaml").read_text(encoding="utf-8"), name)


@cache
def known_engines() -> tuple[str, ...]:
    """The engines that have a preset, shipped or registered, in alphabetical order."""
    shipped = (entry.name.removesuffix(".yaml") for entry in _SHIPPED.iterdir() if entry.name.endswith(".yaml"))
    return tuple(sorted({*shipped, *_added}))


def register_presets(folder: Path | None) -> tuple[str, ...]:
    """Know the presets of ``folder`` (``<engine>.yaml``) from now on, in the place of those registered before; None:
    only the shipped ones. Gives their names.

    Raises :class:`PresetError` if the folder cannot be read or any of its files cannot be meant; then nothing changes.
    """
    found: dict[str, Preset] = {}
    if folder is not None:
        try:
            texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}
        except (OSError, UnicodeDecodeError) as error:
            raise PresetError(f"presets in {folder} cannot be read: {error}") from error
        if not texts:
            raise PresetError(f"no preset in {folder}; put files named after their engine there: myengine.yaml")
        found = {name: read_preset(text, name, where=str(folder / f"{name}.yaml")) for name, text in texts.items()}
    _added.clear()
    _added.update(found)
    load_preset.cache_clear()
    known_engines.cache_clear()
    return tuple(found)


def read_preset(text: str, name: str, where: str | None = None) -> Preset:
    """A preset from its YAML. Raises :class:`PresetError` naming the preset (``where``: its file), the place and what
    is wrong there.
    """
    what = f"preset {where or name}"
    declared = read_file(text, what, _PresetFile.model_validate)
    if declared.name != name:
        raise PresetError(f"{what}: its name is {declared.name!r}; write name: {name}")
    families = {key: family.frozen() for key, family in declared.families.items()}
    samples = {PROCESS_START, *(name for family in families.values() for name in sample_names(family))}
    return Preset(
        name=name,
        continuous_batching=declared.continuous_batching,
        preallocates_gpu_memory=declared.preallocates_gpu_memory,
        model_label=declared.model_label,
        default_model=declared.default_model,
        engine_label=declared.engine_label,
        rank_labels=frozenset(declared.rank_labels),
        not_applicable=_not_applicable(declared),
        families=families,
        wanted=frozenset(samples),
    )


def _not_applicable(declared: _PresetFile) -> dict[str, str]:
    reasons = {key: f"engine {declared.name}: {reason}" for key, reason in declared.not_applicable.items()}
    if not declared.families.keys() & {"arrivals", "finished", "ttft"}:
        reasons["arrivals"] = f"engine {declared.name}: it counts no requests"
    if "awake_engines" not in declared.families:
        reasons["awake_engines"] = f"engine {declared.name}: it does not tell of any sleep"
    if declared.preallocates_gpu_memory:
        reasons["gpu_memory_free"] = (
            f"engine {declared.name}: the engine preallocates GPU memory, so a full card is no load; "
            "its KV cache tells instead"
        )
    return reasons


class _PresetFile(Strict):
    name: str
    continuous_batching: bool
    preallocates_gpu_memory: bool
    model_label: LabelName | None
    default_model: str | None = None
    engine_label: LabelName | None
    rank_labels: tuple[LabelName, ...]
    not_applicable: Mapping[str, str] = {}
    families: dict[str, FamilyFile]

    @field_validator("not_applicable", mode="before")
    @classmethod
    def _reasons(cls, value: object) -> object:
        """A bare list is allowed: why an engine lacks something is not always known."""
        return dict.fromkeys(value, "it does not report this") if isinstance(value, list) else value

    @model_validator(mode="after")
    def _every_family_once(self) -> Self:
        declared, left_out = set(self.families), set(self.not_applicable)
        if unknown := sorted((declared | left_out) - set(FAMILIES)):
            raise ValueError(f"no such family: {', '.join(unknown)}; the families are {', '.join(FAMILIES)}")
        if both := sorted(declared & left_out):
            raise ValueError(f"both in families and in not_applicable: {', '.join(both)}")
        if missing := [key for key in FAMILIES if key not in declared | left_out | OPTIONAL]:
            raise ValueError(f"neither in families nor in not_applicable: {', '.join(missing)}")
        for key, family in self.families.items():
            if family.kind not in FAMILIES[key]:
                raise ValueError(f"{key} must be of kind {' or '.join(FAMILIES[key])}, not {family.kind}")
            if family.or_where:
                raise ValueError(f"{key}: or_where is for gateways; an engine's families have where alone")
        if self.default_model is not None and self.model_label is None:
            raise ValueError("default_model needs model_label")
        return self
