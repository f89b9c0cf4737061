"""One family of a preset: under which names a quantity stands in a metrics page, and how its series make one number.

Engines' presets (:mod:`scaler.signals.preset`) and gateways' (:mod:`scaler.signals.gateway_preset`) are made of these::

    waiting:
      kind: gauge                     # gauge, info, counter or histogram
      names: [a:new_name, a:old_name] # as exposed, best first: the first one that the page has is read, no second added
      plus: [a:other_queue]           # names that are added to it where the page has them: another part of the same sum
      where: {priority: [""]}         # only series whose label is one of these; a series without the label passes
      or_where: {class: [x]}          # gateways: series with these labels pass as well
      combine: sum                    # sum over the endpoint's engines; max for ratios, which gives <family>_mean too
      scale: 1                        # gauges, histograms: what a value is multiplied by (0.001 for milliseconds)
      times: {type: [tokens_per]}     # gauges: multiplied by the value of the same metric's series with these labels
      born_at_first_increment: false  # the metric appears with its first value: absent then means "nothing yet"
      if_absent: "..."                # a warning for a person when no name is in the page
      estimate:                       # gauges, where no name is in the page: seconds spent so per second (Little's law)
        names: [a:queue_duration_us]
        scale: 0.000001
      mean:                           # histograms, where no name is in the page: their sum and count as counters
        names: [a:duration_us]
        count: [a:finished]
        scale: 0.000001
    kv_capacity_tokens:
      kind: info                      # the number stands in labels, the value is always 1
      names: [a:cache_config_info]
      labels: [[tokens], [num_blocks, block_size]]    # the first product that is a number counts

Counters are named with ``_total`` if exposed so, histograms without ``_bucket``. ``:`` and ``_`` are alike in names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from scaler.signals.exposition import normalised
from scaler.value import frozen

Kind = Literal["gauge", "info", "counter", "histogram"]
Combine = Literal["sum", "max"]


class PresetError(ValueError):
    """No such preset, or one that cannot be meant. The text says what to write instead."""


@frozen
class Derived:
    """Counters that stand in for a metric: ``names`` scaled by ``scale``, for a mean divided by those of ``count``."""

    names: tuple[str, ...]
    count: tuple[str, ...] = ()
    scale: float = 1.0


@frozen
class Family:
    """Where one quantity is read and how its series combine. The module's docstring explains each field; names are
    normalised.
    """

    kind: Kind
    names: tuple[str, ...]
    combine: Combine = "sum"
    scale: float = 1.0
    labels: tuple[tuple[str, ...], ...] = ()
    plus: tuple[str, ...] = ()
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)
    or_where: Mapping[str, frozenset[str]] = field(default_factory=dict)
    times: Mapping[str, frozenset[str]] = field(default_factory=dict)
    born_at_first_increment: bool = False
    if_absent: str = ""
    derived: Derived | None = None
    """The ``estimate`` of a gauge or the ``mean`` of a histogram."""


def sample_names(family: Family) -> tuple[str, ...]:
    """The names of the sample lines that make up a family: a histogram has three for each of its names."""
    names = family.names + family.plus
    if family.kind == "histogram":
        names = tuple(name + suffix for name in names for suffix in ("_bucket", "_sum", "_count"))
    return names + (family.derived.names + family.derived.count if family.derived else ())


LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
MetricName = Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
LabelValues = Mapping[LabelName, Annotated[tuple[str, ...], Field(min_length=1)]]


class Strict(BaseModel):
    """What every mapping of a preset file shares: a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _DerivedFile(Strict):
    names: Annotated[tuple[MetricName, ...], Field(min_length=1)]
    count: tuple[MetricName, ...] = ()
    scale: PositiveFloat = 1.0

    def frozen(self) -> Derived:
        return Derived(_normalised(self.names), _normalised(self.count), self.scale)


class FamilyFile(Strict):
    """One family as a preset file declares it."""

    kind: Kind
    names: tuple[MetricName, ...]
    plus: tuple[MetricName, ...] = ()
    where: LabelValues = {}
    or_where: LabelValues = {}
    combine: Combine = "sum"
    scale: PositiveFloat = 1.0
    times: LabelValues = {}
    labels: tuple[Annotated[tuple[LabelName, ...], Field(min_length=1)], ...] = ()
    born_at_first_increment: bool = False
    if_absent: str = ""
    estimate: _DerivedFile | None = None
    mean: _DerivedFile | None = None

    @model_validator(mode="after")
    def _meant(self) -> Self:
        for name in (*self.names, *self.plus):
            # The two that look like a quantity and are a clock: a creation time, and vLLM's LoRA information.
            if name.endswith("_created"):
                raise ValueError(f"{name} is a time of creation, never a quantity")
            if name.endswith("_info") and self.kind != "info":
                raise ValueError(f"the value of {name} means nothing; read its labels with kind: info")
        if not self.names and self.estimate is None and self.mean is None:
            raise ValueError("names is empty; name the metric, or what to derive it from")
        if bool(self.labels) != (self.kind == "info"):
            raise ValueError("labels is for kind: info, which needs it")
        if self.combine == "max" and (self.kind != "gauge" or self.plus):
            raise ValueError("combine: max is for gauges that are ratios")
        if self.scale != 1.0 and self.kind not in ("gauge", "histogram"):
            raise ValueError("scale is for gauges and histograms")
        if self.times and not (self.kind == "gauge" and self.where):
            raise ValueError("times is for a gauge with where: the two of them choose the series to multiply")
        if self.or_where and not self.where:
            raise ValueError("or_where is beside where: without it every series passes")
        if self.plus and self.kind not in ("gauge", "counter"):
            raise ValueError("plus is for gauges and counters")
        if self.estimate is not None and (self.kind != "gauge" or self.estimate.count):
            raise ValueError("estimate is for gauges, from counters of seconds spent, without count")
        if self.mean is not None and (self.kind != "histogram" or not self.mean.count):
            raise ValueError("mean is for histograms, and needs count")
        return self

    def frozen(self) -> Family:
        """The family as a value, names normalised."""
        derived = self.estimate or self.mean
        return Family(
            kind=self.kind,
            names=_normalised(self.names),
            combine=self.combine,
            scale=self.scale,
            labels=self.labels,
            plus=_normalised(self.plus),
            where={label: frozenset(values) for label, values in self.where.items()},
            or_where={label: frozenset(values) for label, values in self.or_where.items()},
            times={label: frozenset(values) for label, values in self.times.items()},
            born_at_first_increment=self.born_at_first_increment,
            if_absent=self.if_absent,
            derived=None if derived is None else derived.frozen(),
        )


def _normalised(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(normalised, names)))


File = TypeVar("File", bound=Strict)


def read_file(text: str, what: str, validate: Callable[[object], File]) -> File:
    """A preset file as ``validate`` declares it. Raises :class:`PresetError` naming ``what`` and the place in it."""
    try:
        return validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise PresetError(f"{what}: not YAML: {error}") from error
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, at['loc'])) or 'preset'}: {at['msg']}" for at in error.errors())
        raise PresetError(f"{what}: {'; '.join(problems)}") from error
