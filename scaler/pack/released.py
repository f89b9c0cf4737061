"""The version where ``deploy`` must say one: chart, kustomization, examples. Its source is ``scaler/__init__.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

#: The image's name before it has one of a registry.
IMAGE = "registry.example.com/loadtide"
_SAID = re.compile(
    rf"(?P<chart>^(?:version|appVersion): )\S+$|(?P<tag>\bnewTag: )[\w.+-]+|(?P<image>\b{re.escape(IMAGE)}:)[\w.+-]+",
    re.MULTILINE,
)


def stamped(deploy: Path, version: str) -> Mapping[Path, str]:
    """Every file of ``deploy`` that says loadtide's version, and its text with this one."""
    said = {
        path: path.read_text(encoding="utf-8")
        for path in (
            deploy / "helm" / "loadtide" / "Chart.yaml",
            *sorted(deploy.glob("kustomize/**/*.yaml")),
            *sorted(deploy.glob("examples/*.yaml")),
        )
    }
    return {
        path: _SAID.sub(lambda found: f"{found[found.lastgroup or 0]}{version}", text)
        for path, text in said.items()
        if _SAID.search(text)
    }
