"""Findings for a person at a terminal, for a program, and for GitHub's annotations; and what they mean to CI."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from textwrap import indent

from scaler.check.rule import Finding, Severity


class Format(StrEnum):
    """How findings are written."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """2 with an error; 1 with a warning where ``strict``; else 0."""
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return 2
    return 1 if strict and Severity.WARNING in severities else 0


def rendered(findings: Sequence[Finding], files: int, how: Format) -> str:
    """All findings of so many ``files``."""
    match how:
        case Format.JSON:
            return (
                json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2, ensure_ascii=False) + "\n"
            )
        case Format.GITHUB:
            return "".join(_annotation(finding) for finding in findings)
        case Format.TEXT:
            return "".join(_lines(finding) for finding in findings) + _summary(findings, files)


def _lines(finding: Finding) -> str:
    fix = f"{indent(finding.fix, '    ')}\n" if finding.fix else ""
    return f"{finding.file}:{finding.line}: {finding.severity} [{finding.rule}] {finding.reason}\n{fix}"


def _summary(findings: Sequence[Finding], files: int) -> str:
    number = Counter(finding.severity for finding in findings)
    told = [f"{number[each]} {each}{'' if number[each] == 1 else 's'}" for each in Severity if number[each]]
    said = f"{', '.join(told) or 'nothing found'} in {files} file{'' if files == 1 else 's'}\n"
    if any(finding.fixable for finding in findings):
        said += "`--fix` prints the file corrected, comments kept; "
    if findings:
        said += (
            "`loadtide check --list-rules` explains every rule, `# loadtide: allow RULE` on a line allows one there\n"
        )
    return said


def _annotation(finding: Finding) -> str:
    """https://docs.github.com/actions/reference/workflow-commands: data and properties are escaped differently."""
    level = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}[finding.severity]
    text = finding.reason + (f"\nfix: {finding.fix}" if finding.fix else "")
    place = f"file={_property(finding.file)},line={finding.line},title={_property(f'loadtide {finding.rule}')}"
    return f"::{level} {place}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
