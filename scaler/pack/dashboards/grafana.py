"""A dashboard as the JSON that Grafana 10.4 and later load: schema 39, no id, no inputs, every data source a variable.

Keys are those that Grafana itself saves; what it fills in with its own default is left out where leaving it out means
the same. Panels flow over the 24 columns of the grid in the order they are written in.
"""

from __future__ import annotations

from collections.abc import Iterable

from scaler.pack.dashboards.model import Annotation, Dashboard, Row, Variable
from scaler.pack.dashboards.panels import DATASOURCE, Json, panel_document
from scaler.pack.promql import replaced

TAG = "loadtide"
SCHEMA_VERSION = 39
COLUMNS = 24
#: What ``All`` stands for. A label that may be missing is therefore matched with ``=~"$name|"``.
ALL = ".+"
#: Grafana works out ``$__interval`` and ``$__rate_interval`` wrongly for annotations (grafana/grafana#82636), so they
#: ask at fixed steps, and their expressions look back as far as this.
ANNOTATION_STEP = "60s"


def dashboard_document(dashboard: Dashboard, datasource: str | None = None) -> Json:
    """The whole document. ``datasource`` is the name or uid of the data source chosen at first; None: Grafana's
    default one.
    """
    return {
        "id": None,
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_datasource(datasource), *map(_variable, dashboard.variables)]},
        "annotations": {"list": [_annotation(each) for each in dashboard.annotations]},
        "links": [_link()],
        "panels": _panels(dashboard.rows),
    }


def _datasource(chosen: str | None) -> Json:
    # Grafana finds a source by its name and by its uid, and takes its default one where nothing is chosen.
    current = {} if chosen is None else {"selected": True, "text": chosen, "value": chosen}
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": current,
        "options": [],
        "refresh": 1,
        "regex": "",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "skipUrlSync": False,
    }


def _variable(variable: Variable) -> Json:
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.title,
        "datasource": DATASOURCE,
        "query": _values(variable),
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
        "refresh": 2,
        "sort": 1,
        "regex": f'/{variable.label}="([^"]+)"/' if variable.before else "",
        "hide": 0,
        "includeAll": True,
        "allValue": ALL,
        "multi": True,
        "skipUrlSync": False,
    }


def _values(variable: Variable) -> str:
    """``label_values`` knows one label only; of an expression Grafana takes what the variable's pattern finds."""
    if not variable.before:
        return f"label_values({variable.series}, {variable.label})"
    both = replaced(variable.series, variable.label, "$1", variable.before, "(.+)")
    return f"query_result(group by ({variable.label}) ({both}))"


def _annotation(annotation: Annotation) -> Json:
    return {
        "name": annotation.name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": annotation.color,
        "expr": annotation.expr,
        "step": ANNOTATION_STEP,
        "titleFormat": annotation.title,
        "textFormat": annotation.text,
        "tagKeys": ",".join(annotation.tags),
        "useValueForTime": "false",
    }


def _link() -> Json:
    return {
        "type": "dashboards",
        "title": "loadtide",
        "icon": "external link",
        "tooltip": "The same time and choices on the other dashboards",
        "tags": [TAG],
        "url": "",
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _panels(rows: Iterable[Row]) -> list[Json]:
    placed: list[Json] = []
    number = top = 0
    for row in rows:
        number += 1
        heading = {"type": "row", "id": number, "title": row.title, "collapsed": row.folded}
        inside: list[Json] = []
        at = {"x": 0, "y": top + 1}
        height = 0
        for panel in row.panels:
            number += 1
            if at["x"] + panel.width > COLUMNS:
                at, height = {"x": 0, "y": at["y"] + height}, 0
            inside.append(panel_document(panel, number, {"h": panel.height, "w": panel.width, **at}))
            at, height = {**at, "x": at["x"] + panel.width}, max(height, panel.height)
        heading |= {"gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top}, "panels": inside if row.folded else []}
        placed += [heading] if row.folded else [heading, *inside]
        # What a folded row holds moves down with what comes after it once it is opened.
        top = top + 1 if row.folded else at["y"] + height
    return placed
