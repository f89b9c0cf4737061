"""Rules about a ScaledObject as a whole: how many replicas, and how fast the HPA gets there."""

from __future__ import annotations

from collections.abc import Iterator

from scaler.check.edit import Edit, Insert, Remove, Write
from scaler.check.rise import DEFAULT_POLICIES, RisePolicy, rise_seconds
from scaler.check.rule import Hit, Rule, Severity
from scaler.check.subjects import ScaledObject
from scaler.policy.keys import Path

#: A rise that takes longer than this (three syncs of the HPA) is no jump, seconds.
JUMP_SECONDS = 30
#: From so many replicas up, one more or less lies within the HPA's default tolerance of 10 %.
TOLERANCE_HIDES_FROM = 10

_SPEC: Path = ("spec",)
_BEHAVIOUR: Path = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior")


def scaling_modifiers(scaled: ScaledObject) -> Iterator[Hit]:
    path = (*_SPEC, "advanced", "scalingModifiers")
    if scaled.manifest.mapping(*path):
        yield Hit(
            path,
            "scalingModifiers replace our count by a formula's result, and our word on zero by a comparison with that",
            "# no scalingModifiers: what the formula should do belongs into the policy",
            (Remove(path),),
        )


def max_replicas(scaled: ScaledObject) -> Iterator[Hit]:
    if scaled.policy is None:
        return
    said, ours = scaled.manifest.whole("spec", "maxReplicaCount"), scaled.policy.replicas.max
    path, metadata = (*_SPEC, "maxReplicaCount"), (*scaled.ours[0].path, "metadata")
    if ours is None:
        wanted = f'replicasMax: "{scaled.maximum}"'
        yield Hit(
            metadata,
            f"the policy does not say replicas.max, and KEDA does not tell us its maxReplicaCount ({scaled.maximum}): "
            "without a ceiling loadtide counts at most one step as under way",
            wanted,
            (Insert(metadata, wanted),),
        )
    elif said != ours:
        stands = f"maxReplicaCount is {scaled.maximum}" + ("" if said is not None else " (KEDA's default)")
        yield Hit(
            path,
            f"{stands} and the policy's replicas.max {ours}: the lower holds, and no decision beyond it comes true",
            f"maxReplicaCount: {ours}   # and replicas.max: the same number in both",
        )


def min_replicas(scaled: ScaledObject) -> Iterator[Hit]:
    policy = scaled.policy
    if policy is None or scaled.manifest.whole("spec", "idleReplicaCount") is not None:
        return  # with idleReplicaCount the minimum is a step from zero, not a floor
    floor = max(policy.replicas.min, policy.warm.floor, 0 if policy.can_wake else 1)
    if scaled.minimum > floor:
        yield Hit(
            (*_SPEC, "minReplicaCount"),
            f"minReplicaCount is {scaled.minimum} and the policy's floor {floor}: we decide fewer, KEDA keeps more",
            f'replicasMin: "{scaled.minimum}"   # in the metadata, or replicas.min in the policy file',
        )


def swallowed_jump(scaled: ScaledObject) -> Iterator[Hit]:
    manifest, block = scaled.manifest, (*_BEHAVIOUR, "scaleUp")
    window = manifest.whole(*block, "stabilizationWindowSeconds")
    if window:
        path = (*block, "stabilizationWindowSeconds")
        yield Hit(
            path,
            f"a rise counts only after it has lasted {window} s",
            "stabilizationWindowSeconds: 0",
            (Write(path, "0"),),
        )
    policies, select = _rise_policies(scaled), manifest.word(*block, "selectPolicy") or "Max"
    first, goal = max(scaled.minimum, 1), _highest(scaled)
    seconds = rise_seconds(policies, select, first, goal)
    if seconds <= JUMP_SECONDS:
        return
    slow = "never gets" if seconds == float("inf") else f"needs {seconds:g} s"
    written = bool(manifest.items(*block, "policies"))
    yield Hit(
        (*block, "policies") if written else block,
        f"the HPA {slow} from {first} to {goal} replicas by "
        + ("these policies" if written or select != "Max" else "its own policies (4 pods or 100 % per sync)"),
        f"scaleUp:\n  stabilizationWindowSeconds: 0\n  selectPolicy: Max\n  policies:\n"
        f"    - {{type: Pods, value: {goal}, periodSeconds: 15}}",
        tuple(_faster(scaled, goal)),
    )


def tolerance(scaled: ScaledObject) -> Iterator[Hit]:
    said = any(scaled.manifest.get(*_BEHAVIOUR, way, "tolerance") is not None for way in ("scaleUp", "scaleDown"))
    if scaled.maximum >= TOLERANCE_HIDES_FROM and not said:
        yield Hit(
            (*_SPEC, "maxReplicaCount"),
            f"from {TOLERANCE_HIDES_FROM} replicas up the HPA ignores one more or less: its tolerance is 10 %",
            'tolerance: "0"   # in scaleUp and scaleDown; Kubernetes 1.35 (1.33 with its feature gate), KEDA 2.18',
        )


def paused(scaled: ScaledObject) -> Iterator[Hit]:
    annotations = scaled.manifest.mapping("metadata", "annotations")
    for name in ("autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"):
        if str(annotations.get(name, "false")).lower() != "false":
            yield Hit(
                ("metadata", "annotations", name),
                "KEDA does not scale this while it is paused, and does not ask loadtide either",
                f"# without {name}",
            )


def no_policy(scaled: ScaledObject) -> Iterator[Hit]:
    if scaled.policy is None and not scaled.problems:
        yield Hit(
            (*scaled.ours[0].path, "metadata"),
            "the metadata names no source, so a policy file must speak of this workload; give it to check as well, to "
            "have both compared",
            "loadtide check policy.yaml scaledobject.yaml",
        )


def _highest(scaled: ScaledObject) -> int:
    """As far as one decision may rise: the highest row of the jump table, or the ceiling."""
    policy = scaled.policy
    ceiling = (
        scaled.maximum if policy is None or policy.replicas.max is None else min(policy.replicas.max, scaled.maximum)
    )
    rows = policy.jump.rows if policy is not None else ()
    return min(max((row.replicas for row in rows), default=ceiling), ceiling)


def _rise_policies(scaled: ScaledObject) -> tuple[RisePolicy, ...]:
    path, found = (*_BEHAVIOUR, "scaleUp", "policies"), []
    for index in range(len(scaled.manifest.items(*path))):
        value, period = (scaled.manifest.whole(*path, index, name) for name in ("value", "periodSeconds"))
        if value is not None and period is not None:
            found.append(RisePolicy(scaled.manifest.word(*path, index, "type"), value, period))
    return tuple(found) or DEFAULT_POLICIES


def _faster(scaled: ScaledObject, goal: int) -> Iterator[Edit]:
    """The edits that let the HPA rise to ``goal`` at once, as few as there are."""
    manifest, block = scaled.manifest, (*_BEHAVIOUR, "scaleUp")
    if manifest.get(*block, "selectPolicy") not in (None, "Max"):
        yield Write((*block, "selectPolicy"), "Max")
    policies = manifest.items(*block, "policies")
    if policies:
        kinds = [manifest.word(*block, "policies", index, "type") for index in range(len(policies))]
        index = kinds.index("Pods") if "Pods" in kinds else 0
        first = max(scaled.minimum, 1)
        value = goal if kinds[index] == "Pods" else -(-100 * (goal - first) // first)
        yield Write((*block, "policies", index, "value"), str(value))
        yield Write((*block, "policies", index, "periodSeconds"), "15")
        return
    text = f"policies:\n  - type: Pods\n    value: {goal}\n    periodSeconds: 15"
    for depth in range(len(block), 0, -1):
        if manifest.mapping(*block[:depth]):
            yield Insert(block[:depth], text)
            return
        text = f"{block[depth - 1]}:\n" + "\n".join(f"  {line}" for line in text.split("\n"))


SCALING_RULES = (
    Rule(
        "scaling-modifiers",
        Severity.ERROR,
        "scalingModifiers",
        "The formula's result takes the place of our metric, and of our word on whether there should be any replica.",
        "# no scalingModifiers",
        scaling_modifiers,
    ),
    Rule(
        "max-replicas",
        Severity.WARNING,
        "maxReplicaCount and the policy's replicas.max differ, or the policy has none",
        "KEDA never tells us its maximum: a decision beyond it never comes true, and looks like a slow start.",
        'maxReplicaCount: 4   # and in the metadata replicasMax: "4"',
        max_replicas,
    ),
    Rule(
        "min-replicas",
        Severity.WARNING,
        "minReplicaCount is above the policy's floor",
        "loadtide decides fewer replicas than KEDA keeps, and reckons with fewer.",
        'minReplicaCount: 1   # and in the metadata replicasMin: "1"',
        min_replicas,
    ),
    Rule(
        "swallowed-jump",
        Severity.WARNING,
        "the HPA's scaleUp behaviour holds a jump back",
        "A decision of 10 replicas comes true in steps of the HPA's policies, each waiting for its period.",
        "scaleUp:\n  stabilizationWindowSeconds: 0\n  selectPolicy: Max\n  policies:\n"
        "    - {type: Pods, value: 100, periodSeconds: 15}",
        swallowed_jump,
    ),
    Rule(
        "tolerance",
        Severity.INFO,
        "the HPA's tolerance hides single steps",
        "It acts only on changes of more than 10 %, so from 10 replicas up not on one.",
        'tolerance: "0"   # in scaleUp and scaleDown; Kubernetes 1.35 (1.33 with its feature gate), KEDA 2.18',
        tolerance,
    ),
    Rule(
        "paused",
        Severity.INFO,
        "autoscaling is paused by annotation",
        "KEDA neither scales nor asks; memory and targets stay.",
        "# without the annotation",
        paused,
    ),
    Rule(
        "no-policy",
        Severity.INFO,
        "the workload's policy is not among the files",
        "What depends on it (floor, ceiling, wake) is not compared.",
        "loadtide check policy.yaml scaledobject.yaml",
        no_policy,
    ),
)
