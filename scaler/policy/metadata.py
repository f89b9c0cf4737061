"""ScaledObject metadata as policy: a flat map of texts, with KEDA's own keys mixed in, read against the key table.

Key names ignore case, dots, dashes and underscores: ``replicasMax``, ``replicas.max`` and ``replicas_max`` are one.
A key ending in ``FromEnv`` arrives with the value of that environment variable, which may be a secret: its value is
in no error and no warning.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from pydantic import ValidationError

from scaler.policy.document import read
from scaler.policy.engine_defaults import DEFAULT_BOUNDS, LANGUAGE_MODEL_ENGINES, promised_by_default
from scaler.policy.errors import PolicyError
from scaler.policy.keys import KEYS, Key, Path, dotted, folded, nearest, shown, wording
from scaler.policy.model import Policy
from scaler.value import frozen

SIZE_LIMIT_BYTES = 64 * 1024
KEY_LIMIT = 200
#: Characters of YAML in all values together: reading one thousand takes some ten milliseconds, in which nobody else is
#: answered. A hundred rows or windows take half of it.
STRUCTURE_LIMIT = 16 * 1024
#: More unknown keys than this are only counted: hints cost time. So are more problems.
_HINTS_LIMIT = 20

#: What KEDA's external scaler reads for its own connection (kedacore/keda pkg/scalers/external_scaler.go;
#: ``tlsCertFile`` up to 2.8).
_KEDA_KEYS = frozenset(
    folded(name)
    for name in ("scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile")
)
_FROM_ENV = "FromEnv"
_POLICY = "policy"
_BY_FOLDED: Mapping[str, Key] = {folded(key.metadata_name): key for key in KEYS.values()}
_NAMES = [_POLICY, *(key.metadata_name for key in KEYS.values())]


def _words(name: str) -> tuple[str, ...]:
    """A key's words, sorted, without a plural's s."""
    return tuple(
        sorted(word.lower().rstrip("s") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name[:100]))
    )


_BY_WORDS: Mapping[tuple[str, ...], str] = {_words(name): name for name in _NAMES}

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@frozen
class Written:
    """How a policy value came in: under which metadata key, and whether its value must not be shown."""

    key: str
    secret: bool


@frozen
class Parsed:
    """What metadata says: the chosen policy's name, values by group as in the file, and what to tell the operator."""

    policy_name: str | None
    overrides: Mapping[str, object]
    warnings: tuple[str, ...]
    written: Mapping[Path, Written] = field(default_factory=dict)

    @property
    def secret_paths(self) -> frozenset[Path]:
        """The policy paths whose value came from the environment and must not be shown."""
        return frozenset(path for path, at in self.written.items() if at.secret)


class KeyReference(NamedTuple):
    """One row of the reference table: all texts, ``range`` says what may be written, ``default`` is JSON."""

    metadata_key: str
    policy_path: str
    type: str
    default: str
    range: str
    meaning: str


def parse(metadata: Mapping[str, str]) -> Parsed:
    """Read one trigger's metadata. Values are trimmed, an empty one counts as absent, an unknown key is a warning.

    Raises:
        PolicyError: a value cannot be meant, or one key stands here in two spellings, or the map is larger than
            64 KiB or 200 keys. Every problem names its key and what to write instead.
    """
    _refuse_oversize(metadata)
    ours = _ours(metadata)
    if sum(len(text) for name, text in ours.items() if _is_yaml(name, text)) > STRUCTURE_LIMIT:
        raise PolicyError(
            [f"metadata: lists and mappings of more than {STRUCTURE_LIMIT} characters; use the policy file for so many"]
        )
    policy_name: str | None = None
    problems: list[str] = []
    unknown: list[str] = []
    written: dict[Path, Written] = {}
    values: dict[Path, object] = {}
    for name, text in sorted(ours.items()):
        secret, bare = _bare(name)
        key = None if bare == _POLICY else _BY_FOLDED.get(bare)
        if key is None and bare != _POLICY:
            unknown.append(name)
            continue
        path: Path = key.path if key else (_POLICY,)
        if path in written:
            problems.append(
                f"metadata {shown(name)}: means the same as {shown(written[path].key)}; keep one of the two"
            )
            continue
        written[path] = Written(name, secret)
        if key is None:
            policy_name = text
            continue
        try:
            values[path] = _value(key, text)
        except ValueError as error:
            what = f"the value (withheld) is not allowed; write {key.allowed}" if secret else str(error)
            problems.append(f"metadata {shown(name)}: {what}")
    overrides = nested(values)
    problems += _model_problems(overrides, metadata, written)
    if problems:
        raise PolicyError(problems)
    return Parsed(policy_name, overrides, _unknown_warnings(unknown), written)


def is_key(name: str) -> bool:
    """Whether metadata's key ``name`` means something, to us or to KEDA, in whatever spelling."""
    bare = _bare(name)[1]
    return bare == _POLICY or bare in _BY_FOLDED or bare in _KEDA_KEYS


def nearest_key(name: str) -> str | None:
    """The key of ours that was probably meant by ``name``: one of the same words, or one spelt much like it."""
    bare = name.removesuffix(_FROM_ENV)
    close = _BY_WORDS.get(_words(bare)) or nearest(bare, _NAMES)
    return close + _FROM_ENV if close and name.endswith(_FROM_ENV) else close


def same_words(one: str, other: str) -> bool:
    """Whether two keys are made of the same words, in any order: ``maxReplicas`` and ``replicasMax``."""
    return _words(one) == _words(other)


def storable(metadata: Mapping[str, str]) -> dict[str, str]:
    """``metadata`` as it may be written down: what says something about the policy, and no value that came from the
    environment, which may be a secret. Its key stays, with nothing behind it (:func:`is_whole`).
    """
    ours = {name: text for name, text in _ours(metadata).items() if is_key(name)}
    return {name: "" if name.endswith(_FROM_ENV) else text for name, text in ours.items()}


def is_whole(stored: Mapping[str, str]) -> bool:
    """Whether metadata that was written down says all that the ScaledObject says: nothing in it was withheld."""
    return not any(name.endswith(_FROM_ENV) and not text for name, text in stored.items())


def completed(stored: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """What was written down, with what was withheld there taken from ``known``, the last that was heard whole."""
    return {name: text or (known.get(name, "") if name.endswith(_FROM_ENV) else "") for name, text in stored.items()}


def fingerprint(metadata: Mapping[str, str]) -> str:
    """16 hex digits that tell two triggers apart: equal for the same keys and values in any order and spelling.

    KEDA's connection keys and empty values are left out: they say nothing about the policy.
    """
    pairs = sorted((_bare(name)[1], text) for name, text in _ours(metadata).items())
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]


def reference() -> list[KeyReference]:
    """The reference table of every metadata key, in the model's order, ``policy`` first."""
    chosen = KeyReference(_POLICY, _POLICY, "text", "null", "a name under `policies:`", "The named policy to use.")
    return [chosen] + [
        KeyReference(key.metadata_name, key.dotted, key.kind, _default_text(key), key.allowed, key.meaning)
        for key in KEYS.values()
    ]


def nested(values: Mapping[Path, object]) -> dict[str, object]:
    """``{("batch", "max"): 8}`` as ``{"batch": {"max": 8}}``."""
    tree: dict[str, object] = {}
    for path, value in values.items():
        *groups, last = map(str, path)
        at = tree
        for group in groups:
            at = at.setdefault(group, {})  # type: ignore[assignment]  # paths come from the key table: groups are dicts
        at[last] = value
    return tree


def _refuse_oversize(metadata: Mapping[str, str]) -> None:
    if len(metadata) > KEY_LIMIT:
        raise PolicyError([f"metadata: {len(metadata)} keys; write at most {KEY_LIMIT}"])
    size = sum(len(text.encode("utf-8", "surrogatepass")) for pair in metadata.items() for text in pair)
    if size > SIZE_LIMIT_BYTES:
        raise PolicyError(
            [f"metadata: {size} bytes; write at most {SIZE_LIMIT_BYTES}, and use the policy file for more"]
        )


def _ours(metadata: Mapping[str, str]) -> dict[str, str]:
    """The keys that are not KEDA's and say something, values trimmed."""
    trimmed = {name: text.strip() for name, text in metadata.items()}
    return {name: text for name, text in trimmed.items() if text and _bare(name)[1] not in _KEDA_KEYS}


@lru_cache(maxsize=256)
def _bare(name: str) -> tuple[bool, str]:
    """Whether the value came from the environment, and the folded key it stands for."""
    return name.endswith(_FROM_ENV), folded(name.removesuffix(_FROM_ENV))


def _is_yaml(name: str, text: str) -> bool:
    """Whether the value will be read as YAML."""
    key = _BY_FOLDED.get(_bare(name)[1])
    return key is not None and (key.kind == "structure" or (key.kind == "texts" and _is_list(text)))


def _is_list(text: str) -> bool:
    """Whether texts are written as a list of YAML, and not with commas or spaces between."""
    return text.startswith(("[", "- "))


def _value(key: Key, text: str) -> object:
    """The text as the value the model wants; ValueError says what to write instead."""
    wrong = ValueError(f"{shown(text)} is not allowed; write {key.allowed}")
    if key.nullable and key.kind != "text" and text.lower() in ("null", "none"):
        return None
    match key.kind:
        case "whole" | "number":
            if not _NUMBER.fullmatch(text):
                raise wrong
            if key.kind == "number":
                return float(text)
            exact = Decimal(text)
            # Past 18 digits no key has a meaning, and writing out 1e999999 would take the day.
            if exact and (not -1 < exact.adjusted() < 18 or exact != exact.to_integral_value()):
                raise wrong
            return int(exact)
        case "switch":
            if text.lower() not in _SWITCHES:
                raise wrong
            return _SWITCHES[text.lower()]
        case "choice":
            return text.lower()
        case "texts" if not _is_list(text):
            return [item for item in re.split(r"[,\s]+", text) if item]
        case "texts" | "structure":
            document = read(text)
            if document.problems:
                raise ValueError(f"{document.problems[0].text} (line {document.problems[0].line}); write {key.allowed}")
            return document.value
        case _:
            return text


def _model_problems(
    overrides: Mapping[str, object], metadata: Mapping[str, str], written: Mapping[Path, Written]
) -> list[str]:
    """What the model refuses of single values. How values go together is judged once all layers are known."""
    try:
        Policy.model_validate(overrides)
    except ValidationError as error:
        problems = []
        for part in error.errors(include_url=False)[
            :_HINTS_LIMIT
        ]:  # each element of a list may be wrong in its own way
            path = next((part["loc"][:end] for end in (1, 2) if part["loc"][:end] in written), None)
            if path is None:
                continue
            at, inside = written[path], dotted(part["loc"][len(path) :])
            if at.secret:
                what = f"the value (withheld) is not allowed; write {KEYS[path].allowed}"
            elif inside:
                what = f"at {inside}: {wording(part)}"
            else:
                quoted = shown(metadata[at.key].strip())
                what = wording({**part, "input": metadata[at.key].strip()})
                what = what if quoted in what else f"{quoted}: {what}"
            problems.append(f"metadata {shown(at.key)}: {what}")
        return list(dict.fromkeys(problems))
    return []


def _unknown_warnings(names: list[str]) -> tuple[str, ...]:
    warnings = []
    for name in names[:_HINTS_LIMIT]:
        close = nearest_key(name)
        hint = f'did you mean "{close}"?' if close else "it does nothing; leave it out"
        warnings.append(f"unknown key {shown(name)}: {hint}")
    if len(names) > _HINTS_LIMIT:
        warnings.append(f"and {len(names) - _HINTS_LIMIT} more unknown keys; they do nothing, leave them out")
    return tuple(warnings)


def _default_text(key: Key) -> str:
    pair, _, half = key.path[-1].partition("_")
    if key.path[0] != "objectives" or pair not in DEFAULT_BOUNDS:
        return json.dumps(key.default, ensure_ascii=False)
    bound = DEFAULT_BOUNDS[pair]
    seconds = bound.seconds * bound.critical_ratio if half == "critical_seconds" else bound.seconds
    language_model = pair in promised_by_default(min(LANGUAGE_MODEL_ENGINES))
    return f"{seconds:g} ({'language models' if language_model else 'other engines'})"
