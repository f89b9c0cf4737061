"""What rules look at: a ScaledObject with the policy it has, an engine's pods, and everything that was given at once.

A cluster is not asked. What a file leaves open (a namespace, a policy file that was not given) stays open, and rules
that need it find nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from scaler.check.manifest import Content, Manifest, PolicyText
from scaler.policy.errors import PolicyError
from scaler.policy.keys import Path
from scaler.policy.layers import PolicyFile
from scaler.policy.metadata import is_key, nearest_key
from scaler.policy.model import Policy
from scaler.value import frozen

#: KEDA's and the HPA's own values where a ScaledObject says nothing.
DEFAULT_POLLING_SECONDS, DEFAULT_COOLDOWN_SECONDS, DEFAULT_MAX_REPLICAS = 30, 300, 100
#: Where no namespace is said: the name under which a policy is looked up has to have one.
_NO_NAMESPACE = "default"
_FROM_ENV = "FromEnv"
#: Where a target keeps its pods, by kind.
_TEMPLATES: Mapping[str, Path] = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "leaderTemplate"),
}
#: How an engine shows in an image's name or a command line.
_ENGINE = re.compile(
    r"vllm|sglang|text-generation|\btgi\b|tritonserver|triton-?inference|lmdeploy|llama[-.]?cpp|trtllm"
)


@frozen
class Trigger:
    """One trigger of a ScaledObject; ``path`` is where it stands."""

    manifest: Manifest
    path: Path

    @property
    def type(self) -> str:
        """KEDA's name of the scaler: ``external``, ``external-push``, ``cron``, ..."""
        return self.manifest.word(*self.path, "type")

    @property
    def metadata(self) -> Mapping[str, object]:
        """The metadata as values of YAML."""
        return self.manifest.mapping(*self.path, "metadata")

    @property
    def texts(self) -> dict[str, str]:
        """The metadata as the scaler would receive it: an unquoted value as it is written, and none of those whose
        value comes from the environment, which no file tells.
        """
        told = {name: value for name, value in self.metadata.items() if not name.endswith(_FROM_ENV)}
        return {
            name: value if isinstance(value, str) else self.manifest.written((*self.path, "metadata", name))
            for name, value in told.items()
        }

    @property
    def is_external(self) -> bool:
        """Whether it asks an external scaler: ours or another's."""
        return self.type in ("external", "external-push")


@frozen
class ScaledObject:
    """A ScaledObject that asks loadtide. ``ours`` are its triggers for loadtide, the first of which tells the policy.

    ``policy`` is None where it is not known: no policy file was given and the metadata says of no source, or something
    in it is wrong, which ``problems`` then say. ``warnings`` are the policy's own.
    """

    manifest: Manifest
    triggers: tuple[Trigger, ...]
    ours: tuple[Trigger, ...]
    policy: Policy | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    policy_given: bool
    estate: Estate

    @property
    def minimum(self) -> int:
        """KEDA's fewest replicas while active."""
        return self.manifest.whole("spec", "minReplicaCount") or 0

    @property
    def maximum(self) -> int:
        """KEDA's most replicas."""
        said = self.manifest.whole("spec", "maxReplicaCount")
        return DEFAULT_MAX_REPLICAS if said is None else said

    @property
    def reaches_zero(self) -> bool:
        """Whether KEDA takes it to zero when it is inactive."""
        return self.minimum == 0 or self.manifest.whole("spec", "idleReplicaCount") == 0

    @property
    def target(self) -> Manifest | None:
        """What it scales, where that is among the files."""
        kind = self.manifest.word("spec", "scaleTargetRef", "kind") or "Deployment"
        name = self.manifest.word("spec", "scaleTargetRef", "name")
        found = (each for each in self.estate.of_kind(kind) if each.name == name)
        return next((each for each in found if same(each.namespace, self.manifest.namespace)), None)

    @property
    def target_pods(self) -> EnginePods | None:
        """The pods of what it scales, where that is among the files."""
        return None if self.target is None else _pods(self.target, whatever_runs=True)

    @property
    def has_push(self) -> bool:
        """Whether a wake reaches KEDA over a stream."""
        return any(trigger.type == "external-push" for trigger in self.ours)


@frozen
class EnginePods:
    """The pods of an inference engine. ``container`` is where the engine runs, ``path`` where that stands."""

    manifest: Manifest
    spec_path: Path
    path: Path
    container: Mapping[str, object]

    @property
    def words(self) -> tuple[str, ...]:
        """The engine's command line as far as the file tells it; a shell's script is split at spaces."""
        said = [*_texts(self.container.get("command")), *_texts(self.container.get("args"))]
        return tuple(word for text in said for word in text.split())

    @property
    def is_vllm(self) -> bool:
        """Whether the engine is vLLM."""
        return "vllm" in f"{self.container.get('image')} {' '.join(self.words)}".lower()

    def variable(self, name: str) -> str | None:
        """The value of an environment variable: "" where it is not there, None where something else gives it."""
        given = self.container.get("env")
        for each in given if isinstance(given, list) else []:
            if isinstance(each, Mapping) and each.get("name") == name:
                return str(each["value"]) if "value" in each else None
        return None if self.container.get("envFrom") else ""

    def flag(self, name: str) -> str | None:
        """The value given to ``--name`` or ``--name=value``; None where the flag is not there."""
        words = self.words
        for index, word in enumerate(words):
            flag, has_value, value = word.partition("=")
            if flag.replace("_", "-") == name:
                return value if has_value else words[index + 1] if index + 1 < len(words) else ""
        return None


@frozen
class Estate:
    """Everything given to one ``check``, so that rules can compare."""

    manifests: tuple[Manifest, ...]
    policies: tuple[PolicyFile, ...]

    def of_kind(self, kind: str) -> Iterator[Manifest]:
        """The objects of this kind."""
        return (manifest for manifest in self.manifests if manifest.kind == kind)

    def scaled_objects(self) -> Iterator[ScaledObject]:
        """The ScaledObjects that ask loadtide."""
        for manifest in self.of_kind("ScaledObject"):
            triggers = tuple(
                Trigger(manifest, ("spec", "triggers", index))
                for index in range(len(manifest.items("spec", "triggers")))
            )
            ours = tuple(trigger for trigger in triggers if self._is_ours(trigger))
            if ours:
                yield self._with_policy(manifest, triggers, ours)

    def strangers(self) -> Iterator[Trigger]:
        """Triggers for some other external scaler."""
        for manifest in self.of_kind("ScaledObject"):
            for index in range(len(manifest.items("spec", "triggers"))):
                trigger = Trigger(manifest, ("spec", "triggers", index))
                if trigger.is_external and not self._is_ours(trigger):
                    yield trigger

    def engine_pods(self) -> Iterator[EnginePods]:
        """The pods that a ScaledObject of ours scales, and those whose image or command names an engine."""
        scaled = [scaled.target for scaled in self.scaled_objects()]
        for manifest in self.manifests:
            pods = _pods(manifest, whatever_runs=any(manifest is target for target in scaled))
            if pods is not None:
                yield pods

    def declaring(self, manifest: Manifest) -> tuple[PolicyFile | None, str]:
        """The policy file that speaks of this ScaledObject (or the first given), and the workload's name in it."""
        if not manifest.namespace:
            for policies in self.policies:
                found = [name for name in policies.workloads if name.partition("/")[2] == manifest.name]
                if len(found) == 1:
                    return policies, found[0]
        name = f"{manifest.namespace or _NO_NAMESPACE}/{manifest.name}"
        declared = (policies for policies in self.policies if name in policies.workloads)
        return next(declared, self.policies[0] if self.policies else None), name

    def _is_ours(self, trigger: Trigger) -> bool:
        """An external trigger is another's only if its metadata has keys and none is, or resembles, one of ours."""
        if not trigger.is_external:
            return False
        policies, name = self.declaring(trigger.manifest)
        if "loadtide" in trigger.texts.get("scalerAddress", "") or (policies and name in policies.workloads):
            return True
        keys = [key for key in trigger.metadata if not (is_key(key) and key not in _policy_keys(trigger))]
        return not keys or any(is_key(key) or nearest_key(key) for key in keys)

    def _with_policy(
        self, manifest: Manifest, triggers: tuple[Trigger, ...], ours: tuple[Trigger, ...]
    ) -> ScaledObject:
        policies, name = self.declaring(manifest)
        metadata = ours[0].texts
        if policies is None:
            metadata = {key: text for key, text in metadata.items() if key.lower() != "policy"}
        try:
            resolved = (policies or PolicyFile.empty()).resolve(name, metadata)
        except PolicyError as error:
            return ScaledObject(manifest, triggers, ours, None, tuple(error.problems), (), bool(policies), self)
        known = policies is not None or resolved.policy.scrape.declared
        policy, warnings = (resolved.policy, resolved.warnings) if known else (None, ())
        return ScaledObject(manifest, triggers, ours, policy, (), warnings, policies is not None, self)


def estate_of(contents: Iterable[Content]) -> tuple[Estate, list[tuple[PolicyText, PolicyFile | PolicyError]]]:
    """The estate, and each policy text with what it was read as."""
    whole = list(contents)
    read = [(text, _policy_file(text)) for content in whole for text in content.policies]
    policies = tuple(found for _, found in read if isinstance(found, PolicyFile))
    return Estate(tuple(manifest for content in whole for manifest in content.manifests), policies), read


def _pods(manifest: Manifest, *, whatever_runs: bool) -> EnginePods | None:
    """The engine's container in this object; the first of any kind where ``whatever_runs`` is an engine."""
    template = _TEMPLATES.get(manifest.kind)
    if template is None:
        return None
    spec = (*template, "spec")
    named = enumerate(manifest.items(*spec, "containers"))
    containers = [(index, container) for index, container in named if isinstance(container, Mapping)]
    engines = [each for each in containers if _is_engine(each[1])]
    chosen = engines or (containers if whatever_runs else [])
    return EnginePods(manifest, spec, (*spec, "containers", chosen[0][0]), chosen[0][1]) if chosen else None


def same(one: str, other: str) -> bool:
    """Whether two namespaces may be one; a file that says none leaves it to ``kubectl -n``."""
    return not one or not other or one == other


def _policy_file(text: PolicyText) -> PolicyFile | PolicyError:
    try:
        return PolicyFile.parse(text.file, text.text)
    except PolicyError as error:
        return error


def _policy_keys(trigger: Trigger) -> set[str]:
    """The keys that are ours and not KEDA's own."""
    return {key for key in trigger.metadata if is_key(key) and nearest_key(key) == key}


def _is_engine(container: Mapping[str, object]) -> bool:
    words = [str(container.get("image", "")), *_texts(container.get("command")), *_texts(container.get("args"))]
    return bool(_ENGINE.search(" ".join(words).lower()))


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
