"""`loadtide check` as CI and people call it: exit codes, formats, --fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from scaler.check.rule import Severity
from scaler.cli import app
from tests.check.manifests import POLICY, SCALED_OBJECT, changed

WRONG = changed(SCALED_OBJECT, ("metricType: AverageValue", "metricType: Value"))
WARNED = changed(SCALED_OBJECT, ("cooldownPeriod: 30", "cooldownPeriod: 300"))
NOTED = SCALED_OBJECT[: SCALED_OBJECT.index("        scrapeUrls")]


def check(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, ["check", *arguments], input=given)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scaledobject.yaml"


@pytest.mark.parametrize(
    ("text", "lenient", "strict"), [(SCALED_OBJECT, 0, 0), (NOTED, 0, 0), (WARNED, 0, 1), (WRONG, 2, 2)]
)
def test_exit_status(file: Path, text: str, lenient: int, strict: int) -> None:
    file.write_text(text)
    assert check(str(file)).exit_code == lenient
    assert check("--strict", str(file)).exit_code == strict


def test_a_finding_names_file_line_rule_reason_and_fix(file: Path) -> None:
    file.write_text(WRONG)
    said = check(str(file)).stdout
    assert f"{file}:25: error [metric-type] metricType Value" in said
    assert "\n    metricType: AverageValue\n" in said
    assert "1 error in 1 file" in said
    assert "--fix" in said


def test_nothing_found_says_so(file: Path) -> None:
    file.write_text(SCALED_OBJECT)
    assert check(str(file)).stdout == "nothing found in 1 file\n"


def test_standard_input() -> None:
    assert check("-", given=WRONG).exit_code == 2
    assert "-:25: error" in check("-", given=WRONG).stdout


def test_fix_prints_the_corrected_file_alone_on_standard_output(file: Path) -> None:
    file.write_text(changed(WRONG, ('pushEnabled: "true"', 'pushEnabled: "perhaps"')))
    result = check("--fix", str(file))
    assert result.stdout == changed(SCALED_OBJECT, ('pushEnabled: "true"', 'pushEnabled: "perhaps"'))
    assert "bad-value" in result.stderr
    assert "metric-type" not in result.stderr
    assert result.exit_code == 2
    assert "AverageValue" not in file.read_text()


def test_fix_of_several_files_tells_them_apart(file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    file.write_text(WRONG)
    policy.write_text(POLICY)
    said = check("--fix", str(file), str(policy)).stdout
    assert said == f"---\n# {file}\n{SCALED_OBJECT}---\n# {policy}\n{POLICY}"


def test_json(file: Path) -> None:
    file.write_text(WRONG)
    [finding] = json.loads(check("--format", "json", str(file)).stdout)["findings"]
    assert finding == {
        "file": str(file),
        "line": 25,
        "rule": "metric-type",
        "severity": Severity.ERROR,
        "reason": finding["reason"],
        "fix": "metricType: AverageValue",
        "fixable": True,
    }


def test_github(file: Path) -> None:
    file.write_text(changed(SCALED_OBJECT, ("value: 6", "value: 1")))
    said = check("--format", "github", str(file)).stdout
    assert said.startswith(f"::warning file={file},line=19,title=loadtide swallowed-jump::the HPA needs 60 s")
    assert "%0A" in said
    assert said.count("\n") == 1


def test_a_rule_may_be_ignored(file: Path) -> None:
    file.write_text(WRONG)
    assert check("--ignore", "metric-type", str(file)).exit_code == 0


def test_a_rule_that_does_not_exist_cannot_be_ignored(file: Path) -> None:
    """A typing error there would let the rule speak on, or be thought to have silenced it."""
    file.write_text(WRONG)
    said = check("--ignore", "metrics-type", str(file))
    assert said.exit_code == 2
    assert said.stderr == "--ignore metrics-type: there is no such rule; write metric-type\n"
    assert "--list-rules names them all" in check("--ignore", "x", str(file)).stderr


def test_no_file_and_a_file_that_is_not_there() -> None:
    assert check().exit_code == 2
    missing = check("/no/such.yaml")
    assert missing.exit_code == 2
    assert missing.stderr == (
        "/no/such.yaml: cannot be read (No such file or directory); name YAML files, or - for standard input\n"
    )


def test_a_folder_and_what_is_no_text(file: Path) -> None:
    assert "is a folder; name the files in it" in check(str(file.parent)).stderr
    file.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text; name YAML files" in check(str(file)).stderr


def test_the_rules_explain_themselves() -> None:
    said = check("--list-rules")
    assert said.exit_code == 0
    assert "metric-type (error): metricType is not AverageValue" in said.stdout
