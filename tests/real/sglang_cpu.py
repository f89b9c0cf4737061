"""A real SGLang on the CPU for the tests: installed once, started and ended as a process.

It computes in plain torch: ``sglang_without_gpu.py`` says what is stood in for. Its environment lies in
``.cache/sglang`` (180 MB) on top of vLLM's, which has torch, transformers and the HTTP server at versions that suit
both. Everything runs on loopback and offline, with the tiny model.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.real import vllm_cpu
from tests.real.vllm_cpu import CACHE, HERE, MODEL_NAME, Installation, Server, Unavailable

REQUIREMENTS = HERE / "sglang-requirements.txt"
SERVER = HERE / "sglang_without_gpu.py"


def install(beneath: Installation) -> Installation:
    """The environment on top of ``beneath``, made now if it is not there (20 s). Raises ``Unavailable``."""
    with (CACHE / "sglang.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once must not install over each other
        venv = CACHE / "sglang"
        packages = Path("lib", "python3.11", "site-packages")
        below = str(beneath.venv / packages)
        wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + below.encode()).hexdigest()
        stamp = venv / "installed-requirements.sha256"
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(venv, ignore_errors=True)
            _run(str(beneath.venv / "bin" / "python"), "-m", "venv", "--without-pip", str(venv))
            # Compiled when first imported: most of it never is.
            pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(venv / "bin" / "python"))
            only = ("--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:")
            _run(*pip, "install", *only, "-r", str(REQUIREMENTS))
            (venv / packages / "beneath.pth").write_text(below + "\n")
            stamp.write_text(wanted)
    return Installation(venv, beneath.model)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        ending = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise Unavailable(f"no real SGLang: installing {REQUIREMENTS.name} failed. The end of what it said:\n{ending}")


@contextmanager
def serve(
    installation: Installation,
    log: Path,
    *,
    max_running_requests: int,
    kv_tokens: int,
    ranks: int = 1,
    variables: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[Server]:
    """Run one replica until the block ends. ``log`` receives its output; ``variables`` go into its environment,
    ``arguments`` to its command line. ``ranks`` compute in parallel, each with a batch and a KV cache of its own.
    Raises ``StartFailed``.
    """
    port = free_port()
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        # Three processes import thousands of files: they are compiled once, not at each start.
        "PYTHONDONTWRITEBYTECODE": "",
        # As vLLM's: on two cores the test has the other.
        "SGLANG_CPU_OMP_THREADS_BIND": "|".join([str(max(os.sched_getaffinity(0)))] * ranks),
        **(variables or {}),
    }
    command = [
        *(str(installation.venv / "bin" / "python"), str(SERVER), "--model-path", str(installation.model)),
        *("--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--attention-backend", "torch_native"),
        *("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
        *("--dp-size", str(ranks), "--context-length", "1024", "--max-running-requests", str(max_running_requests)),
        # Without the last one its scheduler spins, and other tests have half the machine.
        *("--max-total-tokens", str(kv_tokens), "--enable-metrics", "--sleep-on-idle"),
        *arguments,
    ]
    server = Server(f"http://127.0.0.1:{port}", 0, log, max_running_requests)
    with vllm_cpu.replica(command, environment, server) as running:
        yield running
