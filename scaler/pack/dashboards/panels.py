"""One panel as Grafana's JSON: queries, units, words for numbers, thresholds, and how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from scaler.pack.dashboards.model import Panel, Query, Step, Word
from scaler.pack.dashboards.names import metric_names

Json = dict[str, Any]

#: The choice of data source. Never a literal uid: it would be another one in every Grafana.
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


def panel_document(panel: Panel, number: int, position: Json) -> Json:
    """The panel with its id in the dashboard and its place in the grid."""
    defaults: Json = {
        "unit": panel.unit,
        "noValue": panel.nothing,
        "color": {"mode": "thresholds" if panel.kind in ("stat", "table", "state-timeline") else "palette-classic"},
        "mappings": _mappings(panel.words, panel.nothing),
        "thresholds": _thresholds(panel.steps),
        "custom": _custom(panel),
    }
    for key, value in (("min", panel.minimum), ("max", panel.maximum), ("decimals", panel.decimals)):
        if value is not None:
            defaults[key] = value
    document: Json = {
        "type": panel.kind,
        "id": number,
        "title": panel.title,
        "description": _description(panel),
        "datasource": DATASOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": defaults, "overrides": _overrides(panel)},
        "options": _options(panel),
        "targets": [
            _target(query, letter, panel) for query, letter in zip(panel.queries, ascii_uppercase, strict=False)
        ],
    }
    if panel.kind == "table":
        document["transformations"] = _one_table(panel)
    return document


def _description(panel: Panel) -> str:
    metrics = dict.fromkeys(name for query in panel.queries for name in metric_names(query.expr))
    return f"{panel.meaning}\n\nReads {', '.join(f'`{name}`' for name in metrics)}."


def _target(query: Query, letter: str, panel: Panel) -> Json:
    now = panel.kind in ("stat", "table")
    return {
        "refId": letter,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": now,
        "range": not now,
    }


def _thresholds(steps: Sequence[Step]) -> Json:
    return {"mode": "absolute", "steps": [{"value": step.value, "color": step.color} for step in steps]}


def _mappings(words: Mapping[float, Word], nothing: str) -> list[Json]:
    """Words for numbers, and for no number at all."""
    silent = {"type": "special", "options": {"match": "null+nan", "result": {"text": nothing, "index": len(words)}}}
    if not words:
        return [silent]
    options = {
        f"{value:g}": {"text": word.text, "color": word.color, "index": index}
        for index, (value, word) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}, silent]


def _custom(panel: Panel) -> Json:
    match panel.kind:
        case "timeseries":
            return {
                "drawStyle": "bars" if panel.bars else "line",
                "lineInterpolation": "stepAfter" if panel.stairs else "linear",
                "lineWidth": 1,
                "fillOpacity": 60 if panel.bars else 8,
                "showPoints": "never",
                "spanNulls": False,
                "stacking": {"mode": "normal" if panel.bars else "none", "group": "A"},
                "thresholdsStyle": {"mode": "dashed" if len(panel.steps) > 1 else "off"},
            }
        case "state-timeline":
            return {"fillOpacity": 75, "lineWidth": 0}
        case "table":
            return {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
        case "stat":
            return {}


def _options(panel: Panel) -> Json:
    tooltip = {"mode": "multi", "sort": "desc"}
    match panel.kind:
        case "timeseries":
            calcs = ["lastNotNull", "max"]
            legend = {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": calcs}
            return {"legend": legend, "tooltip": tooltip}
        case "state-timeline":
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
            return {
                "mergeValues": True,
                "showValue": "auto",
                "alignValue": "left",
                "rowHeight": 0.9,
                "legend": legend,
                "tooltip": {"mode": "single", "sort": "none"},
            }
        case "table":
            sort = [{"displayName": panel.newest_first, "desc": True}] if panel.newest_first else []
            return {"showHeader": True, "cellHeight": "sm", "sortBy": sort}
        case "stat":
            return {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "value",
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "textMode": "auto",
            }


def _overrides(panel: Panel) -> list[Json]:
    if panel.kind == "table":
        return [
            {"matcher": {"id": "byName", "options": query.title}, "properties": _column(query, panel)}
            for query in panel.queries
        ]
    return [
        {
            "matcher": {"id": "byFrameRefID", "options": letter},
            "properties": [
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                {"id": "custom.fillOpacity", "value": 0},
            ],
        }
        for query, letter in zip(panel.queries, ascii_uppercase, strict=False)
        if query.dashed
    ]


def _column(query: Query, panel: Panel) -> list[Json]:
    properties: list[Json] = [
        {"id": "unit", "value": query.unit},
        {"id": "mappings", "value": _mappings(query.words, panel.nothing)},
    ]
    if query.words:
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    return properties


def _one_table(panel: Panel) -> list[Json]:
    """One row for each set of labels, one column for each query."""
    several = len(panel.queries) > 1
    columns = zip(panel.queries, ascii_uppercase, strict=False)
    titles = {f"Value #{letter}" if several else "Value": query.title for query, letter in columns}
    order = {name: index for index, name in enumerate([*panel.labels, *titles])}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": {**panel.labels, **titles}}
    merge: list[Json] = [{"id": "merge", "options": {}}] if several else []
    return [*merge, {"id": "organize", "options": organize}]
