"""The site as `make docs` builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT


def built_site(folder: Path) -> Path:
    """Build into ``folder``, which is given back. Fails with what mkdocs said where it is not content."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert built.returncode == 0, (
        "the site cannot be built: a link or an anchor below leads nowhere, or a page is in no place of mkdocs.yml's "
        f"nav:\n{built.stdout}"
    )
    return folder
