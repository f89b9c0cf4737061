"""The root folders of the image's two base images, unpacked from the Debian packages that they consist of.

No registry takes part. Nothing of a package is run: its files are what is in an image. Fetched once (21 MB, and
Debian's list of packages) into ``.cache/debian-13``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.deploy.tools import CACHE, Unavailable

#: Debian 13.
SUITE = "trixie"
PYTHON = "3.13"
#: gcr.io/distroless/python3-debian13, read in its repository: ``python3/config.bzl`` and what ``cc`` is made of.
RUNTIME = (
    *("base-files", "gcc-14-base", "libc6", "libgcc-s1", "libgomp1", "libssl3t64", "libstdc++6", "libzstd1"),
    *("media-types", "netbase", "tzdata"),
    *("libbz2-1.0", "libcom-err2", "libcrypt1", "libdb5.3t64", "libexpat1", "libffi8", "libgssapi-krb5-2"),
    *("libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "liblzma5", "libncursesw6", "libnsl2"),
    *(f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libreadline8t64", "libsqlite3-0", "libtinfo6"),
    *("libtirpc3t64", "libuuid1", f"python{PYTHON}-minimal", f"python{PYTHON}-venv", "zlib1g"),
)
#: What debian:13-slim has besides, as far as a build needs it, and what ``apt-get install python3-venv`` adds to that.
BUILD = (
    *("coreutils", "dash", "libacl1", "libattr1", "libpcre2-8-0", "libselinux1"),
    *("python3-minimal", "python3-pip-whl", f"python{PYTHON}"),
)
#: What the second base image adds to its packages.
RUNTIME_LINKS = {"usr/bin/python3": f"python{PYTHON}"}


def unpacked() -> tuple[Path, Path]:
    """(the build's, what runs'): root folders to be copied, never changed. Raises ``Unavailable``."""
    CACHE.mkdir(exist_ok=True)
    folder = CACHE / "debian-13"
    done = folder / "unpacked"
    wanted = "\n".join((*RUNTIME, *BUILD))
    with (CACHE / "debian-13.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            _fetch(folder)
            _unpack(folder / "runtime", folder / "build")
            _unpack(folder / "build")
            for name, to in RUNTIME_LINKS.items():
                (folder / "runtime-root" / name).symlink_to(to)
            done.write_text(wanted)
    return folder / "build-root", folder / "runtime-root"


def _unpack(packages: Path, further: Path | None = None) -> None:
    """``X`` into ``X-root``, and into the one of ``further`` as well, whose image has all that this one has."""
    for package in sorted(packages.glob("*.deb")):
        for root in (packages, further or packages):
            _run("dpkg-deb", "--extract", str(package), f"{root}-root")


def _fetch(folder: Path) -> None:
    """The packages, checked by apt against Debian's signature, apart from what this machine has installed."""
    for each in ("lists/partial", "archives/partial", "runtime", "build"):
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
    for name, packages in (("runtime", RUNTIME), ("build", BUILD)):
        _run("apt-get", "download", "-qq", *packages, cwd=folder / name, environment=own)


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
        raise Unavailable(f"`{' '.join(command[:2])} ...` failed: {done.stderr.strip()[-500:]}")
    return done.stdout
