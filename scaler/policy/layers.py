"""The policy file and the layers: built-in < engine class < ``defaults:`` < named policy < workload < metadata.

Later layers win key by key; a list is replaced whole. A key set to null is unset: it has no value where the model
allows that, the built-in default elsewhere. A group with nothing under it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import NamedTuple

from pydantic import ValidationError

from scaler.policy.document import Document, read
from scaler.policy.engine_defaults import fill
from scaler.policy.errors import PolicyError
from scaler.policy.gpu_group import DUST
from scaler.policy.keys import GROUPS, KEYS, Path, allowed_at, dotted, shown, unknown_key, wording
from scaler.policy.metadata import Parsed, nested, parse
from scaler.policy.model import Policy
from scaler.policy.prometheus import PrometheusServer
from scaler.policy.servers import read_servers
from scaler.policy.tenancy import Tenancy, refused
from scaler.policy.warnings import warnings_of
from scaler.value import frozen

#: A larger file is refused; a thousand workloads take a tenth of this.
FILE_LIMIT_BYTES = 4 * 1024 * 1024
#: More problems than this are only counted.
PROBLEMS_LIMIT = 100

#: Policy keys that name a server of ``sources:``.
SOURCE_KEYS: tuple[Path, ...] = (("prometheus", "source"), ("gpu", "source"), ("season", "source"))
#: The top-level keys of a policy file.
SECTIONS = ("defaults", "policies", "workloads", "tenancy", "sources")
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
#: ``namespace/name``: a namespace is one DNS label, the name of a ScaledObject may be several with dots between.
_WORKLOAD_NAME = re.compile(rf"{_LABEL}/(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_NAME_RULE = "write namespace/name in lower-case letters, digits and -, for example prod/llama"


@frozen
class Resolved:
    """A workload's complete policy, and what its operator should know about it."""

    policy: Policy
    warnings: tuple[str, ...]


#: Words what is wrong at a policy path together with where it was written.
_Place = Callable[[Path, str], str]


class _Layer(NamedTuple):
    body: Mapping[str, object]
    place: _Place


@dataclass(frozen=True)
class PolicyFile:
    """A policy file that has been read and found valid in every section."""

    path: str = ""
    defaults: Mapping[str, object] = field(default_factory=dict)
    policies: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    bodies: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    tenancy: Tenancy = field(default_factory=Tenancy)
    document: Document = field(default_factory=lambda: read(""), repr=False)
    sources: Mapping[str, PrometheusServer] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> PolicyFile:
        """No file: every workload has the defaults and what its metadata says."""
        return cls()

    @classmethod
    def load(cls, path: str | PathLike[str]) -> PolicyFile:
        """Read and check a policy file: every section on the layers below it.

        Raises:
            PolicyError: the file cannot be read or something in it cannot be meant. All problems at once, each as
                ``file:line: path.to.key: what is wrong; what to write instead``.
        """
        name = fspath(path)
        return cls.parse(name, _text(name))

    @classmethod
    def parse(cls, name: str, text: str) -> PolicyFile:
        """As :meth:`load`, of a text at hand; ``name`` is what its errors call the file."""
        document = read(text)
        if document.problems and document.value is None:
            raise PolicyError([f"{name}:{problem.line}: {problem.text}" for problem in document.problems])
        problems = [f"{name}:{problem.line}: {dotted(problem.path)}: {problem.text}" for problem in document.problems]
        sections, wrong = _sections(name, document)
        tenancy, not_allowed = _tenancy(name, document, sections["tenancy"])
        servers, not_servers = read_servers(name, document, sections["sources"])
        loaded = cls(
            name,
            sections["defaults"],
            _bodies(sections["policies"]),
            _bodies(sections["workloads"]),
            tenancy,
            document,
            servers,
        )
        problems += [*wrong, *not_allowed, *not_servers, *loaded._problems()]
        if problems:
            unique = list(dict.fromkeys(problems))
            more = len(unique) - PROBLEMS_LIMIT
            raise PolicyError(unique[:PROBLEMS_LIMIT] + ([f"{name}: and {more} more problems"] if more > 0 else []))
        return loaded

    @property
    def workloads(self) -> tuple[str, ...]:
        """The declared workloads, ``namespace/name``, in the file's order."""
        return tuple(self.bodies)

    def resolve(self, name: str, metadata: Mapping[str, str] | None = None) -> Resolved:
        """The policy of one workload, declared in the file or not, with its ScaledObject's metadata on top.

        Raises:
            PolicyError: the name is not ``namespace/name``, the metadata has a bad value, or the layers together
                contradict each other (``replicas.min`` above ``replicas.max``).
        """
        if not _WORKLOAD_NAME.fullmatch(name):
            raise PolicyError([f"workload {shown(name)}: {_NAME_RULE}"])
        parsed = parse(metadata or {})
        layers, problems = self._layers(name, parsed)
        place = _metadata_place(parsed)
        namespace = name.partition("/")[0]
        problems += [place(*each) for each in refused(self.tenancy, namespace, dict(_entries(parsed.overrides)))]
        policy, wrong = _merge(layers)
        if policy is None or problems:
            raise PolicyError([*problems, *wrong])
        return Resolved(policy, parsed.warnings + warnings_of(policy, parsed.secret_paths))

    def _layers(self, name: str, parsed: Parsed) -> tuple[list[_Layer], list[str]]:
        """The layers of one workload from the lowest up, and what is wrong with its choice of a policy."""
        body = self.bodies.get(name, {})
        layers, problems = [_Layer(self.defaults, self._place("defaults"))], []
        in_file = body.get("policy")
        chosen, place = in_file, self._place("workloads", name)
        if parsed.policy_name is not None:
            chosen, place = parsed.policy_name, _metadata_place(parsed)
        if isinstance(chosen, str) and chosen in self.policies:
            layers.append(_Layer(self.policies[chosen], self._place("policies", chosen)))
        elif chosen is not None:
            known = (
                f"write one of: {', '.join(self.policies)}" if self.policies else "declare it under policies: (none is)"
            )
            problems.append(place(("policy",), f"{shown(chosen)} is no declared policy; {known}"))
        own = {key: value for key, value in body.items() if key != "policy"}
        layers.append(_Layer(own, self._place("workloads", name)))
        layers.append(_Layer(parsed.overrides, _metadata_place(parsed)))
        return layers, [*problems, *self._undeclared_source(layers)]

    def _undeclared_source(self, layers: Iterable[_Layer]) -> Iterator[str]:
        """What is wrong with the name of a source in the highest layer that names one."""
        for path in SOURCE_KEYS:
            naming = [(layer, dict(_entries(layer.body)).get(path)) for layer in layers]
            for layer, source in [each for each in naming if each[1] is not None][-1:]:
                if isinstance(source, str) and source not in self.sources:
                    known = f"write one of: {', '.join(self.sources)}" if self.sources else "declare it there (none is)"
                    yield layer.place(path, f"{shown(source)} is no source of the policy file's sources:; {known}")

    def _place(self, *prefix: str) -> _Place:
        def place(path: Path, text: str) -> str:
            full = (*prefix, *path)
            return f"{self.path}:{self.document.line(full)}: {dotted(full)}: {text}"

        return place

    def _problems(self) -> Iterator[str]:
        """What is wrong with any section on the layers below it."""
        cards: dict[str, dict[str, float]] = {}
        defaults = _Layer(self.defaults, self._place("defaults"))
        yield from _merge([defaults])[1]
        yield from self._undeclared_source([defaults])
        for name, body in self.policies.items():
            layers = [defaults, _Layer(body, self._place("policies", name))]
            yield from _merge(layers)[1]
            yield from self._undeclared_source(layers)
        nothing = parse({})
        for name in self.bodies:
            if not _WORKLOAD_NAME.fullmatch(name):
                yield self._place("workloads", name)((), f"is not a workload's name; {_NAME_RULE}")
            layers, problems = self._layers(name, nothing)
            yield from problems
            policy, wrong = _merge(layers)
            yield from wrong
            if policy is not None and (card := policy.gpu_group).declared:
                cards.setdefault(str(card.name), {})[name] = card.share_ratio or 0.0
        for card_name, shares in cards.items():
            if (total := sum(shares.values())) > 1.0 + DUST:
                said = f"the shares of {card_name} come to {total:.12g} ({', '.join(shares)}); the card is 1"
                yield self._place("workloads", next(reversed(shares)), "gpu_group")(("share_ratio",), said)


def _text(name: str) -> str:
    try:
        with open(name, "rb") as file:
            content = file.read(FILE_LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PolicyError([f"{name}: cannot be read ({reason}); name an existing, readable policy file"]) from error
    if len(content) > FILE_LIMIT_BYTES:
        raise PolicyError(
            [f"{name}: is larger than {FILE_LIMIT_BYTES} bytes; share keys under defaults: and policies:"]
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError([f"{name}:{line}: is not UTF-8; save the file as UTF-8"]) from error


def _sections(name: str, document: Document) -> tuple[dict[str, dict[str, object]], list[str]]:
    """The top-level sections, those of a wrong type left out, with the problems found."""
    sections: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    top = {} if document.value is None else document.value
    if not isinstance(top, dict):
        return sections, [f"{name}:1: {shown(top)} is not a policy file; write a mapping with {', '.join(SECTIONS)}"]
    problems = []
    for key, value in top.items():
        place = f"{name}:{document.line((key,))}: {dotted((key,))}"
        if key not in sections:
            problems.append(f"{place}: {unknown_key(key, SECTIONS)}")
        elif isinstance(value, dict):
            sections[key] = dict(value)
        elif value is not None:
            problems.append(f"{place}: {shown(value)} is not allowed; write a mapping")
    for key in ("policies", "workloads"):
        for entry, body in sections[key].items():
            if body is not None and not isinstance(body, dict):
                place = f"{name}:{document.line((key, entry))}: {dotted((key, entry))}"
                problems.append(f"{place}: {shown(body)} is not allowed; write a mapping of policy keys")
    return sections, problems


def _tenancy(name: str, document: Document, section: Mapping[str, object]) -> tuple[Tenancy, list[str]]:
    try:
        return Tenancy.model_validate(section), []
    except ValidationError as error:
        problems = []
        for part in error.errors(include_url=False):
            path = ("tenancy", *part["loc"])
            what = wording(part, Tenancy.model_json_schema())
            problems.append(f"{name}:{document.line(path)}: {dotted(path)}: {what}")
        return Tenancy(), problems


def _bodies(section: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    return {name: body if isinstance(body, dict) else {} for name, body in section.items()}


def _metadata_place(parsed: Parsed) -> _Place:
    def place(path: Path, text: str) -> str:
        group = [at for key, at in parsed.written.items() if key[: len(path)] == path or path[: len(key)] == key]
        names = ", ".join(shown(at.key) for at in group)
        secret = any(at.secret for at in group)
        return f"metadata {names}: {'the value (withheld) does not fit the rest of the policy' if secret else text}"

    return place


def _entries(body: Mapping[str, object], path: Path = ()) -> Iterator[tuple[Path, object]]:
    """A body as (path, value) of its keys; a group of a wrong type is a value of its own."""
    for name, value in body.items():
        if not path and name in GROUPS and (value is None or isinstance(value, Mapping)):
            yield from _entries(value or {}, (name,))
        else:
            yield (*path, name), value


def _merge(layers: Iterable[_Layer]) -> tuple[Policy | None, list[str]]:
    """The policy the layers make together, or None and every problem, each where it was written."""
    values: dict[Path, object] = {}
    places: dict[Path, _Place] = {}
    problems: list[str] = []
    for layer in layers:
        for path, value in _entries(layer.body):
            if len(path) == 1 and path[0] in GROUPS:
                problems.append(layer.place(path, f"{shown(value)} is not allowed; write {allowed_at(path)}"))
                continue
            if path == ("policy",):
                problems.append(layer.place(path, "only a workload chooses a policy; write it under workloads:"))
                continue
            # A group's place is that of the last layer that says anything in it.
            places[path] = places[path[:1]] = layer.place
            if value is None and path in KEYS and not KEYS[path].nullable:
                values.pop(path, None)
            else:
                values[path] = value
    try:
        policy = Policy.model_validate(nested(values))
    except ValidationError as error:
        for part in error.errors(include_url=False):
            loc = part["loc"]
            place = next(places[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in places)
            problems.append(place(loc, wording(part)))
        return None, problems
    if problems:
        return None, problems
    return policy.model_copy(update={"objectives": fill(policy.objectives, policy.engine)}), []
