"""The image: what its Dockerfile says, and what buildah makes of it, run as an engine would.

Field case G6-06: a root that cannot be written, any user's number, no rights, and a metrics folder of an earlier life.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scaler import __version__
from scaler.serve.grpc_server import HEALTH_SERVICES
from tests.deploy import image as images
from tests.deploy.debian import PYTHON
from tests.deploy.image import Container, Image, command_line, container, events, stages
from tests.deploy.placed import container as rendered_container
from tests.deploy.tools import REPOSITORY, Release, Tools, Unavailable

SECONDS = 240.0
#: Free ports of the loopback, as an engine's user would publish others.
PORTS = {"LOADTIDE_GRPC": "127.0.0.1:0", "LOADTIDE_HTTP": "127.0.0.1:0"}


class TestTheDockerfile:
    def test_what_runs_is_copied_and_never_made_where_it_runs(self) -> None:
        """The last stage has no shell to run anything with."""
        *_, final = stages()
        assert {step.instruction for step in final.steps} == {
            *("ARG", "LABEL", "COPY", "ENV", "WORKDIR", "USER", "EXPOSE", "ENTRYPOINT", "CMD")
        }
        assert all(step.value.startswith("--from=") for step in final.steps if step.instruction == "COPY")

    def test_both_stages_have_the_same_python(self) -> None:
        build, final = stages()
        assert (build.image, final.image) == ("debian:13-slim", "gcr.io/distroless/python3-debian13:nonroot")

    def test_its_user_is_a_number_that_runasnonroot_can_judge(self) -> None:
        (user,) = [step.value for step in stages()[-1].steps if step.instruction == "USER"]
        assert all(int(part) > 0 for part in user.split(":"))

    def test_the_builder_gets_only_what_is_copied(self) -> None:
        """The first line shuts everything out, each other one lets one thing in."""
        text = (REPOSITORY / ".dockerignore").read_text().splitlines()
        all_out, *let_in, no_bytecode = [line for line in text if line and not line.startswith("#")]
        assert (all_out, no_bytecode) == ("*", "**/__pycache__")
        allowed = {path for line in let_in for path in REPOSITORY.glob(line.removeprefix("!"))}
        copied = {
            REPOSITORY / word
            for stage in stages()
            for step in stage.steps
            if step.instruction == "COPY" and not step.value.startswith("--from=")
            for word in step.value.split()[:-1]
        }
        assert allowed == copied

    def test_only_what_has_a_known_hash_is_installed(self) -> None:
        installs = [word for stage in stages() for step in stage.steps for word in step.value.split("&&")]
        installs = [word for word in installs if "pip" in word and " install " in word and "apt-get" not in word]
        assert len(installs) == 3
        assert all("--require-hashes" in word or "--no-index" in word for word in installs)

    def test_what_is_locked_is_what_pyproject_asks_for(self) -> None:
        """``make lock`` after a change of the dependencies."""
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
        extras = project["project"]["optional-dependencies"]
        asked = {
            "requirements.txt": [*project["project"]["dependencies"], *extras["redis"], *extras["kubernetes"]],
            "build-requirements.txt": project["build-system"]["requires"],
        }
        for file, wanted in asked.items():
            pins = re.findall(r"^(\S+)==(\S+) ", (images.DOCKERFILE.parent / file).read_text(), re.MULTILINE)
            locked = {canonicalize_name(name): version for name, version in pins}
            for requirement in map(Requirement, wanted):
                version = locked.get(canonicalize_name(requirement.name))
                assert version, f"{requirement.name} is not in {file}"
                assert requirement.specifier.contains(version), f"{requirement} is {version} in {file}"

    @pytest.mark.real
    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    def test_what_is_locked_is_there_for_both_machines(self, tmp_path: Path, machine: str) -> None:
        """As wheels: the image has no compiler."""
        platform = (f"--python-platform={machine}-manylinux_2_28", f"--python-version={PYTHON}", "--only-binary=:all:")
        locked = (f"--requirement={images.DOCKERFILE.parent / 'requirements.txt'}", "--require-hashes")
        uv = Path(sys.executable).parent / "uv"
        command = [uv, "pip", "install", "--quiet", "--dry-run", f"--target={tmp_path}", *platform, *locked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_it_says_no_version_of_its_own(self) -> None:
        assert __version__ not in images.DOCKERFILE.read_text()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    with ExitStack() as stack:
        try:
            folder = tmp_path_factory.mktemp("image")
            yield stack.enter_context(images.built(folder, {"VERSION": __version__, "REVISION": "abc"}))
        except Unavailable as reason:
            pytest.skip(str(reason))


@dataclass(frozen=True, slots=True)
class Serving:
    """A container that is ready."""

    container: Container
    grpc: str
    http: str
    log: Path

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def health(self, service: str) -> int:
        with grpc.insecure_channel(self.grpc) as channel:
            asked = health_pb2.HealthCheckRequest(service=service)
            return int(health_pb2_grpc.HealthStub(channel).Check(asked, timeout=60).status)

    def is_well(self) -> bool:
        """It answers the kubelet, Prometheus and a person."""
        healthy = all(self.health(each) == health_pb2.HealthCheckResponse.SERVING for each in HEALTH_SERVICES)
        return healthy and "loadtide_build_info" in self.text("/metrics") and "<html" in self.text("/")


@contextmanager
def serving(
    command: list[str], environment: dict[str, str], folder: Path, event: str = "serving", path: str = "/readyz"
) -> Iterator[Serving]:
    """Waits until it has said so, and answers."""
    log = folder / "container.log"
    with container(command, environment, log) as inside:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and inside.outside.poll() is None:
            if told := events(log, event):
                ready = Serving(inside, told[0].get("grpc", ""), told[0]["http"], log)
                try:
                    ready.text(path)
                except OSError:
                    pass
                else:
                    break
            time.sleep(0.05)
        else:
            raise AssertionError(f"not ready, exit code {inside.outside.poll()}: {log.read_text()}")
        yield ready


def run(image: Image, *arguments: str, command: tuple[str, ...] = (), folder: Path) -> str:
    """What a command in the image says, once it has ended well."""
    log = folder / "said.log"
    with container(command_line(image, *arguments, command=command), dict(image.environment), log) as inside:
        assert inside.outside.wait(SECONDS) == 0, log.read_text()
    return log.read_text().strip()


@pytest.mark.real
class TestTheImage:
    def test_is_this_loadtide(self, image: Image, tmp_path: Path) -> None:
        assert run(image, "--version", folder=tmp_path) == f"loadtide {__version__}"
        assert image.labels["org.opencontainers.image.version"] == __version__
        assert image.labels["org.opencontainers.image.revision"] == "abc"

    def test_has_neither_shell_nor_installer(self, image: Image) -> None:
        programs = {each.name for folder in ("bin", "sbin") for each in (image.root / "usr" / folder).glob("*")}
        assert programs == {"python3", f"python{PYTHON}"}
        assert not list((image.root / "opt" / "loadtide").glob("lib/*/site-packages/pip*"))

    def test_all_that_it_imports_was_compiled(self, image: Image, tmp_path: Path) -> None:
        """Or every start would compile it anew, where nothing can be kept."""
        script = (
            "import scaler.cli, scaler.serve.redis_link, kubernetes_asyncio, os, sys\n"
            "files = [each.__cached__ for each in sys.modules.values() if getattr(each, '__cached__', None)]\n"
            "print(len(files), [file for file in files if not os.path.exists(file)])"
        )
        count, missing = run(image, "-c", script, command=("python3",), folder=tmp_path).split(" ", 1)
        assert int(count) > 500
        assert missing == "[]"

    @pytest.mark.parametrize("user", ["", "1000730000:0"], ids=["its own user", "a number of the cluster's"])
    def test_serves_with_nowhere_to_write_and_no_rights(self, image: Image, tmp_path: Path, user: str) -> None:
        """And as PID 1 it ends in order when asked once, for no init is in the image."""
        command = command_line(image, user=user)
        with serving(command, {**image.environment, **PORTS}, tmp_path) as scaler:
            assert scaler.is_well()
            inside = scaler.container
            assert inside.status("NSpid").split()[-1] == "1"
            assert inside.status("Uid").split()[0] == (user or image.user).partition(":")[0]
            assert {inside.status(name) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
            assert inside.ended() == 0
            assert events(scaler.log, "stopping")[0]["signal"] == "SIGTERM"

    @pytest.mark.parametrize("left", [False, True], ids=["missing", "with old files"])
    def test_a_multiprocess_folder_is_neither_needed_nor_read(self, image: Image, tmp_path: Path, left: bool) -> None:
        folder = tmp_path / "multiprocess"
        folder.mkdir()
        (folder / "counter_1.db").write_bytes(b"of an earlier life")
        mounts = {"/tmp": folder} if left else {}
        own = {"PROMETHEUS_MULTIPROC_DIR": "/tmp" if left else "/nowhere"}
        command = command_line(image, mounts=mounts)
        with serving(command, {**image.environment, **PORTS, **own}, tmp_path) as scaler:
            assert scaler.is_well()
        assert [each.name for each in folder.iterdir()] == ["counter_1.db"]

    def test_serves_what_the_chart_renders(self, tools: Tools, image: Image, tmp_path: Path) -> None:
        """The pod's own command, arguments, variables and mounts, without a change."""
        (rendered,) = tools.install(Release(custom=False))
        pod = rendered.one("Deployment")["spec"]["template"]["spec"]
        scaler, security = rendered_container(rendered), pod["securityContext"]
        mounts = {}
        for mount in scaler["volumeMounts"]:
            mounts[mount["mountPath"]] = tmp_path / mount["name"]
            mounts[mount["mountPath"]].mkdir()
            os.chown(mounts[mount["mountPath"]], 0, security["fsGroup"])
            mounts[mount["mountPath"]].chmod(0o2775)
        (mounts["/etc/loadtide/policy"] / "policy.yaml").write_text(rendered.one("ConfigMap")["data"]["policy.yaml"])
        command = command_line(
            image,
            *scaler["args"],
            command=tuple(scaler["command"]),
            user=f"{security['runAsUser']}:{security['runAsGroup']}",
            mounts=mounts,
        )
        assert {port["containerPort"] for port in scaler["ports"]} <= set(image.exposed)
        with serving(command, {**image.environment, **PORTS}, tmp_path) as running:
            assert running.is_well()
            assert "loadtide_store_up 1.0" in running.text("/metrics")
        assert (mounts["/var/lib/loadtide"] / "memory.db").exists()

    def test_takes_authorities_that_clusters_have(self, image: Image, tmp_path: Path) -> None:
        """Python 3.13 would refuse them by default: those of EKS, and many that somebody made with openssl."""
        cluster = {"server": "https://localhost", "insecure-skip-tls-verify": False}
        folder = tmp_path / "kube"
        folder.mkdir(0o755)
        (folder / "config").write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "c",
                }
            )
        )
        script = (
            "import asyncio, ssl\n"
            "from scaler.policy.tls import Tls\n"
            "from scaler.signals import api_server, tls\n"
            "async def contexts():\n"
            "    server = await api_server.connect()\n"
            "    yield ssl.create_default_context()\n"
            "    yield server._client.rest_client.pool_manager.connector._ssl\n"
            "    yield tls.TlsFiles(Tls(insecure_skip_verify=True)).context()\n"
            "    await server.close()\n"
            "async def flags():\n"
            "    return [bool(each.verify_flags & ssl.VERIFY_X509_STRICT) async for each in contexts()]\n"
            "print(asyncio.run(flags()))"
        )
        command = command_line(image, "-c", script, command=("python3",), mounts={"/tmp": folder})
        log = tmp_path / "said.log"
        with container(command, {**image.environment, "KUBECONFIG": "/tmp/config"}, log) as inside:
            assert inside.outside.wait(SECONDS) == 0, log.read_text()
        assert log.read_text().split("\n")[-2] == "[True, False, False]", "Python's default, and ours"

    def test_is_the_agents_too(self, image: Image, tmp_path: Path) -> None:
        arguments = ("agent", "--gpu-metrics", "--http", "127.0.0.1:0")
        with serving(
            command_line(image, *arguments), dict(image.environment), tmp_path, "agent runs", "/healthz"
        ) as agent:
            assert "loadtide_agent" in agent.text("/metrics")
            assert agent.container.ended() == 0

    def test_lacks_nothing_for_gpus_but_the_nodes_driver(self, image: Image, tmp_path: Path) -> None:
        script = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as error: print(error)"
        assert run(image, "-c", script, command=("python3",), folder=tmp_path) == "NVML Shared Library Not Found"
