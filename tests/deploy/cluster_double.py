"""As much of Kubernetes' API as Helm asks for when it installs: it discovers kinds, finds nothing, and creates.

No cluster takes part: nothing is defaulted, validated, admitted or run. What is asked to be created is kept as it came,
so that a test sees what Helm would have made. Uses the standard library only: it also runs in the tools' environment.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: group/version → kind → (resource, whether it lives in a namespace).
KINDS: dict[str, dict[str, tuple[str, bool]]] = {
    "v1": {
        "ConfigMap": ("configmaps", True),
        "Namespace": ("namespaces", False),
        "PersistentVolumeClaim": ("persistentvolumeclaims", True),
        "Secret": ("secrets", True),
        "Service": ("services", True),
        "ServiceAccount": ("serviceaccounts", True),
    },
    "apps/v1": {"DaemonSet": ("daemonsets", True), "Deployment": ("deployments", True)},
    "networking.k8s.io/v1": {"NetworkPolicy": ("networkpolicies", True)},
    "policy/v1": {"PodDisruptionBudget": ("poddisruptionbudgets", True)},
    "rbac.authorization.k8s.io/v1": {
        "ClusterRole": ("clusterroles", False),
        "ClusterRoleBinding": ("clusterrolebindings", False),
        "Role": ("roles", True),
        "RoleBinding": ("rolebindings", True),
    },
}
#: What a cluster with KEDA and the Prometheus operator has besides.
CUSTOM: dict[str, dict[str, tuple[str, bool]]] = {
    "keda.sh/v1alpha1": {
        "ClusterTriggerAuthentication": ("clustertriggerauthentications", False),
        "TriggerAuthentication": ("triggerauthentications", True),
    },
    "monitoring.coreos.com/v1": {
        "PodMonitor": ("podmonitors", True),
        "PrometheusRule": ("prometheusrules", True),
        "ServiceMonitor": ("servicemonitors", True),
    },
}


class ClusterDouble:
    """One empty cluster. ``created`` holds every object that was posted, in order. Helm's record of a release comes as
    protobuf, which nothing here reads: ``records`` has it as it came.
    """

    def __init__(self, *, custom: bool) -> None:
        self.kinds = {**KINDS, **(CUSTOM if custom else {})}
        self.created: dict[str, dict[str, Any]] = {}
        self.records: list[bytes] = []

    def discovery(self, path: str) -> dict[str, Any] | None:
        """The document of a discovery path, None where it is another."""
        if path == "/version":
            return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = [
                {
                    "name": each.split("/")[0],
                    "versions": [{"groupVersion": each, "version": each.split("/")[1]}],
                    "preferredVersion": {"groupVersion": each, "version": each.split("/")[1]},
                }
                for each in self.kinds
                if "/" in each
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version not in self.kinds:
            return None
        resources = [
            {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["create", "get"]}
            for kind, (name, namespaced) in self.kinds[version].items()
        ]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}

    def resource(self, path: str) -> tuple[str, str] | None:
        """(group/version, kind) of a list's path, None where it is none."""
        for version, kinds in self.kinds.items():
            root = f"/apis/{version}/" if "/" in version else f"/api/{version}/"
            for kind, (name, _) in kinds.items():
                if path.startswith(root) and path.rsplit("/", 1)[-1] == name:
                    return version, kind
        return None


@contextmanager
def serving(cluster: ClusterDouble) -> Iterator[str]:
    """The cluster's API on a free port of the loopback; its URL."""

    class Api(BaseHTTPRequestHandler):
        def answer(self, status: int, body: dict[str, Any]) -> None:
            self.answer_with(status, "application/json", json.dumps(body).encode())

        def answer_with(self, status: int, content: str, text: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def absent(self) -> None:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self.answer(404, status)

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if (document := cluster.discovery(path)) is not None:
                self.answer(200, document)
            elif path in cluster.created:
                self.answer(200, cluster.created[path])
            elif (found := cluster.resource(path)) is not None:
                self.answer(200, {"apiVersion": found[0], "kind": f"{found[1]}List", "metadata": {}, "items": []})
            else:
                self.absent()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = self.path.split("?")[0]
            if self.headers["Content-Type"] != "application/json":
                cluster.records.append(body)
                self.answer_with(201, self.headers["Content-Type"], body)
            elif cluster.resource(path) is None:
                self.absent()
            else:
                created = json.loads(body)
                cluster.created[f"{path}/{created['metadata']['name']}"] = created
                self.answer(201, created)

        def do_PUT(self) -> None:
            """Only the release's record is ever changed."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            cluster.records.append(body)
            self.answer_with(200, self.headers["Content-Type"], body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
