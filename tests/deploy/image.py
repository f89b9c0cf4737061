"""The image without an engine to build it: the Dockerfile's own steps, carried out in folders, and its process in one.

The steps are read from the Dockerfile, so that there is nothing to keep in step with it; an instruction that is not
known here fails. The result is started as an engine would: a read-only root with no other file system but /proc and
four devices, a process tree and mounts of its own, a user without rights. The network is the machine's.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

from tests.deploy import debian
from tests.deploy.tools import REPOSITORY, Unavailable

DOCKERFILE = REPOSITORY / "deploy" / "image" / "Dockerfile"
#: Of a build: how to reach package indexes from this machine.
_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "pip_index_url", "pip_extra_index_url")
_AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
#: ROOT USER:GROUP [FOLDER:PLACE]... -- COMMAND...: runs the command in the root, read-only but for the places.
_ENTER = """
set -e
root=$1; user=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero random urandom; do
  touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,ro "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do mount --bind "${1%%:*}" "$root${1##*:}"; shift; done
shift
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setgid,+setuid \\
  unshare --root="$root" --setgid "${user##*:}" --setuid "${user%%:*}" --wd / "$@"
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction; ``value`` is what follows it, on one line."""

    instruction: str
    value: str


@dataclass(frozen=True, slots=True)
class Stage:
    """From one FROM to the next."""

    image: str
    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """What was built, and what it says of how to run it."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    exposed: tuple[int, ...] = ()
    user: str = ""
    folder: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def stages(dockerfile: Path = DOCKERFILE) -> list[Stage]:
    """The Dockerfile as it is."""
    with dockerfile.open("rb") as file:
        told = [step for step in DockerfileParser(fileobj=file).structure if step["instruction"] != "COMMENT"]
    found: list[Stage] = []
    for step in told:
        if step["instruction"] == "FROM":
            image, _, name = step["value"].partition(" AS ")
            found.append(Stage(image, name, ()))
        else:
            found[-1] = replace(found[-1], steps=(*found[-1].steps, Step(step["instruction"], step["value"])))
    return found


@contextmanager
def built(folder: Path, arguments: Mapping[str, str], context: Path = REPOSITORY) -> Iterator[Image]:
    """The image of the Dockerfile, in memory (400 MB) that is mounted at ``folder``. Raises ``Unavailable``."""
    if os.geteuid() != 0:
        raise Unavailable("only root can change roots and mount; containers are built as such")
    roots = dict(zip(("build", ""), debian.unpacked(), strict=True))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise Unavailable(f"this root may not mount: {mounted.stderr.strip()}")
    try:
        yield _built(folder, roots, arguments, context)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _built(folder: Path, roots: Mapping[str, Path], arguments: Mapping[str, str], context: Path) -> Image:
    made: dict[str, Image] = {}
    for stage in stages():
        root = folder / (stage.name or "final")
        subprocess.run(["cp", "--archive", "--reflink=auto", roots[stage.name], root], check=True)
        if stage.name:
            _lend_the_network(root)
        made[stage.name] = _carried_out(Image(root), stage, made, arguments, context)
    return made[""]


def _lend_the_network(root: Path) -> None:
    """Names and authorities, which an engine gives to a build as well."""
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    (root / _AUTHORITIES).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(f"/{_AUTHORITIES}", root / _AUTHORITIES)


def _carried_out(
    image: Image, stage: Stage, made: Mapping[str, Image], arguments: Mapping[str, str], context: Path
) -> Image:
    known: dict[str, str] = {}
    for step in stage.steps:
        value = step.value
        match step.instruction:
            case "ARG":
                name, _, default = value.partition("=")
                known[name] = arguments.get(name, default)
            case "ENV":
                image = replace(image, environment={**image.environment, **_pairs(value, known)})
            case "LABEL":
                image = replace(image, labels={**image.labels, **_pairs(value, known)})
            case "WORKDIR":
                image = replace(image, folder=value)
                (image.root / value.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(image, shlex.split(value), made, context)
            case "RUN" if value.startswith("apt-get update && apt-get install "):
                packages = {word for word in value.split()[6:] if not word.startswith("-")}
                assert packages == {"python3-venv"}, "tests/deploy/debian.py unpacks no other"
            case "RUN":
                _run(image, value)
            case "USER":
                image = replace(image, user=value)
            case "EXPOSE":
                image = replace(image, exposed=tuple(int(port) for port in value.split()))
            case "ENTRYPOINT":
                image = replace(image, entrypoint=tuple(json.loads(value)))
            case "CMD":
                image = replace(image, command=tuple(json.loads(value)))
            case other:
                raise AssertionError(f"{other} is not known here; teach it")
    return image


def _pairs(value: str, known: Mapping[str, str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(value))
    return {name: _filled(text, known) for name, _, text in pairs}


def _filled(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"${{{name}}}", value)
    assert "$" not in text, f"{text} names what no ARG declares"
    return text


def _copy(image: Image, words: list[str], made: Mapping[str, Image], context: Path) -> None:
    source = context
    if words[0].startswith("--from="):
        source = made[words.pop(0).partition("=")[2]].root
    *sources, to = words
    target = Path(os.path.normpath(image.root / Path(image.folder, to).relative_to("/")))
    for each in sources:
        found = source / each.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(found, target / found.name if to.endswith("/") else target)


def _run(image: Image, script: str) -> None:
    own = {name: text for name, text in os.environ.items() if name.lower() in _NETWORK}
    done = subprocess.run(
        ["unshare", f"--root={image.root}", f"--wd={image.folder}", "/bin/sh", "-c", script],
        env={"PATH": "/usr/bin", "PIP_CERT": f"/{_AUTHORITIES}", **own, **image.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"RUN {script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@dataclass(frozen=True, slots=True)
class Container:
    """A process in an image: ``pid`` is the machine's number of what is 1 inside."""

    outside: subprocess.Popen[bytes]
    pid: int

    def status(self, name: str) -> str:
        """A line of ``/proc/PID/status``."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in lines)[name].strip()

    def ended(self, seconds: float = 20.0) -> int:
        """Asks it to end, as an engine does; the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.outside.wait(seconds)


def command_line(
    image: Image,
    *arguments: str,
    command: tuple[str, ...] = (),
    user: str = "",
    mounts: Mapping[str, Path] | None = None,
) -> list[str]:
    """What starts the image's process. ``arguments`` take CMD's place, ``command`` ENTRYPOINT's; ``mounts`` are
    folders by their place inside, which has to be there (an engine makes it).
    """
    for place in mounts or {}:
        (image.root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    bound = [f"{folder}:{place}" for place, folder in (mounts or {}).items()]
    enter = ["sh", "-c", _ENTER, "sh", str(image.root), user or image.user, *bound, "--"]
    words = (*(command or image.entrypoint), *(arguments or image.command))
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", *enter, *words]


@contextmanager
def container(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[Container]:
    """The process of ``command_line``, with these variables and no others; what it says goes to ``log``."""
    with log.open("wb") as sink:
        outside = subprocess.Popen(command, env=dict(environment), stdout=sink, stderr=sink)
    inside = None
    try:
        inside = _inner(outside, log)
        yield Container(outside, inside)
    finally:
        # Its own end first: --kill-child does not reach a process that has changed its user since.
        if inside is not None and outside.poll() is None:
            os.kill(inside, signal.SIGKILL)
        outside.kill()
        outside.wait(10)


def _inner(outside: subprocess.Popen[bytes], log: Path) -> int:
    children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
    while outside.poll() is None:
        if found := children.read_text().split():
            return int(found[0])
    raise AssertionError(f"ended with {outside.returncode}: {log.read_text()}")


def events(log: Path, event: str) -> list[dict[str, Any]]:
    """The log lines of one event."""
    said = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in said if line["event"] == event]
