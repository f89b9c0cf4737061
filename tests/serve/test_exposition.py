"""The text we write ourselves says the same as the library's, in both formats, whatever stands in a label."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from scaler.serve.exporter import WorkloadCollector
from scaler.serve.exposition import GaugeText, encoded, labels_text
from tests.serve.tide import FakeWorkloads, snapshot

ODD = 'quo"te\\back\nline-größe\n\n'


def series(families: object) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, however it is ordered."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in families:  # type: ignore[attr-defined]
        assert isinstance(family, Metric)
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


@pytest.fixture
def registry() -> CollectorRegistry:
    workloads = FakeWorkloads()
    for name in ("team-a/chat", f"ns/{ODD}"):
        workloads.add(name, snapshot(name)).decisions_total = {("batch", "down", "memory_pressure"): 3}
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    Counter("loadtide_other", "A family of the library's own.", registry=registry).inc()
    return registry


@pytest.mark.parametrize(
    ("encode", "parse"), [(generate_latest, parse_text), (openmetrics.generate_latest, parse_openmetrics)]
)
def test_the_same_series_as_the_library_writes(
    registry: CollectorRegistry, encode: Callable[[CollectorRegistry], bytes], parse: Callable[[str], object]
) -> None:
    def without_times(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {key: value for key, value in series(parse(text.decode())).items() if not key[0].endswith("_created")}

    ours, library = without_times(encoded(encode, registry)), without_times(encode(registry))
    assert ours == library
    assert len(ours) > 300
    assert {dict(labels)["workload"] for name, labels in ours if name == "loadtide_active"} == {"chat", ODD}


def test_each_family_is_one_group_with_its_help(registry: CollectorRegistry) -> None:
    names = []
    for line in encoded(generate_latest, registry).decode().splitlines():
        name = line.split()[2] if line.startswith("#") else line.partition("{")[0].partition(" ")[0]
        if not names or names[-1] != name:
            names.append(name)
    assert len(names) == len(set(names))


def test_words_of_one_workload_do_not_stick_to_the_next() -> None:
    family = GaugeText("loadtide_admission", "What the engine should do.")
    for workload, held in (("a", "open"), ("b", "hold"), ("c", "open")):
        family.add_words(labels_text(workload=workload), (("", "admission", ("open", "hold"), held),))
    assert [(s.labels["workload"], s.labels["admission"]) for s in family.samples if s.value == 1] == [
        ("a", "open"),
        ("b", "hold"),
        ("c", "open"),
    ]
