"""The version is said in one place; where ``deploy`` repeats it, ``python -m scaler.pack`` writes it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml

from scaler import __version__
from scaler.pack.__main__ import REPOSITORY
from scaler.pack.released import IMAGE, stamped

DEPLOY = REPOSITORY / "deploy"


def test_all_of_deploy_says_this_version() -> None:
    for path, text in stamped(DEPLOY, __version__).items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: python -m scaler.pack"


def test_nothing_that_says_a_version_is_left_out(tmp_path: Path) -> None:
    """A copy with another version has it everywhere: in the chart twice, and wherever the image is named with a tag."""
    copy = shutil.copytree(DEPLOY, tmp_path / "deploy")
    for path, text in stamped(copy, "9.9.9-rc.1").items():
        path.write_text(text, encoding="utf-8")
    chart = yaml.safe_load((copy / "helm" / "loadtide" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("9.9.9-rc.1", "9.9.9-rc.1")
    base = yaml.safe_load((copy / "kustomize" / "base" / "kustomization.yaml").read_text())
    assert base["images"] == [{"name": IMAGE, "newTag": "9.9.9-rc.1"}]
    tags = {
        tag
        for path in copy.rglob("*.yaml")
        for tag in re.findall(rf"{re.escape(IMAGE)}:([^\s\"']+)", path.read_text(encoding="utf-8"))
    }
    assert tags == {"9.9.9-rc.1"}


def test_nothing_else_is_changed() -> None:
    """Other software's versions stand in the same files."""
    for path, text in stamped(DEPLOY, "9.9.9").items():
        assert text.replace("9.9.9", __version__) == path.read_text(encoding="utf-8")
