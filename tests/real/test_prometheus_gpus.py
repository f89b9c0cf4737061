"""DCGM exporters behind a real Prometheus: its one query for all GPUs is understood, and means what it says."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.policy.layers import PolicyFile
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.dcgm import PodName
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.gpu import GpuReading
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.gpus import GpuSeries, Namespaces
from scaler.signals.scrape import Exporter
from tests.patience import at_last, comes_to
from tests.real import prometheus_server
from tests.real.prometheus_server import Server, Target
from tests.real.test_prometheus import Page, serving

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("prometheus")]

BODY = Path(__file__).parents[1] / "signals" / "bodies" / "vllm-0.32-load.txt"


def series(uuid: str, values: dict[str, float], **labels: str) -> str:
    own = ",".join(f'{name}="{value}"' for name, value in {"gpu": "0", "UUID": uuid, **labels}.items())
    return "".join(f"DCGM_FI_{name}{{{own}}} {value}\n" for name, value in values.items())


def held(pod: str, namespace: str = "chat") -> dict[str, str]:
    return {"pod": pod, "namespace": namespace, "container": "vllm"}


WHOLE = {
    "DEV_GPU_UTIL": 87,
    "PROF_GR_ENGINE_ACTIVE": 0.86,
    "PROF_SM_ACTIVE": 0.41,
    "PROF_SM_OCCUPANCY": 0.21,
    "DEV_FB_USED": 74058,
    "DEV_FB_FREE": 6912,
    "DEV_FB_RESERVED": 589,
    "DEV_XID_ERRORS": 0,
    "DEV_POWER_USAGE": 416.3,
}
#: A time-sliced GPU: its own values name no pod, and each pod's part stands beside them.
SHARED = (
    series("GPU-2", {"DEV_GPU_UTIL": 90, "DEV_FB_USED": 60000})
    + series("GPU-2", {"DEV_GPU_UTIL": 70, "DEV_FB_USED": 40000, "DEV_FB_FREE": 20000}, **held("a-0"))
    + series("GPU-2", {"DEV_GPU_UTIL": 20, "DEV_FB_USED": 20000, "DEV_FB_FREE": 20000}, **held("b-0", "other"))
)
MIG = series(
    "GPU-3",
    {"DEV_GPU_UTIL": 0, "PROF_GR_ENGINE_ACTIVE": 0.71, "DEV_FB_USED": 9000, "DEV_FB_FREE": 11000},
    GPU_I_ID="1",
    GPU_I_PROFILE="3g.20gb",
    **held("m-0"),
)
FIRST = series("GPU-1", WHOLE, **held("llama-0")) + SHARED
SECOND = MIG + series("GPU-4", WHOLE, **held("x-0", "elsewhere"))


@asynccontextmanager
async def two_nodes(folder: Path, *, honour: bool) -> AsyncIterator[Server]:
    with serving(Page(FIRST)) as first, serving(Page(SECOND)) as second:
        job = {
            "job_name": "dcgm",
            "honor_labels": honour,
            "static_configs": [
                {"targets": [page.address], "labels": {"namespace": "gpu-operator", "pod": f"dcgm-{name}"}}
                for name, page in (("n1", first), ("n2", second))
            ],
        }
        with prometheus_server.serve(folder, configuration={"scrape_configs": [job]}) as server:
            server.wait_for("DCGM_FI_DEV_FB_USED", 5)
            yield server


async def gpus(server: Server, namespaces: Namespaces) -> DcgmGpus:
    found = GpuSeries("main", Api(PrometheusServer(url=server.url)))
    async with aiohttp.ClientSession() as session:
        read = await found.read(
            session,
            time.monotonic,
            tick_seconds=5.0,
            scrape_interval_seconds=1.0,
            cluster=None,
            namespaces=namespaces,
            wanted=lambda: namespaces,
        )
    assert isinstance(read, Exporter), read
    return read.gpus


def of(found: DcgmGpus, pod: str, namespace: str = "chat") -> GpuReading:
    (reading,) = found.held_by(PodName(namespace, pod))
    return reading


@pytest.mark.parametrize("honour", [False, True])
async def test_gpus_are_read_whole_narrowed_or_not(tmp_path: Path, honour: bool) -> None:
    async with two_nodes(tmp_path, honour=honour) as server:
        await comes_to(lambda: all_are_read(server, honour=honour))


async def all_are_read(server: Server, *, honour: bool) -> None:
    narrowed, everybodys = await gpus(server, frozenset({"chat", "unused"})), await gpus(server, None)
    assert len(narrowed) == 3, "not the GPU that only a pod of another namespace holds"
    assert len(everybodys) == 4
    for found in (narrowed, everybodys):
        whole = of(found, "llama-0")
        assert (whole.busy_ratio, whole.sm_active_ratio, whole.sm_occupancy_ratio, whole.xid) == (0.87, 0.41, 0.21, 0)
        assert whole.memory is not None
        assert whole.memory.consistent
        assert whole.power_watts is None
        shared = of(found, "a-0")
        assert shared.busy_ratio == 0.9, "what both pods make of it, though its own series is of no namespace"
        assert shared.memory is not None
        assert shared.memory.used_bytes == 60000 * 1024**2
        instance = of(found, "m-0")
        assert (instance.busy_ratio, instance.memory_free_ratio) == (0.71, 0.55)
        if not honour:  # there the exporter's own pod stands only where no pod holds the GPU
            assert found.held_by(PodName("gpu-operator", "dcgm-n1")) == ()


async def test_an_exporter_that_is_gone_leaves_no_reading(tmp_path: Path) -> None:
    with (
        serving(Page(FIRST)) as page,
        prometheus_server.serve(tmp_path, [Target(page.address, {"node": "n1"})]) as server,
    ):

        async def count(wanted: int) -> None:
            assert len(await gpus(server, None)) == wanted

        await comes_to(lambda: count(2))
        page.text = "not a metrics page {"
        server.wait_for("absent(DCGM_FI_DEV_FB_USED)")
        await comes_to(lambda: count(0))


def test_probe_writes_the_policy_lines_that_read_them(tmp_path: Path) -> None:
    with serving(Page(BODY.read_text())) as engine, serving(Page(FIRST)) as exporter:
        engines = {
            "job_name": "engines",
            "static_configs": [{"targets": [engine.address], "labels": {"namespace": "chat", "pod": "llama-0"}}],
        }
        dcgm = {
            "job_name": "dcgm",
            "static_configs": [{"targets": [exporter.address], "labels": {"namespace": "gpus", "pod": "dcgm-n1"}}],
        }
        configuration = {"scrape_configs": [engines, dcgm]}
        with prometheus_server.serve(tmp_path, configuration=configuration) as server:

            def probed() -> None:
                result = CliRunner().invoke(app, ["probe", server.url])
                assert result.exit_code == 0, result.output
                said = " ".join(result.stdout.split())
                assert "DCGM: 9 of 11 fields, 2 GPUs or MIG instances, held by pods in: chat, other" in said
                assert "sources:" in result.stdout
                file = PolicyFile.parse("p.yaml", result.stdout[result.stdout.index("sources:") :])
                assert [file.resolve(name).policy.gpu.source for name in file.workloads] == ["main"]

            at_last(probed)
