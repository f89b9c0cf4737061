"""``loadtide serve`` started with what is rendered: it listens, answers the probes, and serves what is scraped.

G6-06 and G6-08: with nowhere to write but its volume, and without rights.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import trustme
from aiohttp import web
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.agent.running_agent import beside, until
from tests.consume.engine_doubles import SGLangDouble
from tests.deploy.helm_installs import kubeconfig
from tests.deploy.placed import container
from tests.deploy.tools import OVERLAYS, Installed, Release, Tools
from tests.ports import free_port
from tests.real.redis_server import RedisServer
from tests.running_scaler import running_scaler
from tests.signals.api_server_double import ClusterDouble

pytestmark = pytest.mark.real


def arguments(rendered: Installed, folder: Path) -> list[str]:
    """Those of the container, its mounts replaced by folders of ``folder`` and its ports by free ones."""
    words = container(rendered)["args"][1:]
    for mount in container(rendered)["volumeMounts"]:
        here = folder / mount["name"]
        here.mkdir(exist_ok=True)
        words = [word.replace(f"={mount['mountPath']}/", f"={here}/") for word in words]
    policy = rendered.one("ConfigMap")["data"]["policy.yaml"]
    (folder / "policy" / "policy.yaml").write_text(policy)
    return [word.replace("0.0.0.0:6001", "127.0.0.1:0") for word in words]


def health(address: str, service: str) -> int:
    with grpc.insecure_channel(address) as channel:
        asked = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(asked, timeout=60).status)


def answers_its_probes(address: str, rendered: Installed) -> None:
    for probe in ("readinessProbe", "livenessProbe"):
        service = container(rendered)[probe]["grpc"]["service"]
        assert health(address, service) == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    "release",
    [Release(custom=False), Release(values={"rbac": {"create": False}}, custom=False)],
    ids=["defaults", "no rights"],
)
def test_the_charts_process_serves_what_is_asked_of_it(tools: Tools, tmp_path: Path, release: Release) -> None:
    (rendered,) = tools.install(release)
    with running_scaler(tmp_path, *arguments(rendered, tmp_path)) as scaler:
        answers_its_probes(scaler.grpc, rendered)
        assert "loadtide_store_up" in scaler.text("/metrics")
        assert (tmp_path / "memory" / "memory.db").exists()


def test_with_tls_the_kubelet_asks_the_plain_port(tools: Tools, tmp_path: Path) -> None:
    rendered = tools.kustomize(OVERLAYS / "tls")
    words = arguments(rendered, tmp_path)
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(tmp_path / "grpc-tls" / "tls.key")
    own.cert_chain_pems[0].write_to_path(tmp_path / "grpc-tls" / "tls.crt")
    authority.cert_pem.write_to_path(tmp_path / "grpc-tls" / "ca.crt")
    with running_scaler(tmp_path, *words) as scaler:
        (said,) = scaler.lines("serving")
        answers_its_probes(said["health"], rendered)
        with pytest.raises(grpc.RpcError):
            health(scaler.grpc, "readiness")


def test_one_of_several_opens_the_door_that_the_policy_leaves_to_the_others(
    tools: Tools, redis: RedisServer, tmp_path: Path
) -> None:
    """On another port, for 6002 may be taken here; what is rendered is 6002 throughout."""
    (rendered,) = tools.install(
        Release(values={"replicas": 2, "store": {"type": "redis", "redisSecret": {"name": "redis"}}}, custom=False)
    )
    port = free_port()
    words = [word.replace("--peers-port=6002", f"--peers-port={port}") for word in arguments(rendered, tmp_path)]
    assert f"--peers-port={port}" in words
    with running_scaler(tmp_path, *words, environment={"LOADTIDE_STORE": redis.url}) as scaler:
        answers_its_probes(scaler.grpc, rendered)
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            pass


def test_a_secret_that_is_no_url_does_not_make_several_scalers_with_a_file_each(tools: Tools, tmp_path: Path) -> None:
    (rendered,) = tools.install(
        Release(values={"replicas": 2, "store": {"type": "redis", "redisSecret": {"name": "redis"}}}, custom=False)
    )
    command = [sys.executable, "-m", "scaler", "serve", "--grpc=127.0.0.1:0", "--http=127.0.0.1:0"]
    done = subprocess.run(
        [*command, *arguments(rendered, tmp_path)],
        env=os.environ | {"LOADTIDE_STORE": "redis.redis.svc:6379/0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 2
    assert "redis://HOST:PORT" in done.stderr


@pytest.mark.parametrize("known", [True, False], ids=["forbidden", "no cluster"])
def test_a_right_that_is_missing_is_one_warning_and_no_end(tools: Tools, tmp_path: Path, known: bool) -> None:
    """G6-08: ``rbac.create: false`` and a workload whose endpoints and replicas only the cluster could tell. What needs
    no cluster goes on; of the other KEDA is told that nothing is known.
    """
    (rendered,) = tools.install(Release(values={"rbac": {"create": False}}, custom=False))
    cluster, engine = ClusterDouble(forbidden={"*"}), SGLangDouble()
    with beside([web.get("/{path:.*}", cluster.answer)]) as api, beside(engine.routes()) as url:
        words = arguments(rendered, tmp_path)
        (tmp_path / "policy" / "policy.yaml").write_text(
            "workloads:\n"
            '  chat/found: {scrape: {endpoint_slice: "found:http"}, target: {name: found}, replicas: {max: 4}}\n'
            f'  chat/told: {{engine: sglang, scrape: {{urls: ["{url}/metrics"]}}, replicas: {{min: 1, max: 4}}}}\n'
        )
        (tmp_path / "kubeconfig").write_text(kubeconfig(api) if known else "{}")
        environment = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}
        with running_scaler(tmp_path, *words, "--tick-seconds=0.2", environment=environment) as scaler:
            answers_its_probes(scaler.grpc, rendered)
            until(lambda: scaler.get("/v1/workloads/chat/told")["state"] == "normal", 60, "what needs no cluster")
            ticks = scaler.get("/v1/workloads/chat/found")["decided_at"]
            until(lambda: scaler.get("/v1/workloads/chat/found")["decided_at"] > ticks, 60, "it is looked at again")
            assert scaler.get("/v1/workloads/chat/found")["available"] is False
            warned = [
                json.loads(line)["event"]
                for line in scaler.log.read_text().splitlines()
                if '"level": "warning"' in line
            ]
    lost = ["cluster list lost", "replicas asked for are not known"]  # a warning for each right
    alone = ["no cluster to ask; endpoints and replica counts are unknown"]
    assert sorted(event for event in warned if event != "a library says") == (lost if known else alone)


@pytest.mark.parametrize("left", [False, True], ids=["missing", "with old files"])
def test_a_multiprocess_folder_of_prometheus_changes_nothing(tools: Tools, tmp_path: Path, left: bool) -> None:
    """G6-06: metrics are the process' own, whatever the folder is; and nothing is written beside the volume."""
    (rendered,) = tools.install(Release(custom=False))
    elsewhere, empty = tmp_path / "multiprocess", tmp_path / "empty"
    empty.mkdir()
    if left:
        elsewhere.mkdir()
        (elsewhere / "counter_1.db").write_bytes(b"of an earlier life")
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(elsewhere), "TMPDIR": str(empty), "HOME": str(empty)}
    with running_scaler(tmp_path, *arguments(rendered, tmp_path), environment=environment) as scaler:
        answers_its_probes(scaler.grpc, rendered)
        assert "loadtide_store_up" in scaler.text("/metrics")
        (told,) = scaler.lines("PROMETHEUS_MULTIPROC_DIR is not used: all metrics are of this process")
        assert told["folder"] == str(elsewhere)
    assert not list(empty.iterdir())
    assert [each.name for each in elsewhere.glob("*")] == (["counter_1.db"] if left else [])
