"""Files in, findings out: every rule over everything given. Pure; who calls it reads and writes the files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from scaler.check.edit import Edit, corrected
from scaler.check.manifest import Content, Manifest, PolicyText, read_content
from scaler.check.rule import Finding, Hit, Rule
from scaler.check.subjects import Estate, estate_of
from scaler.check.table import ENGINE_RULES, NOT_OURS, POLICY, POLICY_WARNING, SCALED_OBJECT_RULES, WRONG_TYPE, YAML
from scaler.check.types import wrong_types
from scaler.policy.document import read_all
from scaler.policy.errors import PolicyError
from scaler.policy.keys import dotted
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy
from scaler.signals.lending import unlent
from scaler.signals.preset import known_engines, load_preset
from scaler.value import frozen

#: A correction may make room for another; more rounds than this mean that two undo each other.
_ROUNDS = 5
#: What a rule of its own says better: the beginnings of the policy's warnings.
_SAID_BY_RULES = ("replicas.max is not declared", "nothing can wake", "unknown key", "and ")
_ALLOWED = re.compile(r"#\s*loadtide:\s*allow\s+([\w-]+(?:\s*,\s*[\w-]+)*)")

S = TypeVar("S")


@frozen
class _Found:
    finding: Finding
    edits: tuple[tuple[Manifest, Edit], ...] = ()


def examine(texts: Mapping[str, str], ignored: Collection[str] = ()) -> list[Finding]:
    """Every finding in ``texts`` (file name → its text), by file and line, without those of the ``ignored`` rules and
    those that a comment ``# loadtide: allow RULE`` on their line or the line before allows.
    """
    return [found.finding for found in _examine(texts, ignored)]


def correct(texts: Mapping[str, str], ignored: Collection[str] = ()) -> dict[str, str]:
    """``texts`` with every correction made that can be meant in one way only."""
    fixed = dict(texts)
    for _ in range(_ROUNDS):
        edits = [edit for found in _examine(fixed, ignored) for edit in found.edits]
        after = {
            file: _still_yaml(
                text, corrected(text, [(manifest, edit) for manifest, edit in edits if manifest.file == file])
            )
            for file, text in fixed.items()
        }
        if after == fixed:
            break
        fixed = after
    return fixed


def _still_yaml(before: str, after: str) -> str:
    """``after``, unless some layout that no edit foresaw made it unreadable: then as it was."""
    broken = [sum(len(document.problems) for document in read_all(text)) for text in (before, after)]
    return after if broken[1] <= broken[0] else before


def _examine(texts: Mapping[str, str], ignored: Collection[str]) -> list[_Found]:
    contents = [read_content(file, text) for file, text in texts.items()]
    estate, policies = estate_of(contents)
    found = [*_of_reading(contents, estate), *_of_policies(policies)]
    refused = [manifest for manifest in estate.manifests if any(wrong_types(manifest))]
    for manifest in refused:
        found += _apply((WRONG_TYPE,), manifest, manifest)
    for scaled in estate.scaled_objects():
        if any(scaled.manifest is each for each in refused):
            continue
        found += _apply(SCALED_OBJECT_RULES, scaled, scaled.manifest)
        for warning in scaled.warnings:
            if not warning.startswith(_SAID_BY_RULES) and not _said_in_file(warning, scaled.manifest, estate):
                line = scaled.manifest.line((*scaled.ours[0].path, "metadata"))
                found.append(_found(POLICY_WARNING, scaled.manifest.file, line, warning))
    for pods in estate.engine_pods():
        if any(pods.manifest is each for each in refused):
            continue
        found += _apply(ENGINE_RULES, pods, pods.manifest)
    lines = {file: text.split("\n") for file, text in texts.items()}
    kept = [
        each
        for each in found
        if each.finding.rule not in ignored
        and each.finding.rule not in _allowed(lines[each.finding.file], each.finding.line)
    ]
    order = list(texts)
    return sorted(kept, key=lambda each: (order.index(each.finding.file), each.finding.line))


def _apply(rules: tuple[Rule[S], ...], subject: S, manifest: Manifest) -> Iterator[_Found]:
    for rule in rules:
        for hit in rule.find(subject):
            yield _of_hit(rule, hit, manifest)


def _of_hit(rule: Rule[S], hit: Hit, manifest: Manifest) -> _Found:
    line = manifest.line(hit.path)
    finding = Finding(manifest.file, line, rule.id, rule.severity, hit.reason, hit.fix, bool(hit.edits))
    return _Found(finding, tuple((manifest, edit) for edit in hit.edits))


def _found(rule: Rule[S], file: str, line: int, reason: str, fix: str = "") -> _Found:
    return _Found(Finding(file, line, rule.id, rule.severity, reason, fix))


def _of_reading(contents: list[Content], estate: Estate) -> Iterator[_Found]:
    for content in contents:
        for problem in content.problems:
            where = f"{dotted(problem.path)} " if problem.path else ""
            yield _found(YAML, content.file, problem.line, where + problem.text)
        if not (content.manifests or content.policies or content.problems or content.strays):
            yield _found(NOT_OURS, content.file, 1, "there is no Kubernetes object and no policy in this file")
        for line, said, fix in content.strays:
            yield _found(WRONG_TYPE, content.file, line, said, fix)
    for trigger in estate.strangers():
        line = trigger.manifest.line(trigger.path)
        yield _found(
            NOT_OURS, trigger.manifest.file, line, f"this {trigger.type} trigger does not look like loadtide's"
        )


def _of_policies(policies: list[tuple[PolicyText, PolicyFile | PolicyError]]) -> Iterator[_Found]:
    for text, read in policies:
        if isinstance(read, PolicyError):
            for problem in read.problems:
                line, said = _place(text, problem)
                yield _found(POLICY, text.file, line, said)
            continue
        for name in read.workloads:
            line = text.first_line - 1 + read.document.line(("workloads", name))
            resolved = read.resolve(name)
            for warning in (*resolved.warnings, *_unlent(resolved.policy)):
                yield _found(POLICY_WARNING, text.file, line, f"{name}: {warning}")


def _unlent(policy: Policy) -> tuple[str, ...]:
    """What of a shared card cannot be lent; nothing of an engine that is not known, which is said elsewhere."""
    return unlent(policy, load_preset(policy.engine)) if policy.engine in known_engines() else ()


def _place(text: PolicyText, problem: str) -> tuple[int, str]:
    """A problem of a policy file as its line in the file given, and what is said of it."""
    placed = re.match(r":(\d+): ", problem.removeprefix(text.file))
    if placed is None or not problem.startswith(text.file):
        return text.first_line, problem.removeprefix(f"{text.file}: ")
    return text.first_line - 1 + int(placed[1]), problem.removeprefix(text.file)[placed.end() :]


def _said_in_file(warning: str, manifest: Manifest, estate: Estate) -> bool:
    """Whether the same warning is already reported where the policy file declares the workload."""
    policies, name = estate.declaring(manifest)
    return policies is not None and name in policies.workloads and warning in policies.resolve(name).warnings


def _allowed(lines: list[str], line: int) -> set[str]:
    """The rules that comments on this line (from 1) and the one before it allow."""
    near = lines[max(line - 2, 0) : line]
    return {rule.strip() for text in near for said in _ALLOWED.findall(text) for rule in said.split(",")}
