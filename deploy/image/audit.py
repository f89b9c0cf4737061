"""What the image is made of, and whether any of it is known to be vulnerable: ``make audit``.

Writes a CycloneDX bill of materials of the locked Python packages, and asks pip-audit about each of them. What Debian
gives to the base image is in neither; the builder tells of that (``docker buildx build --sbom=true``).

It asks PyPI; where only an OSV service of your own can be reached: ``OSV_URL=https://HOST/v1/query make audit``.

Exit status: 0, every package was asked about and nothing is known. 1, something is known, or some package could not be
asked about. 3, nothing was audited, because the advisories cannot be reached from here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
LOCK = Path(__file__).parent / "requirements.txt"
MATERIALS = REPOSITORY / "dist" / "loadtide.cdx.json"
#: A version with an advisory of 2019. Where it is not known to be vulnerable nothing is known: of an index that answers
#: 404 to every question pip-audit says "No known vulnerabilities found".
CANARY = ("jinja2", "2.10")
NOT_AUDITED = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The exit status, and what is to be said of it."""

    status: int
    text: str


def judged(report: dict[str, Any], canary: str = CANARY[0]) -> Verdict:
    """What pip-audit's JSON means. ``canary`` is asked about with the rest, and must be found vulnerable."""
    told = {each["name"]: each for each in report["dependencies"]}
    if not told.pop(canary, {}).get("vulns"):
        reason = next((each["skip_reason"] for each in told.values() if "skip_reason" in each), "no reason given")
        return Verdict(
            NOT_AUDITED,
            f"NOT AUDITED: the advisories cannot be reached from here. None of the {len(told)} packages was judged "
            f"({reason}). Run `make audit` where they can be, before a release.",
        )
    skipped = [f"{name}: {each['skip_reason']}" for name, each in told.items() if "skip_reason" in each]
    known = [
        f"{name} {each['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version yet'}"
        for name, each in told.items()
        for found in each.get("vulns", ())
    ]
    if known or skipped:
        return Verdict(
            1, "\n".join(["vulnerable, or not to be judged (`make lock` takes newer versions):", *known, *skipped])
        )
    return Verdict(0, f"audited: nothing is known of the {len(told)} packages of the image")


def asked(osv_url: str = "") -> Verdict:
    """Asks about every locked package: PyPI, or the OSV service at ``osv_url``."""
    how = ["--disable-pip", "--require-hashes", "--format=json", "--progress-spinner=off"]
    if osv_url:
        how += ["--vulnerability-service=osv", f"--osv-url={osv_url}"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as canary:
        # The hash is nobody's: nothing is fetched, and with hashes in one file the other must have them too.
        canary.write(f"{CANARY[0]}=={CANARY[1]} --hash=sha256:{0:064d}\n")
        canary.flush()
        files = ("--requirement", str(LOCK), "--requirement", canary.name)
        done = _tool("pip-audit", *files, *how)
    try:
        return judged(json.loads(done.stdout))
    except json.JSONDecodeError:
        return Verdict(
            NOT_AUDITED, f"NOT AUDITED: pip-audit failed with {done.returncode}: {done.stderr.strip()[-500:]}"
        )


def bill_of_materials(version: str) -> str:
    """CycloneDX JSON of the lock: names, versions, hashes, package URLs."""
    done = _tool("cyclonedx-py", "requirements", "--pyproject=pyproject.toml", "--output-reproducible", str(LOCK))
    if done.returncode != 0:
        raise SystemExit(f"cyclonedx-py failed with {done.returncode}: {done.stderr.strip()[-500:]}")
    bill = json.loads(done.stdout)
    bill["metadata"]["component"]["version"] = version  # pyproject.toml says only where it stands
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def _tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment that this runs in."""
    command = [str(Path(sys.executable).parent / name), *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def main() -> int:
    """Writes the one, says the other."""
    from scaler import __version__

    MATERIALS.parent.mkdir(exist_ok=True)
    MATERIALS.write_text(bill_of_materials(__version__), encoding="utf-8")
    verdict = asked(os.environ.get("OSV_URL", ""))
    sys.stdout.write(f"materials: {MATERIALS.relative_to(REPOSITORY)}\n{verdict.text}\n")
    return verdict.status


if __name__ == "__main__":
    raise SystemExit(main())
