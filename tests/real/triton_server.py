"""A real Triton Inference Server on the CPU for the tests: one process on loopback, models in Python.

The server is that of the PyPI distribution ``nvidia-pytriton`` (2.51.0; 55 MB to download), of which nothing else is
used. Its Python backend runs models in a process of their own, with the libpython of Python 3.11 and numpy before 2
(with a later one it gives every tensor's size wrongly). ``.cache/triton-2.51.0`` keeps all of it, 200 MB.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.real import server_process

CACHE = Path(__file__).parents[2] / ".cache"
VERSION = "2.51.0"
REQUIREMENTS = ("nvidia-pytriton==0.7.0", "numpy==1.26.4")
PYTHON = Path("backends", "python")

#: Answers each request with how many were in its batch. ``Y`` is refused for a negative ``X``; the parameters say how
#: long a batch and a load take, and below what largest batch it cannot be loaded.
MODEL = """\
import json
import time
import triton_python_backend_utils as triton
import numpy


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        told = {name: float(value["string_value"]) for name, value in config["parameters"].items() if name in KNOWN}
        self.seconds = told["seconds"]
        time.sleep(told["load_seconds"])
        if config["max_batch_size"] < told["needs"]:
            raise triton.TritonModelException("no such a batch")

    def execute(self, requests):
        time.sleep(self.seconds)
        asked = [triton.get_input_tensor_by_name(each, "X").as_numpy() for each in requests]
        if all((each < 0).all() for each in asked):
            raise triton.TritonModelException("the whole batch failed")
        return [answer(each, len(requests)) for each in asked]


KNOWN = ("seconds", "load_seconds", "needs")


def answer(asked, batch):
    if (asked < 0).any():
        return triton.InferenceResponse(error=triton.TritonError("one of the batch failed"))
    return triton.InferenceResponse([triton.Tensor("Y", numpy.full(asked.shape, batch, numpy.float32))])
"""

CONFIG = """\
backend: "python"
max_batch_size: {max_batch_size}
input [{{ name: "X" data_type: TYPE_FP32 dims: [1] }}]
output [{{ name: "Y" data_type: TYPE_FP32 dims: [1] }}]
instance_group [{{ kind: KIND_CPU count: 1 }}]
version_policy {{ all {{}} }}
dynamic_batching {{ max_queue_delay_microseconds: 1000 {batching} }}
"""


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No real Triton can be had on this machine; the text says why and what would help."""


@dataclass(frozen=True)
class Installation:
    """The program, the folder of its backends, and the folder of Python's own library."""

    program: Path
    backends: Path
    library: Path


@dataclass(frozen=True)
class Server:
    """One running Triton: its HTTP port and its metrics page, its gRPC port, and the folder its models lie in."""

    url: str
    metrics_url: str
    grpc: str
    models: Path
    log: Path


def install() -> Installation:
    """The server, fetched now if it is not there. Raises ``Unavailable``."""
    library = _libpython()
    folder = CACHE / f"triton-{VERSION}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "triton.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once must not install over each other
        if not folder.exists():
            unfinished = folder.with_name(f"{folder.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _fetch(unfinished)
            _make_backend(unfinished)
            unfinished.rename(folder)
    installed = folder / "pytriton" / "tritonserver"
    return Installation(installed / "bin" / "tritonserver", installed / "backends", library)


def _libpython() -> Path:
    """The folder of ``libpython3.11.so.1.0``. Raises ``Unavailable``."""
    ask = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_config_var('LIBDIR'))"
    for candidate in (sys.executable, shutil.which("python3.11")):
        if candidate is None:
            continue
        # A shim of that name may exist with no interpreter behind it: only an answer counts.
        answer = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
        version, _, folder = answer.stdout.strip().partition(" ")
        if version == "3.11" and (Path(folder) / "libpython3.11.so.1.0").exists():
            return Path(folder)
    raise Unavailable("Triton's Python backend needs Python 3.11 as a library; install python3.11 and libpython3.11")


def _fetch(target: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
    only = ("--no-compile", "--only-binary", ":all:", "--python-version", "3.11", "--target", str(target))
    done = subprocess.run([*pip, *only, *REQUIREMENTS], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"no real Triton: fetching {' '.join(REQUIREMENTS)} failed:\n{done.stderr[-500:]}")


def _make_backend(root: Path) -> None:
    """Let the Python backend be 3.11's, and find our numpy before any other that is there."""
    installed = root / "pytriton" / "tritonserver"
    stub = shutil.copy(installed / "python_backend_stubs" / "3.11" / "triton_python_backend_stub", installed / PYTHON)
    for program in (Path(stub), installed / "bin" / "tritonserver"):
        program.chmod(0o755)
    imported = installed / PYTHON / "triton_python_backend_utils.py"
    first = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))\n"
    imported.write_text(first + imported.read_text())


def put(
    models: Path,
    name: str,
    *,
    max_batch_size: int = 4,
    seconds: float = 0.1,
    load_seconds: float = 0.0,
    needs: int = 0,
    versions: Sequence[int] = (1,),
    batching: str = "",
    more: str = "",
) -> None:
    """Write a model into the repository; ``batching`` goes into its ``dynamic_batching``, ``more`` beside it."""
    told = {"seconds": seconds, "load_seconds": load_seconds, "needs": needs}
    parameters = "".join(f'parameters {{ key: "{key}" value {{ string_value: "{told[key]}" }} }}\n' for key in told)
    for version in versions:
        (models / name / str(version)).mkdir(parents=True, exist_ok=True)
        (models / name / str(version) / "model.py").write_text(MODEL)
    config = CONFIG.format(max_batch_size=max_batch_size, batching=batching)
    (models / name / "config.pbtxt").write_text(config + parameters + more)


@contextmanager
def serve(installation: Installation, folder: Path, *options: str, control: str = "explicit") -> Iterator[Server]:
    """Run one with every model in ``folder/models`` until the block ends; ``control`` is its model control mode."""
    http, metrics, grpc = free_port(), free_port(), free_port()
    log, models = folder / "triton.log", folder / "models"
    server = Server(f"http://127.0.0.1:{http}", f"http://127.0.0.1:{metrics}/metrics", f"127.0.0.1:{grpc}", models, log)
    command = [
        *(str(installation.program), "--model-repository", str(models)),
        *("--backend-directory", str(installation.backends), "--exit-timeout-secs", "5"),
        *("--http-address", "127.0.0.1", "--http-port", str(http)),
        *("--metrics-address", "127.0.0.1", "--metrics-port", str(metrics)),
        *("--grpc-address", "127.0.0.1", "--grpc-port", str(grpc)),
        *("--model-control-mode", control, *(("--load-model", "*") if control == "explicit" else ()), *options),
    ]
    variables = {**os.environ, "LD_LIBRARY_PATH": str(installation.library)}
    ready, told = server_process.page(f"{server.url}/v2/health/ready"), server_process.page(server.metrics_url)
    # The metrics have a server of their own, which begins last.
    with server_process.running(command, log, lambda: ready() and told(), environment=variables):
        yield server
