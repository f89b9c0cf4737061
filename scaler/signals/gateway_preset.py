"""Gateway presets: which of a gateway's metrics tell of requests that want a replica. Data (``gateways/*.yaml``).

At zero replicas the gateway is the only witness of demand. The format, as :class:`_GatewayFile` checks it;
:mod:`scaler.signals.family` explains a family (of it ``kind``, ``names``, ``plus``, ``where`` and ``or_where`` count
here; in the last two a series without the label does *not* pass, and of several flags joined by commas one is enough)::

    name: envoy                          # the file's name; what policies write as `gateway.preset:`
    match_labels: [envoy_cluster_name]   # labels that usually bind a series to one workload: for a person
    exclude: {method: [HEAD, OPTIONS]}   # series that are no demand (probes, preflights); policies add their own
    counts_in_flight: false              # pending includes the requests that a replica is answering
    not_applicable: []                   # of pending and refused, what this gateway does not have
    families:
      pending: {...}                     # gauge: requests that wait for a replica
      refused: {...}                     # counter: requests turned away for want of one; all names of plus are added
      arrivals: {...}                    # counter, optional: every request that came, with or without a replica
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, Self

from pydantic import Field, model_validator

from scaler.signals.family import (
    Family,
    FamilyFile,
    Kind,
    LabelName,
    LabelValues,
    PresetError,
    Strict,
    read_file,
    sample_names,
)
from scaler.value import frozen

_KINDS: Final[Mapping[str, Kind]] = {"pending": "gauge", "refused": "counter", "arrivals": "counter"}


@frozen
class GatewayPreset:
    """How one kind of gateway is read. The module's docstring explains each field."""

    name: str
    match_labels: tuple[str, ...]
    exclude: Mapping[str, frozenset[str]]
    counts_in_flight: bool
    families: Mapping[str, Family]
    wanted: frozenset[str]
    """Every normalised sample name that any family may be read from."""


_SHIPPED: Final = resources.files("scaler.signals").joinpath("gateways")


@cache
def load_gateway_preset(name: str) -> GatewayPreset:
    """The preset of gateway ``name``. Raises :class:`PresetError`, which lists the gateways there are."""
    if name not in known_gateways():
        raise PresetError(f"gateway {name!r} is not known; write one of: {', '.join(known_gateways())}")
    return read_gateway_preset(_SHIPPED.joinpath(f"{name}.yaml").read_text(encoding="utf-8"), name)


@cache
def known_gateways() -> tuple[str, ...]:
    """The gateways that have a preset, in alphabetical order."""
    files = (entry.name for entry in _SHIPPED.iterdir())
    return tuple(sorted(file.removesuffix(".yaml") for file in files if file.endswith(".yaml")))


def read_gateway_preset(text: str, name: str) -> GatewayPreset:
    """A preset from its YAML. Raises :class:`PresetError` naming the preset, the place and what is wrong there."""
    declared = read_file(text, f"gateway preset {name}", _GatewayFile.model_validate)
    if declared.name != name:
        raise PresetError(f"gateway preset {name}: its name is {declared.name!r}; write name: {name}")
    families = {key: family.frozen() for key, family in declared.families.items()}
    return GatewayPreset(
        name=name,
        match_labels=declared.match_labels,
        exclude={label: frozenset(values) for label, values in declared.exclude.items()},
        counts_in_flight=declared.counts_in_flight,
        families=families,
        wanted=frozenset(sample for family in families.values() for sample in sample_names(family)),
    )


class _GatewayFile(Strict):
    name: str
    match_labels: tuple[LabelName, ...]
    exclude: LabelValues = Field(default={})
    counts_in_flight: bool = False
    not_applicable: tuple[str, ...] = ()
    families: Mapping[str, FamilyFile]

    @model_validator(mode="after")
    def _every_family_once(self) -> Self:
        declared, left_out = set(self.families), set(self.not_applicable)
        if unknown := sorted((declared | left_out) - set(_KINDS)):
            raise ValueError(f"no such family: {', '.join(unknown)}; the families are {', '.join(_KINDS)}")
        if both := sorted(declared & left_out):
            raise ValueError(f"both in families and in not_applicable: {', '.join(both)}")
        if missing := [key for key in ("pending", "refused") if key not in declared | left_out]:
            raise ValueError(f"neither in families nor in not_applicable: {', '.join(missing)}")
        if not declared:
            raise ValueError("it has no family at all, and could wake nobody")
        for key, family in self.families.items():
            if family.kind != _KINDS[key] or family.estimate or family.combine == "max" or family.times:
                raise ValueError(f"{key} must be a plain {_KINDS[key]}")
        return self
