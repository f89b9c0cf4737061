"""The queries of one round: raw series of every engine and every workload of a source, a fixed number of them.

No label value of a workload ever stands in a query, but for the namespace and cluster that keep a large Prometheus from
sending everybody's engines; those are quoted. Which series are whose is decided on our side, by equality.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from scaler.policy import promql
from scaler.policy.prometheus import Prometheus
from scaler.signals.family import Family, sample_names
from scaler.signals.preset import FAMILIES, PROCESS_START, Preset
from scaler.value import frozen

#: Labels that tell scraped targets apart. Of two targets that differ only in the second group one is a copy: the same
#: endpoint scraped by two jobs, or by two Prometheus servers of a pair.
_PLACE: Final = ("cluster", "namespace", "exported_namespace", "pod", "exported_pod", "instance")
COPIES: Final = (
    "job",
    "endpoint",
    "service",
    "container",
    "prometheus",
    "prometheus_replica",
    "replica",
    "receive_replica",
    "rule_replica",
)
#: Labels that every series of a target has, so that a query may be narrowed by them, and how many values are written.
_NARROWING: Final = ("cluster", "namespace")
_NARROWING_VALUES: Final = 50


@frozen
class Wanted:
    """What the workloads of one source want of it together."""

    presets: tuple[Preset, ...]
    place: tuple[str, ...]
    """The labels that tell targets apart, copies aside."""
    copies: tuple[str, ...]
    """The labels in which copies of one target differ: those of :data:`COPIES` that no engine has for itself."""
    narrowing: Mapping[str, frozenset[str]]
    """Label → the values that any workload binds, where every one of them binds it."""

    def covers(self, preset: Preset, prometheus: Prometheus) -> bool:
        """Whether a round for this also serves a workload of ``preset`` that reads ``prometheus``."""
        return (
            preset in self.presets
            and place_labels(preset, prometheus) <= {*self.place}
            and all(prometheus.match.get(label) in values for label, values in self.narrowing.items())
        )


def place_labels(preset: Preset, prometheus: Prometheus) -> frozenset[str]:
    """The labels of one workload that must be kept apart: those it binds and tells replicas by, but for the engine's
    own, in which the series of one target differ.
    """
    return frozenset({*_PLACE, prometheus.replica_label, *prometheus.match} - _own(preset) - {*COPIES})


def _own(preset: Preset) -> set[str | None]:
    return {preset.model_label, preset.engine_label, *preset.rank_labels}


def want(workloads: Iterable[tuple[Preset, Prometheus]]) -> Wanted:
    """What all of ``workloads`` want together."""
    presets: dict[str, Preset] = {}
    place: set[str] = set(_PLACE)
    values: dict[str, set[str]] = {label: set() for label in _NARROWING}
    for preset, prometheus in workloads:
        presets[preset.name] = preset
        if not place.issuperset(prometheus.match) or prometheus.replica_label not in place:
            place |= place_labels(preset, prometheus)
        for label in list(values):
            value = prometheus.match.get(label)
            if value is None or len(values[label] | {value}) > _NARROWING_VALUES:
                del values[label]
            else:
                values[label].add(value)
    narrowing = {label: frozenset(found) for label, found in values.items() if found}
    own = {label for preset in presets.values() for label in _own(preset)}
    copies = tuple(label for label in COPIES if label not in own)
    return Wanted(tuple(presets.values()), tuple(sorted(place)), copies, narrowing)


@frozen
class Plan:
    """The queries of one round. ``ages`` is asked first: what it says is what the others are asked for."""

    ages: str
    failing: str
    values: tuple[str, ...]

    @property
    def queries(self) -> int:
        """How many queries the round has."""
        return 2 + len(self.values)


def plan(wanted: Wanted) -> Plan:
    """One query for all families of one value per series, one for each histogram, one for process starts, one for the
    samples' age and one for targets that cannot be scraped; all engines together.
    """
    narrow = "".join(f",{label}{promql.any_of(sorted(found))}" for label, found in sorted(wanted.narrowing.items()))
    present: dict[str, None] = {}
    for preset in wanted.presets:
        present.update(dict.fromkeys(presence_names(preset)))
    # timestamp() drops the name, and two names of one series would then be a conflict: so one by one, never by a regex.
    spelled = dict.fromkeys(name for each in present for name in spellings(each))
    ages = _or([f'timestamp({{__name__="{name}"{narrow}}})' for name in spelled])
    values = [
        f'{{__name__="{PROCESS_START}"{narrow}}} and on (cluster, namespace, pod, instance, job) '
        f"{series_of(present, narrow)}"
    ]
    values += [_or([series_of(names, narrow) for names in choices]) for choices in _by_query(wanted.presets)]
    up = f'{{__name__="up"{narrow}}}'
    return Plan(ages, f"{up} == 0 or count({up})", tuple(values))


def _by_query(presets: Iterable[Preset]) -> Iterator[list[list[str]]]:
    """The names of each query, each name in one query only: first all that are no histogram, then each histogram of any
    engine. A histogram's are a list of choices, the best first: of its many series only the best are wanted.
    """
    single: dict[str, None] = {}
    histograms: dict[str, list[dict[str, None]]] = {}
    for preset in presets:
        for key, family in preset.families.items():
            if family.kind != "histogram":
                single.update(dict.fromkeys(sample_names(family)))
                continue
            single.update(dict.fromkeys((*family.derived.names, *family.derived.count) if family.derived else ()))
            choices = histograms.setdefault(key, [])
            for place, name in enumerate(family.names):
                if place == len(choices):
                    choices.append({})
                choices[place].update(dict.fromkeys(name + part for part in ("_bucket", "_sum", "_count")))
    asked = {PROCESS_START}
    for each in ([single], *histograms.values()):
        new = [[name for name in names if name not in asked] for names in each]
        asked.update(name for names in new for name in names)
        if any(new):
            yield [names for names in new if names]


def _or(choices: list[str]) -> str:
    """Every series of the first choice, and of each further one those that the ones before lack (``or`` compares the
    labels without the name).
    """
    return " or ".join(choices)


def presence_names(preset: Preset) -> tuple[str, ...]:
    """The names whose samples show that a target is there and how old it is: of a family that is always exposed."""

    def rank(item: tuple[str, Family]) -> tuple[bool, bool, int]:
        key, family = item
        order = list(FAMILIES)
        place = order.index(key) if key in order else len(order)
        return (family.born_at_first_increment, family.kind == "histogram", place)

    _, family = min(preset.families.items(), key=rank)
    if family.kind == "histogram" and family.names:
        return tuple(f"{name}_count" for name in family.names)
    return family.names or sample_names(family)


def series_of(names: Iterable[str], narrow: str) -> str:
    """A selector of every series of these normalised names: ``:`` and ``_`` are alike where a prefix ends. (Two
    places: collectors put their own prefix in front. More would make a pattern that no server can expand.)
    """
    patterns = (re.sub("_", "[:_]", name, count=2) for name in names)
    return f'{{__name__=~"{"|".join(patterns)}"{narrow}}}'


def spellings(name: str) -> tuple[str, ...]:
    """The exact names that a normalised one may stand for, as :func:`series_of` finds them."""
    first = name.find("_")
    second = name.find("_", first + 1) if first >= 0 else -1
    places = [place for place in (first, second) if place >= 0]
    return (name, *(f"{name[:place]}:{name[place + 1 :]}" for place in places))
