"""The Envoy of deploy/examples/envoy-door.yaml on ports of this machine, and the policy of a workload behind it."""

from __future__ import annotations

from typing import Any

import yaml

from tests.deploy.test_examples import one
from tests.ports import free_port

PREFIX = "qwen3-32b"


def door_configuration(engine_port: int) -> dict[str, Any]:
    """The example's configuration; its engine is at ``engine_port`` of the loopback."""
    told: dict[str, Any] = yaml.safe_load(one("envoy-door.yaml", "ConfigMap")["data"]["envoy.yaml"])
    admin = told["admin"]["address"]["socket_address"]
    admin["port_value"] = free_port()
    for listener in told["static_resources"]["listeners"]:
        listener["address"]["socket_address"].update(address="127.0.0.1", port_value=free_port())
    engine, statistics = told["static_resources"]["clusters"]
    engine["type"] = "STATIC"
    for cluster, port in ((engine, engine_port), (statistics, admin["port_value"])):
        (endpoints,) = cluster["load_assignment"]["endpoints"]
        address = endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
        address.update(address="127.0.0.1", port_value=port)
    return told


def declared(engine_port: int, statistics_url: str) -> str:
    """A policy file for the workload "door/chat" behind the door."""
    return f"""\
workloads:
  door/chat:
    scrape: {{urls: ["http://127.0.0.1:{engine_port}/metrics"]}}
    gateway:
      preset: envoy-door
      urls: ["{statistics_url}"]
      match: {{envoy_http_conn_manager_prefix: {PREFIX}}}
    replicas: {{min: 0, max: 1, cold_start_seconds: 3}}
    window_seconds: 10
    idle: {{timeout_seconds: 6}}
    batch: {{max: 16}}
"""
