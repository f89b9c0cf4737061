"""The table of policy keys, read once from the model, and the wording of a value that cannot be meant.

The model's own declarations (type, range, default, docstring) are the only ones: the YAML file, the ScaledObject
metadata, the error texts and the reference table in the docs all come from :data:`KEYS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from scaler.policy.model import Policy
from scaler.value import frozen

Path = tuple[str | int, ...]
Kind = Literal["whole", "number", "switch", "choice", "text", "texts", "structure"]

_SCHEMA: Mapping[str, Any] = Policy.model_json_schema()
_SHOWN = 80
#: Keys whose value is in no error.
_CREDENTIAL = re.compile(r"token$|password|secret|headers")


@frozen
class Key:
    """One leaf of the policy: ``path`` in the file, what it means, and what may stand there."""

    path: tuple[str, ...]
    kind: Kind
    nullable: bool
    allowed: str
    default: object
    meaning: str

    @property
    def dotted(self) -> str:
        """The key as the file's errors spell it: ``replicas.max``."""
        return dotted(self.path)

    @property
    def metadata_name(self) -> str:
        """The key as ScaledObject metadata spells it: ``replicasMax``."""
        first, *rest = "_".join(self.path).split("_")
        return first + "".join(word.capitalize() for word in rest)


def dotted(path: Path) -> str:
    """``("jump", "rows", 0, "batch")`` as ``jump.rows[0].batch``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _follow(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself behind a reference and behind "or null"."""
    if "$ref" in schema:
        return _follow(_SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return _follow(next(option for option in schema["anyOf"] if option.get("type") != "null"))
    return schema


def _nullable(schema: Mapping[str, Any]) -> bool:
    return any(option.get("type") == "null" for option in schema.get("anyOf", ()))


def _kind(schema: Mapping[str, Any]) -> Kind:
    match schema.get("type"):
        case "integer":
            return "whole"
        case "number":
            return "number"
        case "boolean":
            return "switch"
        case "array":
            item = _follow(schema["items"])
            return "texts" if item.get("type") == "string" and "enum" not in item else "structure"
        case "string":
            return "choice" if "enum" in schema else "text"
        case _:
            return "structure"


def _range(schema: Mapping[str, Any]) -> str:
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    below = schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {_plain(low)} to {_plain(high)}"
    bounds = (
        f"from {_plain(low)}" if low is not None else f"above {_plain(above)}" if above is not None else "",
        f"up to {_plain(high)}" if high is not None else f"below {_plain(below)}" if below is not None else "",
    )
    words = " and ".join(filter(None, bounds))
    return f" {words}" if words else ""


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _allowed(name: str, schema: Mapping[str, Any]) -> str:
    """What may stand at a place of the model, as the object of "write"."""
    or_null = " (or null to unset)" if _nullable(schema) else ""
    inner = _follow(schema)
    match _kind(inner):
        case "whole":
            words = "a whole number" + _range(inner)
        case "number":
            words = ("a number of seconds" if name.endswith("seconds") else "a number") + _range(inner)
        case "switch":
            words = "true or false"
        case "choice":
            words = "one of " + ", ".join(inner["enum"])
        case "text" if inner.get("format") == "time":
            words = 'a local time, for example "08:00"'
        case "text" if "pattern" in inner:
            words = "a name in lower-case letters, digits, - and _, for example vllm"
        case "text":
            words = "a text (in quotes if it looks like a number)"
        case "texts":
            words = "a list of texts, for example [http://vllm:8000/metrics]"
        case "structure" if inner.get("type") == "array":
            item = _follow(inner["items"])
            words = f"a list of {', '.join(item['enum'])}" if "enum" in item else f"a list of mappings {_keys(item)}"
        case _ if "properties" not in inner:
            words = "a mapping of texts, for example {namespace: chat}"
        case _:
            words = f"a mapping {_keys(inner)}"
    return words + or_null


def _keys(schema: Mapping[str, Any]) -> str:
    return "with the keys " + ", ".join(schema["properties"])


def _leaves(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterable[Key]:
    for name, field in schema["properties"].items():
        inner = _follow(field)
        if "properties" in inner:
            yield from _leaves(inner, (*path, name))
            continue
        yield Key(
            path=(*path, name),
            kind=_kind(inner),
            nullable=_nullable(field),
            allowed=_allowed(name, field),
            default=field.get("default"),
            meaning=" ".join(field.get("description", "").split()),
        )


#: Every key of the policy by its path, in the model's order.
KEYS: Mapping[Path, Key] = {key.path: key for key in _leaves(_SCHEMA)}
#: The groups: ``batch``, ``replicas``, ...
GROUPS: frozenset[str] = frozenset(str(path[0]) for path in KEYS if len(path) > 1)


def _place(path: Path, root: Mapping[str, Any] = _SCHEMA) -> tuple[str, Mapping[str, Any]]:
    """The name and schema at ``path``; the nearest enclosing ones where the model ends earlier."""
    name, schema = "policy", root
    for part in path:
        inner = _follow(schema)
        if isinstance(part, int) and "items" in inner:
            schema = inner["items"]
        elif isinstance(part, str) and part in inner.get("properties", {}):
            name, schema = part, inner["properties"][part]
        else:
            break
    return name, schema


def shown(value: object) -> str:
    """A value as errors quote it: JSON, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def nearest(word: str, candidates: Sequence[str]) -> str | None:
    """The candidate most like ``word``, ignoring case, or None when none is."""
    if len(word) > _SHOWN:
        return None
    lowered = {candidate.lower(): candidate for candidate in candidates}
    close = get_close_matches(word.lower(), list(lowered), n=1)
    return lowered[close[0]] if close else None


def unknown_key(word: str, candidates: Sequence[str]) -> str:
    """What to say of a key that does not exist: the one that was probably meant, or the ones that do."""
    close = nearest(word, candidates)
    return f'no such key; did you mean "{close}"?' if close else f"no such key; write one of {', '.join(candidates)}"


def wording(error: ErrorDetails, root: Mapping[str, Any] = _SCHEMA) -> str:
    """One pydantic error as "what is wrong; what to write instead", without the place. ``root`` is the JSON schema of
    the model that found it.
    """
    path = error["loc"]
    name, schema = _place(path, root)
    match error["type"]:
        case "extra_forbidden":
            return unknown_key(str(path[-1]), list(_follow(_place(path[:-1], root)[1])["properties"]))
        case "missing":
            return f"is missing; write {_allowed(name, schema)}"
        case "value_error":
            return str(error["ctx"]["error"])
        case _ if any(_CREDENTIAL.search(str(part)) for part in path):
            return f"the value (withheld) is not allowed; write {_allowed(name, schema)}"
        case _:
            return f"{shown(error['input'])} is not allowed; write {_allowed(name, schema)}"


def schema_of(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema of a model beside the policy, for :func:`wording`: without references, which would lead into the
    policy's own.
    """
    schema = model.model_json_schema()
    groups = schema.get("$defs", {})

    def resolved(part: Any) -> Any:
        if isinstance(part, dict):
            group = groups.get(part.get("$ref", "").rpartition("/")[2])
            return resolved(group) if group else {name: resolved(inner) for name, inner in part.items()}
        return [resolved(inner) for inner in part] if isinstance(part, list) else part

    return {name: resolved(part) for name, part in schema.items() if name != "$defs"}


def keys_of(model: type[BaseModel]) -> tuple[Key, ...]:
    """The leaves of a model beside the policy, as :data:`KEYS` has the policy's own."""
    return tuple(_leaves(schema_of(model)))


def allowed_at(path: Path) -> str:
    """What may stand at ``path``."""
    return _allowed(*_place(path))


def folded(word: str) -> str:
    """A key without case, dots, dashes, underscores and spaces: ``replicas.max`` and ``replicasMax`` are one."""
    return re.sub(r"[.\-_\s]", "", word).lower()
