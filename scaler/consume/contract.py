"""The contract with whoever makes an engine follow a published target: what is served, and what is reported back.

``GET /v1/workloads/{namespace}/{name}/target`` serves a :class:`ServedTarget`. A consumer holds it as a
:class:`HeldTarget`: it asks again with ``If-None-Match`` and ``?wait=``, each answer (304 too) renews it, and when it
ends without another the engine goes back to its own setting. ``POST .../applied`` takes an :class:`AppliedReport` per
replica, every :data:`REPORT_EVERY_SECONDS` and at once when something changed; one that is not renewed is forgotten
after :data:`REPORT_LASTS_SECONDS`.

Time is counted in seconds *left* as the scaler says them, from the moment of its answer and on the consumer's monotonic
clock: the engine's node may have another time of day than the scaler's. ``valid_until`` is for people.

Pure values and the standard library only, so that an adapter needs nothing else of loadtide.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn, cast, get_args

Admission = Literal["open", "hold", "shed"]
"""What the engine does with new requests: takes them, keeps them waiting, or refuses them."""
ADMISSIONS: tuple[Admission, ...] = get_args(Admission)
Rung = Literal["awake", "asleep"]
"""How warm the engine is: asleep, its process lives and its model is off the GPU."""
RUNGS: tuple[Rung, ...] = get_args(Rung)

#: How often a consumer reports what it applied, changed or not.
REPORT_EVERY_SECONDS = 10.0
#: A replica not heard for so long is gone, or its consumer is: four reports.
REPORT_LASTS_SECONDS = 45.0
#: The longest report that is taken, bytes. An honest one has 200.
REPORT_BYTES = 4096
#: The longest name of a replica: that of a pod.
REPLICA_LENGTH = 253
#: No engine runs more sequences, nor computes more tokens in a step; a greater number is a mistake.
MOST_SEQUENCES, MOST_TOKENS = 1_000_000, 1_000_000_000
#: The longest that a consumer lets one request for a target wait. Below the idle limits of common proxies.
LONGEST_WAIT_SECONDS = 30.0

#: Of the answer with a target, and of 304: for how much longer it may be used.
VALID_SECONDS_HEADER = "Loadtide-Valid-Seconds"
#: The same as a time of day, for people.
VALID_UNTIL_HEADER = "Loadtide-Valid-Until"

_REPORT_FIELDS = ("replica", "batch_size", "token_budget", "admission", "running", "generation", "rung", "wake_seconds")
#: Said where there is something to say only: a scaler of before them refuses a field that it does not know.
_LATER_FIELDS = ("rung", "wake_seconds")
_EXAMPLE = '{"replica": "chat-0", "batch_size": 32, "admission": "open", "generation": 7}'


class ContractError(ValueError):
    """A body that cannot be meant; the text says what is wrong and what to send or serve instead."""


@dataclass(frozen=True, slots=True)
class ServedTarget:
    """What an engine should run, as served.

    ``batch_size`` (sequences at once) and ``token_budget`` (tokens per engine step) are None where the engine keeps its
    own setting. ``queue_limit`` (requests waiting in one replica) and ``workers`` (connections or threads towards it)
    go with the batch, for whoever sends requests; None: nothing to say. ``generation`` rises whenever any of it
    changes. ``valid_seconds`` is how much longer the target may be used, counted from the answer; 0.0: no longer.
    ``state`` is the load state, for logs. ``rung``: whether the engine should be awake or asleep, and ``sleep_level``
    how deep (None while it should be awake).
    """

    workload: str
    batch_size: int | None
    token_budget: int | None
    admission: Admission
    generation: int
    valid_until: datetime
    valid_seconds: float
    state: str = "unknown"
    queue_limit: int | None = None
    workers: int | None = None
    rung: Rung = "awake"
    sleep_level: int | None = None

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "workload": self.workload,
            "batch_size": self.batch_size,
            "token_budget": self.token_budget,
            "admission": self.admission,
            "queue_limit": self.queue_limit,
            "workers": self.workers,
            "rung": self.rung,
            "sleep_level": self.sleep_level,
            "generation": self.generation,
            "valid_until": _instant(self.valid_until),
            "valid_seconds": round(self.valid_seconds, 3),
            "state": self.state,
        }


def parse_target(body: bytes | str) -> ServedTarget:
    """The target in ``body``. Fields that a later version adds are ignored. Raises :class:`ContractError`."""
    document = _object(body, "a target")
    if "batch_size" not in document:
        raise ContractError('"batch_size" is missing: this is no answer of /v1/workloads/{namespace}/{name}/target')
    return ServedTarget(
        workload=str(document.get("workload", "")),
        batch_size=_count("batch_size", document["batch_size"], 1, MOST_SEQUENCES),
        token_budget=_count("token_budget", document.get("token_budget"), 1, MOST_TOKENS),
        admission=_admission(document.get("admission", "open")),
        generation=_count("generation", document.get("generation"), 0) or 0,
        valid_until=_moment(document.get("valid_until")),
        valid_seconds=valid_seconds(document.get("valid_seconds")),
        state=str(document.get("state", "unknown")),
        queue_limit=_count("queue_limit", document.get("queue_limit"), 1, MOST_SEQUENCES),
        workers=_count("workers", document.get("workers"), 1, MOST_SEQUENCES),
        rung="asleep" if document.get("rung") == "asleep" else "awake",  # a word of a later version: rather awake
        sleep_level=_count("sleep_level", document.get("sleep_level"), 1),
    )


def valid_seconds(value: object) -> float:
    """The seconds in a ``valid_seconds`` field or a ``Loadtide-Valid-Seconds`` header. What cannot be read, or is
    not there, is 0.0: a target nobody vouches for is not used. An hour at most.
    """
    try:
        seconds = float(cast(Any, value))
    except (TypeError, ValueError):
        return 0.0
    return min(max(seconds, 0.0), 3600.0) if math.isfinite(seconds) else 0.0


@dataclass(frozen=True, slots=True)
class HeldTarget:
    """The target a consumer holds. ``tag``: its ETag; ``ends_mono``: when it ends by the consumer's monotonic clock."""

    target: ServedTarget
    tag: str
    ends_mono: float

    def renewed(self, seconds: float, answered_mono: float) -> HeldTarget:
        """After ``304 Not Modified`` with ``Loadtide-Valid-Seconds: seconds``, answered at ``answered_mono``."""
        return replace(self, ends_mono=answered_mono + seconds)

    def at(self, mono: float) -> ServedTarget | None:
        """The target to follow at ``mono``; None once it has expired: the engine goes back to its own setting."""
        return self.target if mono < self.ends_mono else None

    def wait_seconds(self, mono: float) -> float:
        """For how long the next request may wait (``?wait=``) so that its answer comes well before the end."""
        return min(max((self.ends_mono - mono) / 3.0, 1.0), LONGEST_WAIT_SECONDS)


def hold(body: bytes | str, tag: str, answered_mono: float) -> HeldTarget:
    """The target of an answer ``200 OK`` with ``ETag: tag``, answered at ``answered_mono``. Raises ContractError."""
    target = parse_target(body)
    return HeldTarget(target, tag, answered_mono + target.valid_seconds)


@dataclass(frozen=True, slots=True)
class AppliedReport:
    """What one replica really runs with.

    ``replica`` is the pod's name. ``batch_size``: the most sequences the engine lets run now, whoever set it; None
    where the engine does not tell. ``token_budget`` and ``admission`` likewise. ``running``: sequences running now.
    ``generation``: that of the target it follows; None while it runs its own setting. ``rung``: as the engine itself
    says it; None where it knows no sleep. ``wake_seconds``: how long its last wake took, None before there was one.
    """

    replica: str
    batch_size: int | None
    token_budget: int | None = None
    admission: Admission = "open"
    running: int | None = None
    generation: int | None = None
    rung: Rung | None = None
    wake_seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        values = {name: getattr(self, name) for name in _REPORT_FIELDS}
        return {name: value for name, value in values.items() if value is not None or name not in _LATER_FIELDS}

    def body(self) -> bytes:
        """As the body of ``POST .../applied``."""
        return json.dumps(self.document(), separators=(",", ":")).encode()


def parse_report(body: bytes | str) -> AppliedReport:
    """The report in ``body``, from a caller we do not trust to be right. Raises :class:`ContractError`."""
    if len(body) > REPORT_BYTES:
        raise ContractError(f"the report has {len(body)} bytes; {REPORT_BYTES} are the most. One replica a report")
    document = _object(body, "a report")
    unknown = [name for name in document if name not in _REPORT_FIELDS]
    if unknown:
        raise ContractError(f"unknown field {unknown[0][:80]!r}; the fields are {', '.join(_REPORT_FIELDS)}")
    for name in ("replica", "batch_size"):
        if name not in document:
            raise ContractError(f'"{name}" is missing; send for example {_EXAMPLE}')
    return AppliedReport(
        replica=_replica(document["replica"]),
        batch_size=_count("batch_size", document["batch_size"], 1, MOST_SEQUENCES),
        token_budget=_count("token_budget", document.get("token_budget"), 1, MOST_TOKENS),
        admission=_admission(document.get("admission", "open")),
        running=_count("running", document.get("running"), 0, MOST_SEQUENCES),
        generation=_count("generation", document.get("generation"), 0),
        rung=_rung(document.get("rung")),
        wake_seconds=_seconds("wake_seconds", document.get("wake_seconds")),
    )


def _object(body: bytes | str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise ContractError("the JSON is nested too deeply; send one flat object") from None
    except ValueError as error:
        if isinstance(error, ContractError):
            raise
        raise ContractError(f"the body is not JSON ({error}); {what} is for example {_EXAMPLE}") from None
    if not isinstance(document, dict):
        raise ContractError(f"the body must be a JSON object; {what} is for example {_EXAMPLE}")
    return document


def _no_constant(word: str) -> NoReturn:
    raise ContractError(f"{word} is not a number that can be acted on; send null where it is not known")


def _count(name: str, value: object, least: int, most: int = 2**53) -> int | None:
    """A whole number, or None for null. Not a switch in disguise (``true`` would read as 1), not 32.5."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ContractError(f'"{name}" must be a whole number or null, not {json.dumps(value)[:40]}')
    if not least <= value <= most:
        raise ContractError(f'"{name}" must lie in {least} .. {most}, not {str(value)[:40]}')
    return value


def _rung(value: object) -> Rung | None:
    if value is not None and value not in RUNGS:
        raise ContractError(f'"rung" must be one of {", ".join(RUNGS)}, or null, not {json.dumps(value)[:40]}')
    return value


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise ContractError(f'"{name}" must be seconds in 0 .. 86400 or null, not {json.dumps(value)[:40]}')
    return float(value)


def _admission(value: object) -> Admission:
    if value not in ADMISSIONS:
        raise ContractError(f'"admission" must be one of {", ".join(ADMISSIONS)}, not {json.dumps(value)[:40]}')
    return value


def _replica(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= REPLICA_LENGTH or not value.isprintable():
        raise ContractError(f'"replica" must be the pod\'s name: 1 to {REPLICA_LENGTH} printable characters')
    return value


def _moment(value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise ContractError(f'"valid_until" must be a time such as 2026-01-05T09:00:00Z, not {value!r:.60}') from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _instant(moment: datetime) -> str:
    """RFC 3339 in UTC, milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
