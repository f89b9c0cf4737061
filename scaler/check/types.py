"""What type each place has that rules look at: an object that the API server refuses is told before any rule looks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from scaler.check.edit import Edit, Write
from scaler.check.manifest import Manifest
from scaler.check.rule import Hit
from scaler.policy.keys import Path, dotted
from scaler.value import frozen


class Type(Enum):
    """A type of YAML, by what it is called."""

    MAPPING = "a mapping"
    LIST = "a list"
    TEXT = "a text"
    NUMBER = "a whole number"
    SWITCH = "true or false"
    #: A Kubernetes quantity: 0.1 or "0.1".
    QUANTITY = "a number or a text"


@frozen
class Place:
    """Where a type is expected: a path, with * for every item of a list. ``example`` is what to write there."""

    path: str
    type: Type
    example: str
    required: bool = False


_MAPPING, _LIST, _TEXT, _NUMBER = Type.MAPPING, Type.LIST, Type.TEXT, Type.NUMBER
_CONTAINER = "- {name: vllm, image: vllm/vllm-openai:v0.18.0}"
_TRIGGER = "- {type: external-push, metadata: {scalerAddress: loadtide.loadtide.svc:6000}}"
_RISE = "- {type: Pods, value: 6, periodSeconds: 15}"
_HPA = "spec.advanced.horizontalPodAutoscalerConfig"

_METADATA = (
    Place("metadata", _MAPPING, "metadata: {name: llama, namespace: chat}", required=True),
    Place("metadata.name", _TEXT, "name: llama"),
    Place("metadata.namespace", _TEXT, "namespace: chat"),
    Place("metadata.annotations", _MAPPING, "annotations: {}"),
)


def _behaviour(way: str) -> tuple[Place, ...]:
    path = f"{_HPA}.behavior.{way}"
    return (
        Place(path, _MAPPING, f"{way}:\n  policies:\n    {_RISE}"),
        Place(f"{path}.stabilizationWindowSeconds", _NUMBER, "stabilizationWindowSeconds: 0"),
        Place(f"{path}.selectPolicy", _TEXT, "selectPolicy: Max"),
        Place(f"{path}.tolerance", Type.QUANTITY, 'tolerance: "0"'),
        Place(f"{path}.policies", _LIST, f"policies:\n  {_RISE}"),
        Place(f"{path}.policies.*", _MAPPING, _RISE),
        Place(f"{path}.policies.*.type", _TEXT, "type: Pods", required=True),
        Place(f"{path}.policies.*.value", _NUMBER, "value: 6", required=True),
        Place(f"{path}.policies.*.periodSeconds", _NUMBER, "periodSeconds: 15", required=True),
    )


#: https://keda.sh/docs/latest/reference/scaledobject-spec, as far as rules look.
_SCALED_OBJECT = (
    *_METADATA,
    Place("spec", _MAPPING, f"spec:\n  scaleTargetRef: {{name: llama}}\n  triggers:\n    {_TRIGGER}", required=True),
    Place("spec.scaleTargetRef", _MAPPING, "scaleTargetRef: {name: llama}", required=True),
    Place("spec.scaleTargetRef.name", _TEXT, "name: llama", required=True),
    Place("spec.scaleTargetRef.kind", _TEXT, "kind: Deployment"),
    Place("spec.pollingInterval", _NUMBER, "pollingInterval: 15"),
    Place("spec.cooldownPeriod", _NUMBER, "cooldownPeriod: 30"),
    Place("spec.initialCooldownPeriod", _NUMBER, "initialCooldownPeriod: 300"),
    Place("spec.minReplicaCount", _NUMBER, "minReplicaCount: 0"),
    Place("spec.maxReplicaCount", _NUMBER, "maxReplicaCount: 6"),
    Place("spec.idleReplicaCount", _NUMBER, "idleReplicaCount: 0"),
    Place("spec.fallback", _MAPPING, "fallback: {failureThreshold: 3, replicas: 1}"),
    Place("spec.fallback.failureThreshold", _NUMBER, "failureThreshold: 3"),
    Place("spec.fallback.replicas", _NUMBER, "replicas: 1"),
    Place("spec.advanced", _MAPPING, "advanced:\n  horizontalPodAutoscalerConfig: {}"),
    Place("spec.advanced.scalingModifiers", _MAPPING, "# no scalingModifiers"),
    Place(_HPA, _MAPPING, "horizontalPodAutoscalerConfig:\n  behavior: {}"),
    Place(f"{_HPA}.behavior", _MAPPING, f"behavior:\n  scaleUp:\n    policies:\n      {_RISE}"),
    *_behaviour("scaleUp"),
    *_behaviour("scaleDown"),
    Place("spec.triggers", _LIST, f"triggers:\n  {_TRIGGER}", required=True),
    Place("spec.triggers.*", _MAPPING, _TRIGGER),
    Place("spec.triggers.*.type", _TEXT, "type: external-push", required=True),
    Place("spec.triggers.*.metricType", _TEXT, "metricType: AverageValue"),
    Place("spec.triggers.*.useCachedMetrics", Type.SWITCH, "useCachedMetrics: false"),
    Place("spec.triggers.*.authenticationRef", _MAPPING, "authenticationRef: {name: loadtide-tls}"),
    Place("spec.triggers.*.metadata", _MAPPING, "metadata: {scalerAddress: loadtide.loadtide.svc:6000}", required=True),
)


def _with_pods(*above: str) -> tuple[Place, ...]:
    """Of an object with a pod's template at the last of these paths."""
    template = above[-1]
    return (
        *_METADATA,
        *(Place(path, _MAPPING, f"{path.rpartition('.')[2]}: {{...}}   # a mapping") for path in above),
        Place(f"{template}.spec", _MAPPING, f"spec:\n  containers:\n    {_CONTAINER}"),
        Place(f"{template}.spec.containers", _LIST, f"containers:\n  {_CONTAINER}"),
        Place(f"{template}.spec.containers.*", _MAPPING, _CONTAINER),
    )


_DEPLOYMENT = _with_pods("spec", "spec.template")
_BY_KIND: Final[Mapping[str, tuple[Place, ...]]] = {
    "ScaledObject": _SCALED_OBJECT,
    "Deployment": _DEPLOYMENT,
    "StatefulSet": _DEPLOYMENT,
    "LeaderWorkerSet": _with_pods("spec", "spec.leaderWorkerTemplate", "spec.leaderWorkerTemplate.leaderTemplate"),
    "Service": (
        *_METADATA,
        Place("spec", _MAPPING, "spec: {selector: {app.kubernetes.io/name: loadtide}}"),
        Place("spec.selector", _MAPPING, "selector: {app.kubernetes.io/name: loadtide}"),
    ),
    "ConfigMap": (*_METADATA, Place("data", _MAPPING, "data:\n  policy.yaml: |\n    workloads: {}")),
}
_KIND: Final = Place("kind", _TEXT, "kind: ScaledObject")
_ITEMS: Final = Place("items", _LIST, "items:\n  - {apiVersion: keda.sh/v1alpha1, kind: ScaledObject}   # and the rest")


def wrong_types(manifest: Manifest) -> Iterator[Hit]:
    """What of the object has another type than the API server takes, or is missing where it takes nothing else."""
    places = (_ITEMS,) if manifest.kind.endswith("List") else _BY_KIND.get(manifest.kind, ())
    for place in (_KIND, *places):
        *above, name = place.path.split(".")
        for parent in _there(manifest, tuple(above)):
            yield from _within(manifest, parent, name, place)


def _there(manifest: Manifest, pattern: tuple[str, ...]) -> Iterator[Path]:
    """The places that ``pattern`` means in the object."""
    found: list[Path] = [()]
    for part in pattern:
        if part == "*":
            found = [(*path, index) for path in found for index in range(len(manifest.items(*path)))]
        else:
            found = [(*path, part) for path in found]
    return iter(found)


def _within(manifest: Manifest, parent: Path, name: str, place: Place) -> Iterator[Hit]:
    holder = manifest.get(*parent)
    if name == "*" and isinstance(holder, list):
        for index, value in enumerate(holder):
            if not _is(value, place.type):
                yield _wrong(manifest, (*parent, index), value, place)
    elif name != "*" and isinstance(holder, Mapping):
        value = holder.get(name)
        if value is not None and not _is(value, place.type):
            yield _wrong(manifest, (*parent, name), value, place)
        elif place.required and not value and not isinstance(value, int):
            missing = "is missing" if value is None else "is empty"
            at = (*parent, name) if name in holder else parent
            yield Hit(
                at,
                f"{dotted((*parent, name))} {missing}: it is refused (of a patch check what kustomize build prints)",
                place.example,
            )


def _is(value: object, wanted: Type) -> bool:
    match wanted:
        case Type.MAPPING:
            return isinstance(value, Mapping)
        case Type.LIST:
            return isinstance(value, list)
        case Type.TEXT:
            return isinstance(value, str)
        case Type.SWITCH:
            return isinstance(value, bool)
        case Type.NUMBER:
            return isinstance(value, int) and not isinstance(value, bool)
        case Type.QUANTITY:
            return isinstance(value, str | int | float) and not isinstance(value, bool)


def _wrong(manifest: Manifest, path: Path, value: object, place: Place) -> Hit:
    said = f"{dotted(path)} is {_called(value)} where {place.type.value} belongs: the API server refuses that"
    meant = _meant(manifest, path, value, place.type)
    if meant is None:
        return Hit(path, said, place.example)
    edits: tuple[Edit, ...] = (Write(path, meant),)
    return Hit(path, said, f"{path[-1]}: {meant}", edits)


def _meant(manifest: Manifest, path: Path, value: object, wanted: Type) -> str | None:
    """The value as it can only be meant: with quotes too many or too few."""
    if wanted is Type.NUMBER and isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        return value
    if wanted is Type.SWITCH and value in ("true", "false"):
        return str(value)
    if wanted is Type.TEXT and isinstance(value, int | float):
        return json.dumps(manifest.written(path))
    return None


def _called(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return f"the text {json.dumps(value[:40], ensure_ascii=False)}"
        case None:
            return "nothing"
        case _:
            return f"the number {value}"
