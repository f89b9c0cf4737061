"""The image as buildah builds it, and its process in a container.

It is started as an engine would: a read-only root with no other file system but /proc and four devices, a process tree
and mounts of its own, a user without rights. The network is the machine's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

from tests.deploy import debian
from tests.deploy.tools import REPOSITORY

DOCKERFILE = REPOSITORY / "deploy" / "image" / "Dockerfile"
NAME = "localhost/loadtide:tested"
#: What says where pip finds packages on this machine.
_INDEXES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_AUTHORITIES, _AUTHORITIES_INSIDE = "/etc/ssl/certs/ca-certificates.crt", "/authorities.crt"
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
    """The image of the Dockerfile as buildah builds it; ``folder`` is for its settings. Raises ``Unavailable``."""
    with debian.base_images() as store:
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        store.buildah(
            *("build", "--pull-never", "--network=host", *_way_to_indexes(folder), *given),
            *(f"--tag={NAME}", f"--file={context / DOCKERFILE.relative_to(REPOSITORY)}", str(context)),
        )
        container = store.buildah("from", "--pull-never", NAME)
        try:
            told = json.loads(store.buildah("inspect", "--type=image", NAME))["OCIv1"]["config"]
            yield Image(
                root=Path(store.buildah("mount", container)),
                environment=dict(pair.split("=", 1) for pair in told["Env"]),
                labels=told["Labels"],
                exposed=tuple(int(port.partition("/")[0]) for port in told["ExposedPorts"]),
                user=told["User"],
                folder=told["WorkingDir"],
                entrypoint=tuple(told["Entrypoint"]),
                command=tuple(told["Cmd"]),
            )
        finally:
            store.buildah("rm", container)
            store.buildah("rmi", NAME)


def _way_to_indexes(folder: Path) -> list[str]:
    """How a build reaches this machine's package indexes: with its authorities, and by the way its pip goes."""
    own = {name.lower().removeprefix("pip_"): value for name, value in os.environ.items() if name in _INDEXES}
    settings = folder / "pip.conf"
    lines = [f"{name.replace('_', '-')} = {value}" for name, value in own.items()]
    settings.write_text("\n".join(["[global]", f"cert = {_AUTHORITIES_INSIDE}", *lines, ""]))
    return [f"--volume={_AUTHORITIES}:{_AUTHORITIES_INSIDE}:ro", f"--volume={settings}:/etc/pip.conf:ro"]


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
