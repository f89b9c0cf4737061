"""The plugin's own distribution, built as a release would be, and unpacked as an engine image may have it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "plugins" / "vllm"


def built(folder: Path) -> Path:
    """The wheel, built into ``folder``."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=SOURCE, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def unpacked(folder: Path) -> Path:
    """A folder that needs only to be on PYTHONPATH: the module, and the metadata with its entry point."""
    with zipfile.ZipFile(built(folder)) as wheel:
        wheel.extractall(folder / "unpacked")
    return folder / "unpacked"
