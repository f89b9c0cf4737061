"""``policy.md``: every policy key in both spellings, and what a policy file has beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby

from pydantic import BaseModel

from scaler.pack.reference.markdown import code, prose, table
from scaler.policy.jump import JumpRow
from scaler.policy.keys import KEYS, Key, keys_of
from scaler.policy.metadata import reference
from scaler.policy.model import Policy
from scaler.policy.prometheus import PrometheusServer
from scaler.policy.tenancy import Tenancy
from scaler.policy.windows import Window

_HEAD = """\
# Policy keys

Each key has two spellings: in a [policy file](../first-ten-minutes.md#a-policy-file) groups are mappings, in a
ScaledObject's metadata the words run together (`replicas.max` is `replicasMax`; case, dots, dashes and underscores do
not matter there). Metadata values are texts: quote every number and switch. A structure is YAML in a text.

Layers, later ones win key by key: built-in defaults, the engine's defaults, `defaults:`, the named policy, the
workload, the ScaledObject's metadata. A list is replaced whole. `null` unsets a key.

"""


def policy_page() -> str:
    """The page."""
    return _HEAD + "".join(_sections())


def _sections() -> Iterator[str]:
    rows = {row.policy_path: row for row in reference()}
    yield "## Beside the groups\n\n"
    yield _rows([("policy", rows["policy"].metadata_key, "", rows["policy"].range, rows["policy"].meaning)])
    for group, keys in groupby(KEYS.values(), key=lambda key: key.path[0] if len(key.path) > 1 else ""):
        listed = [(key.dotted, key.metadata_name, rows[key.dotted].default, key.allowed, key.meaning) for key in keys]
        if group:
            yield f"\n## {group}\n\n{_meaning(group)}\n\n"
            yield _rows(listed)
        else:
            yield _rows(listed, headed=False)
    yield _structure("A row of `jump.rows`", JumpRow)
    yield _structure("A window of `warm.windows`", Window)
    yield _structure("The section `tenancy:`", Tenancy)
    yield _structure("An entry of `sources:`", PrometheusServer)


def _meaning(group: str) -> str:
    annotation = Policy.model_fields[group].annotation
    return prose((annotation.__doc__ if annotation else "") or "")


def _rows(listed: list[tuple[str, str, str, str, str]], *, headed: bool = True) -> str:
    text = table(
        ("key", "in metadata", "default", "may be", "meaning"),
        (
            (code(path), code(metadata), code(default), allowed, prose(meaning))
            for path, metadata, default, allowed, meaning in listed
        ),
    )
    return text if headed else "".join(text.splitlines(keepends=True)[2:])


def _structure(title: str, model: type[BaseModel]) -> str:
    rows = ((code(key.dotted), _default(key, model), key.allowed, prose(key.meaning)) for key in keys_of(model))
    heads = ("key", "default", "may be", "meaning")
    return f"\n## {title}\n\n{prose((model.__doc__ or '').partition(chr(10) * 2)[0])}\n\n{table(heads, rows)}"


def _default(key: Key, model: type[BaseModel]) -> str:
    field = model.model_fields[key.path[0]]
    if len(key.path) == 1 and field.is_required():
        return "must be given"
    return code(json.dumps(key.default))
