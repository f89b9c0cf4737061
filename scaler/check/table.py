"""Every rule, in the order of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent
from typing import Any

from scaler.check.address_rules import ADDRESS_RULES
from scaler.check.manifest import Manifest
from scaler.check.pod_rules import POD_RULES, TARGET_RULES
from scaler.check.rule import Rule, Severity
from scaler.check.scaling_rules import SCALING_RULES
from scaler.check.subjects import EnginePods, ScaledObject
from scaler.check.trigger_rules import TRIGGER_RULES
from scaler.check.types import wrong_types
from scaler.check.zero_rules import ZERO_RULES


def _nothing(_subject: object) -> Iterator[Any]:
    yield from ()


SCALED_OBJECT_RULES: tuple[Rule[ScaledObject], ...] = (
    *TRIGGER_RULES,
    *ADDRESS_RULES,
    *SCALING_RULES,
    *ZERO_RULES,
    *TARGET_RULES,
)
ENGINE_RULES: tuple[Rule[EnginePods], ...] = POD_RULES

#: Found while reading, before any rule looks: :mod:`scaler.check.examine` reports them.
YAML: Rule[Any] = Rule(
    "yaml",
    Severity.ERROR,
    "a file that cannot be read, or is not YAML",
    "Nothing behind the mistake is looked at. Templates must be rendered first (helm template, kustomize build).",
    "helm template ... | loadtide check -",
    _nothing,
)
WRONG_TYPE: Rule[Manifest] = Rule(
    "wrong-type",
    Severity.ERROR,
    "a value of another type than its place takes (a list for a mapping), or a missing one that must be there",
    "The API server refuses the object. No other rule looks at it: what they would find follows from this.",
    'spec:\n  scaleTargetRef: {name: llama}\n  triggers: []   # a list; minReplicaCount: 1, not "1"',
    wrong_types,
)
POLICY: Rule[Any] = Rule(
    "policy",
    Severity.ERROR,
    "a policy file that loadtide refuses",
    "loadtide does not start with it; one that runs keeps the policy of before.",
    "replicas: {max: 4}   # not four",
    _nothing,
)
POLICY_WARNING: Rule[Any] = Rule(
    "policy-warning",
    Severity.WARNING,
    "a policy that is valid and leaves something unsaid or out of reach",
    "loadtide says the same at its start, in its log and on its page.",
    "batch: {max: 64}   # vLLM: --max-num-seqs",
    _nothing,
)
NOT_OURS: Rule[Any] = Rule(
    "not-ours",
    Severity.INFO,
    "an external trigger that does not look like loadtide's, or a file with nothing for loadtide",
    "It is not checked.",
    "scalerAddress: loadtide.loadtide.svc:6000",
    _nothing,
)
READING_RULES = (YAML, WRONG_TYPE, POLICY, POLICY_WARNING, NOT_OURS)

RULES: tuple[Rule[Any], ...] = (*SCALED_OBJECT_RULES, *ENGINE_RULES, *READING_RULES)


def reference() -> str:
    """The reference of all rules, as text: id, severity, what is found, why it matters, what is right."""
    return "\n\n".join(map(_explained, RULES)) + "\n"


def _explained(rule: Rule[Any]) -> str:
    return f"{rule.id} ({rule.severity}): {rule.summary}\n  {rule.why}\n{indent(rule.fix, '      ')}"
