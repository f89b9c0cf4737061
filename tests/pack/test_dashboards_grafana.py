"""Grafana's own models of a dashboard read ours whole: no key they do not know, no unit Grafana does not have.

The models are those of grafana-foundation-sdk for Grafana 11.6. They ignore what they do not know, so that a document
which comes back equal has nothing in it but known keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from scaler.pack.dashboards.written import Form, files

#: What the models lack, though Grafana has it: how a Prometheus' answer becomes an annotation (grafana/grafana,
#: packages/grafana-prometheus/src, ``annotationQuery`` and ``processAnnotationResponse``).
KNOWN_TO_GRAFANA_ALONE = {
    f"annotations.list.{key}" for key in ("step", "titleFormat", "textFormat", "tagKeys", "useValueForTime")
}

#: Unit ids used here, from Grafana's packages/grafana-data/src/valueFormats/categories.ts.
UNITS = {
    "celsius": "Temperature: Celsius (°C)",
    "cps": "Throughput: counts/sec",
    "dateTimeFromNow": "Date & time: From Now",
    "h": "Time: hours",
    "mbytes": "Data (IEC): mebibytes",
    "none": "Misc: none",
    "percent": "Misc: Percent (0-100)",
    "percentunit": "Misc: Percent (0.0-1.0)",
    "reqps": "Throughput: requests/sec",
    "s": "Time: seconds",
    "short": "Misc: short",
    "watt": "Energy: Watt (W)",
}

DOCUMENTS = {name: json.loads(text) for name, text in files(Form.JSON).items()}


def paths(node: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """(where, value) of every leaf; a list's members share one place."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from paths(value, f"{at}.{key}" if at else key)
    elif isinstance(node, list):
        for value in node:
            yield from paths(value, at)
    else:
        yield at, node


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_grafanas_models_read_is_what_we_wrote(name: str) -> None:
    register_default_plugins()
    ours = DOCUMENTS[name]
    read = json.loads(json.dumps(Dashboard.from_json(ours), cls=JSONEncoder))
    lost = {where for where, value in set(hashable(ours)) - set(hashable(read)) if value is not None}
    assert lost == KNOWN_TO_GRAFANA_ALONE


def test_a_key_that_no_model_knows_would_be_named() -> None:
    register_default_plugins()
    ours = json.loads(json.dumps(DOCUMENTS["loadtide-gpu.json"]))
    ours["panels"][1]["options"]["legend"]["misspelt"] = True
    ours["panels"][1]["fieldConfig"]["defaults"]["unti"] = "s"
    read = json.loads(json.dumps(Dashboard.from_json(ours), cls=JSONEncoder))
    lost = {where for where, value in set(hashable(ours)) - set(hashable(read)) if value is not None}
    assert {"panels.options.legend.misspelt", "panels.fieldConfig.defaults.unti"} <= lost


def hashable(document: Any) -> Iterator[tuple[str, Any]]:
    yield from paths(document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_unit_is_one_of_grafanas(name: str) -> None:
    units = {value for where, value in paths(DOCUMENTS[name]) if where.endswith("defaults.unit")}
    units |= {
        each["value"]
        for panel in DOCUMENTS[name]["panels"]
        for override in panel.get("fieldConfig", {}).get("overrides", ())
        for each in override["properties"]
        if each["id"] == "unit"
    }
    assert units
    assert units <= UNITS.keys()
