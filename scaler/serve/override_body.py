"""The body of ``PUT .../override``: what an operator wants for a while, judged against the workload's policy."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import NoReturn

from scaler.control.model import Override
from scaler.policy.model import Policy

#: The longest an override lasts. What is meant to stay belongs into the policy.
LONGEST_SECONDS = 7 * 86_400.0
#: Longest name of who says so, characters.
NAME_LENGTH = 100
#: KEDA's replica counts are of 32 bits; nobody means more than this.
MOST_REPLICAS = 100_000
MOST_BATCH = 1_000_000
FIELDS = ("replicas", "batch_size", "for_seconds", "by")
_EXAMPLE = '{"replicas": 4, "for_seconds": 1800}'


class OverrideBodyError(ValueError):
    """A body that cannot be meant; the text says what is wrong and what to send instead."""


def parse_override(body: bytes, policy: Policy, now: datetime) -> Override:
    """The override in ``body``, beginning ``now``. Raises :class:`OverrideBodyError`, also for what ``policy`` forbids:
    more than ``replicas.max``, a batch outside of ``batch.min`` .. ``batch.max``.
    """
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise OverrideBodyError("the JSON is nested too deeply; send one flat object") from None
    except ValueError as error:
        if isinstance(error, OverrideBodyError):
            raise
        raise OverrideBodyError(f"the body is not JSON ({error}); send for example {_EXAMPLE}") from None
    if not isinstance(document, dict):
        raise OverrideBodyError(f"the body must be a JSON object; send for example {_EXAMPLE}")
    unknown = [name for name in document if name not in FIELDS]
    if unknown:
        raise OverrideBodyError(f"unknown field {unknown[0][:NAME_LENGTH]!r}; the fields are {', '.join(FIELDS)}")
    replicas = _whole("replicas", document.get("replicas"), 0, policy.replicas.max or MOST_REPLICAS, "replicas.max")
    batch = _whole(
        "batch_size",
        document.get("batch_size"),
        policy.batch.min,
        policy.batch.max or MOST_BATCH,
        "batch.min, batch.max",
    )
    if replicas is None and batch is None:
        raise OverrideBodyError(f'neither "replicas" nor "batch_size" is there; send for example {_EXAMPLE}')
    until = now + timedelta(seconds=_seconds(document.get("for_seconds")))
    return Override(replicas, batch, until, _name(document.get("by")))


def _no_constant(word: str) -> NoReturn:
    raise OverrideBodyError(f"{word} is not a number that can be acted on")


def _whole(name: str, value: object, least: int, most: int, keys: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise OverrideBodyError(f'"{name}" must be a whole number, not {json.dumps(value)[:40]}')
    if not least <= value <= most:
        raise OverrideBodyError(f'"{name}" must lie in {least} .. {most} (policy: {keys}), not {str(value)[:40]}')
    return value


def _seconds(value: object) -> float:
    if value is None:
        raise OverrideBodyError('"for_seconds" is missing: an override ends; say for how long, for example 1800')
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OverrideBodyError(f'"for_seconds" must be a number of seconds, not {json.dumps(value)[:40]}')
    if not 1 <= value <= LONGEST_SECONDS:
        raise OverrideBodyError(
            f'"for_seconds" must lie in 1 .. {LONGEST_SECONDS:.0f} (7 days), not {str(value)[:40]}; '
            "what is to stay belongs into the policy"
        )
    return float(value)


def _name(value: object) -> str:
    if value is None:
        return "the API"
    if not isinstance(value, str) or not value or len(value) > NAME_LENGTH or not value.isprintable():
        raise OverrideBodyError(f'"by" must be a name of 1 to {NAME_LENGTH} printable characters')
    return value
