"""The dashboards as files: Grafana's JSON, or the ConfigMaps that Grafana's sidecar picks up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum

import yaml

from scaler.pack.dashboards import dashboards
from scaler.pack.dashboards.grafana import dashboard_document
from scaler.pack.model import checked_namespace

#: What the sidecar of Grafana's Helm chart looks for, as its values have it (``sidecar.dashboards.label``).
SIDECAR_LABEL = {"grafana_dashboard": "1"}


class Form(StrEnum):
    """How the dashboards are written."""

    JSON = "json"
    CONFIGMAP = "configmap"


class Which(StrEnum):
    """Which dashboard: what stands behind ``loadtide-`` in its uid."""

    OVERVIEW = "overview"
    DECISIONS = "decisions"
    GPU = "gpu"


def files(
    form: Form, which: Iterable[Which] = tuple(Which), datasource: str | None = None, namespace: str | None = None
) -> Mapping[str, str]:
    """File name → text, of those named. ``datasource`` is chosen at first; ``namespace`` is the ConfigMaps'. Raises
    ValueError for one that no cluster takes.
    """
    uids = {f"loadtide-{each}" for each in which}
    wanted = (dashboard for dashboard in dashboards() if dashboard.uid in uids)
    texts = {dashboard.uid: _json(dashboard_document(dashboard, datasource)) for dashboard in wanted}
    if form is Form.JSON:
        return {f"{uid}.json": text for uid, text in texts.items()}
    return {f"{uid}.configmap.yaml": _config_map(uid, text, namespace) for uid, text in texts.items()}


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _config_map(uid: str, text: str, namespace: str | None) -> str:
    metadata: dict[str, object] = {"name": uid, "labels": {"app.kubernetes.io/name": "loadtide", **SIDECAR_LABEL}}
    if namespace is not None:
        metadata["namespace"] = checked_namespace(namespace)
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {f"{uid}.json": _Block(text)}}
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)


class _Block(str):
    """A text that keeps its lines."""


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: long texts as blocks."""


_Dumper.add_representer(
    _Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)
