"""The image's two base images, made of the Debian packages that they consist of, in a store of buildah's.

No registry takes part. The one that builds is Debian 13 as ``debootstrap`` makes it, which ``debian:13-slim`` is too,
less documentation; of the other nothing of a package is run, as in the distroless image itself. Fetched once (120 MB)
into ``.cache/debian-13``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.tools import CACHE, Unavailable

#: Debian 13.
SUITE = "trixie"
PYTHON = "3.13"
BUILD_IMAGE, RUNTIME_IMAGE = "docker.io/library/debian:13-slim", "gcr.io/distroless/python3-debian13:nonroot"
#: gcr.io/distroless/python3-debian13, read in its repository: ``python3/config.bzl`` and what ``cc`` is made of.
RUNTIME = (
    *("base-files", "gcc-14-base", "libc6", "libgcc-s1", "libgomp1", "libssl3t64", "libstdc++6", "libzstd1"),
    *("media-types", "netbase", "tzdata"),
    *("libbz2-1.0", "libcom-err2", "libcrypt1", "libdb5.3t64", "libexpat1", "libffi8", "libgssapi-krb5-2"),
    *("libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "liblzma5", "libncursesw6", "libnsl2"),
    *(f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libreadline8t64", "libsqlite3-0", "libtinfo6"),
    *("libtirpc3t64", "libuuid1", f"python{PYTHON}-minimal", f"python{PYTHON}-venv", "zlib1g"),
)
#: What the second base image adds to its packages.
RUNTIME_LINKS = {"usr/bin/python3": f"python{PYTHON}"}


@dataclass(frozen=True, slots=True)
class Store:
    """Where buildah keeps images and containers. It needs no daemon, and here no namespaces of a user's own."""

    folder: Path

    def buildah(self, *arguments: str) -> str:
        """What it prints. Raises ``AssertionError`` with what it says where it fails."""
        kept = ("--storage-driver=vfs", f"--root={self.folder / 'images'}", f"--runroot={self.folder / 'run'}")
        own = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            ["buildah", *kept, *arguments],
            env=own,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        told = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.returncode == 0, f"buildah {' '.join(arguments[:2])} ...\n{told}"
        return done.stdout.strip()

    def take(self, root: Path, name: str) -> None:
        """A root folder as an image of one layer."""
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, str(root), "/")
        self.buildah("commit", "--quiet", "--rm", container, name)


@contextmanager
def base_images() -> Iterator[Store]:
    """The store with both base images, to be used by one at a time. Raises ``Unavailable``."""
    if os.geteuid() != 0:
        raise Unavailable("only root can change roots and mount; containers are built as such")
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not on this machine; on Debian and Ubuntu: apt install {program}")
    CACHE.mkdir(exist_ok=True)
    folder = CACHE / "debian-13"
    done = folder / "images-made-of"
    store = Store(folder / "store")
    wanted = "\n".join((SUITE, *RUNTIME))
    with (CACHE / "debian-13.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            store.take(_bootstrapped(folder / "build-root"), BUILD_IMAGE)
            store.take(_unpacked(folder / "runtime", folder / "runtime-root"), RUNTIME_IMAGE)
            for each in folder.iterdir():
                if each != store.folder:
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            done.write_text(wanted)
        yield store


def _bootstrapped(root: Path) -> Path:
    _run("debootstrap", "--variant=minbase", SUITE, str(root), _mirror())
    return root


def _unpacked(packages: Path, root: Path) -> Path:
    """The runtime's packages, checked by apt against Debian's signature, apart from what this machine has installed."""
    folder = packages.parent
    for each in ("lists/partial", "archives/partial", packages.name):
        (folder / each).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb {_mirror()} {SUITE} main\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list"; Dir::Etc::sourceparts "-"; Dir::Cache "{folder}";\n'
        f'Dir::State::lists "{folder}/lists"; Dir::State::status "{folder}/status"; Acquire::Languages "none";\n'
        'APT::Sandbox::User "root";\n'
    )
    own = {"APT_CONFIG": str(folder / "apt.conf")}
    _run("apt-get", "update", "-qq", environment=own)
    _run("apt-get", "download", "-qq", *RUNTIME, cwd=packages, environment=own)
    for package in sorted(packages.glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(root))
    for name, to in RUNTIME_LINKS.items():
        (root / name).symlink_to(to)
    return root


def _mirror() -> str:
    """Where this machine takes Debian's packages from: its own sources, whatever release they are of."""
    wanted = "$(COMPONENT) $(ORIGIN) $(REPO_URI)"
    told = _run("apt-get", "indextargets", "--format", wanted, "Created-By: Packages").splitlines()
    found = [line.split()[2] for line in told if line.startswith("main Debian ") and "security" not in line]
    if not found:
        raise Unavailable("this machine's apt has no source of Debian's own packages")
    return found[0]


def _run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not on this machine") from error
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command[:2])} ...` failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
