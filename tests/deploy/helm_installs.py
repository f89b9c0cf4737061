"""Installs charts with a real Helm engine into a cluster double. Runs in the tools' environment, not in ours.

Standard input: ``{"chart": FOLDER, "installs": [{"name", "namespace", "values", "custom"}]}``; standard output: for
each install ``{"objects": [...], "notes": text}`` or ``{"error": text}``.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from cluster_double import ClusterDouble, serving


def kubeconfig(url: str) -> str:
    """The credentials of nobody in the cluster at ``url``."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "double", "cluster": {"server": url}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "double", "context": {"cluster": "double", "user": "nobody"}}],
            "current-context": "double",
        }
    )


def install(chart: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """One install into a cluster of its own."""
    from helm_sdkpy import Configuration, HelmError, Install  # type: ignore[import-not-found, unused-ignore]

    cluster = ClusterDouble(custom=wanted["custom"])
    with serving(cluster) as url, tempfile.NamedTemporaryFile("w", suffix=".yaml") as credentials:
        credentials.write(kubeconfig(url))
        credentials.flush()
        try:
            configuration = Configuration(namespace=wanted["namespace"], kubeconfig=credentials.name)
            asyncio.run(
                Install(configuration).run(
                    wanted["name"], chart, values=wanted["values"], wait=False, server_side_apply=False, timeout=120
                )
            )
        except HelmError as error:
            return {"error": str(error)}
    return {"objects": list(cluster.created.values()), "notes": notes(cluster.records[-1])}


def notes(record: bytes) -> str:
    """What Helm prints after an install. A release is kept as gzipped JSON in base64, which begins so."""
    found = re.search(rb"H4sI[A-Za-z0-9+/=]+", record)
    assert found is not None
    return str(json.loads(gzip.decompress(base64.b64decode(found[0])))["info"]["notes"])


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump([install(asked["chart"], each) for each in asked["installs"]], sys.stdout)
