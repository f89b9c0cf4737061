"""What is released installs: the sdist, for the wheel is built from it, and the wheel under each Python and with pipx.

Python 3.13 takes part in any case: the image's test installs the wheel there. Another one that this machine does not
have is skipped by its name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from scaler import __version__
from tests.running_scaler import running_scaler

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
BIN = Path(sys.executable).parent


def ran(*command: str | Path, **environment: str) -> str:
    """What it prints. Nothing of this checkout is importable by it."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [*map(str, command)], env={**own, **environment}, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout.strip()


def interpreter(version: str) -> Path | None:
    """One of this machine's, those that pyenv keeps among them; None where there is none."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [*sorted(kept.glob(f"{version}.*/bin")), *map(Path, os.environ["PATH"].split(os.pathsep))]
    found = (place / f"python{version}" for place in places if place.name != "shims")
    return next((python for python in found if python.exists()), None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and sdist, the wheel built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    ran(BIN / "uv", "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (only,) = built.glob("*.whl")
    return only


@pytest.mark.real
class TestARelease:
    def test_has_the_version_of_the_code(self, built: Path) -> None:
        names = {path.name for path in built.iterdir() if path.name != ".gitignore"}
        assert names == {f"loadtide-{__version__}-py3-none-any.whl", f"loadtide-{__version__}.tar.gz"}

    def test_the_wheel_is_the_product_alone(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as files:
            top = {name.partition("/")[0] for name in files.namelist()}
        assert top == {"scaler", f"loadtide-{__version__}.dist-info"}

    def test_all_that_the_code_reads_is_in_the_wheel(self, wheel: Path) -> None:
        """Presets, the page, and whatever else is no Python."""
        here = {
            str(path.relative_to(ROOT))
            for path in (ROOT / "scaler").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        with zipfile.ZipFile(wheel) as files:
            assert {name for name in files.namelist() if name.startswith("scaler/")} == here

    def test_the_sdist_has_what_an_operator_copies(self, built: Path) -> None:
        (sdist,) = built.glob("*.tar.gz")
        with tarfile.open(sdist) as files:
            names = {name.partition("/")[2] for name in files.getnames()}
        assert {"LICENSE", "CHANGELOG.md", "deploy/image/Dockerfile", ".dockerignore"} <= names
        assert {"deploy/helm/loadtide/Chart.yaml", "rules/loadtide.rules.yaml", "dashboards/loadtide-gpu.json"} <= names

    @pytest.mark.parametrize("version", PYTHONS)
    def test_it_installs_and_runs(self, wheel: Path, tmp_path: Path, version: str) -> None:
        python = interpreter(version)
        if python is None:
            pytest.skip(f"this machine has no Python {version}")
        uv, venv = BIN / "uv", tmp_path / "venv"
        ran(uv, "venv", "--quiet", "--no-project", "--python", python, venv)
        ran(uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python", f"{wheel}[redis,kubernetes]")
        ran(uv, "pip", "check", "--python", venv / "bin" / "python")
        assert ran(venv / "bin" / "python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])") == version
        assert ran(venv / "bin" / "loadtide", "--version") == f"loadtide {__version__}"
        elsewhere = {"PYTHONPATH": str(tmp_path)}  # never this checkout
        program = [str(venv / "bin" / "loadtide")]
        with running_scaler(tmp_path, "--store=memory", program=program, environment=elsewhere) as scaler:
            assert f'loadtide_build_info{{version="{__version__}"}} 1.0' in scaler.text("/metrics")

    def test_pipx_installs_it(self, wheel: Path, tmp_path: Path) -> None:
        places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "HOME": str(tmp_path)}
        ran(BIN / "uv", "tool", "run", "--python", sys.executable, "pipx", "install", "--quiet", wheel, **places)
        assert ran(tmp_path / "bin" / "loadtide", "--version") == f"loadtide {__version__}"
