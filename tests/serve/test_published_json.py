"""Snapshots told to the other scalers: nothing is lost on the way, and times are told as ages."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.control.model import Decision
from scaler.policy.model import Policy
from scaler.serve.published_json import DETAIL_LENGTH, ENDPOINTS_TOLD, decode, encode
from scaler.serve.snapshot import Snapshot, SourceHealth
from scaler.signals.model import CATALOG, Interval, Known, Latency, NotApplicable, Signals, Stale, Unknown
from tests.serve.tide import SIGNALS, snapshot

#: A quarter of a second is exact in binary: sums and differences of such times are equal, not nearly equal.
times = st.integers(0, 4_000_000).map(lambda quarters: quarters / 4)
numbers = st.floats(allow_nan=False)  # infinities too
texts = st.text(max_size=20)


def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, whatever fields it has by now."""
    arguments = get_args(hint)
    if hint is float:
        return numbers
    if hint is datetime:
        return st.datetimes(timezones=st.just(UTC))
    if hint is str:
        return texts
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if is_dataclass(hint):
        return st.builds(hint, **{name: any_of(kind) for name, kind in get_type_hints(hint).items()})
    if get_origin(hint) is Literal:
        return st.sampled_from(arguments)
    if get_origin(hint) is UnionType:
        return st.one_of(*map(any_of, arguments))
    if get_origin(hint) is tuple:
        of_one = ... in arguments
        return st.lists(any_of(arguments[0]), max_size=3).map(tuple) if of_one else st.tuples(*map(any_of, arguments))
    if arguments and get_origin(hint) is not None:  # a Mapping
        return st.dictionaries(any_of(arguments[0]), any_of(arguments[1]), max_size=3)
    return st.from_type(hint)


def signal_of(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(Known, value, times),
        st.builds(Stale, value, times, numbers),
        st.builds(Unknown, texts),
        st.builds(NotApplicable, texts),
    )


latencies = st.builds(
    Latency,
    *[st.builds(Interval, numbers, numbers)] * 3,
    mean_seconds=numbers,
    samples=numbers,
)
hints = get_type_hints(Signals)
all_signals = st.builds(
    Signals,
    **{name: signal_of(latencies if "Latency" in str(hints[name]) else numbers) for name in CATALOG},
    **{field.name: any_of(hints[field.name]) for field in fields(Signals) if field.name not in CATALOG},
)
policies = st.sampled_from(
    [
        Policy(),
        Policy.model_validate({"engine": "sglang", "replicas": {"max": 3}, "idle": {"timeout_seconds": 5}}),
        Policy.model_validate(
            {"strategy": "stepwise", "jump": {"rows": [{"rate_at_least": 3, "batch": 4, "replicas": 2}]}}
        ),
    ]
)
snapshots = st.builds(
    replace,
    st.just(snapshot()),
    workload=texts,
    policy=policies,
    signals=all_signals,
    decision=any_of(Decision),
    generation=st.integers(0, 2**53),
    valid_until=any_of(datetime),
    health=st.lists(any_of(SourceHealth), max_size=3).map(lambda health: tuple(sorted(health, key=lambda h: h.ok))),
    warnings=st.lists(texts, max_size=3).map(tuple),
    tick_seconds=numbers,
)


def at_rest(snap: Snapshot) -> Snapshot:
    """Without the owner's own clock reading and the weeks it has learned, which are not told."""
    memory = snap.decision.next_memory
    memory = replace(memory, tick_mono=None, season=replace(memory.season, levels=""))
    return replace(snap, decision=replace(snap.decision, next_memory=memory))


@settings(max_examples=60)
@given(snapshots)
def test_what_is_told_is_what_was_decided(snap: Snapshot) -> None:
    assert decode(encode(snap), snap.decided_at.mono) == at_rest(snap)


def test_ages_survive_where_clocks_differ() -> None:
    """Decided at 100 on the owner's clock; on the reader's the same moment is 5000."""
    read = decode(encode(snapshot()), 5000.0)
    assert read.decided_at.mono == 5000.0
    assert read.signals.running == Known(24.0, 4998.0)
    assert read.signals.waiting == Stale(7.0, 4960.0, at_least=2.0)


def test_unknown_and_not_applicable_are_not_confused() -> None:
    """One freezes the idle timer, the other satisfies it."""
    read = decode(encode(snapshot()), 100.0).signals
    assert isinstance(read.gpu_busy_ratio, Unknown)
    assert isinstance(read.e2e_seconds, NotApplicable)


def test_infinity_is_told() -> None:
    read = decode(encode(snapshot(utilisation=math.inf)), 100.0)
    assert read.decision.utilisation == math.inf
    assert isinstance(read.signals.tpot_seconds, Known)
    assert read.signals.tpot_seconds.value.p95.high == math.inf


def test_the_size_does_not_grow_with_what_engines_answer() -> None:
    """The failing endpoints are the ones worth telling."""
    fine = tuple(SourceHealth("scrape", f"http://vllm-{n}:8000/metrics", True, "", 0.01) for n in range(5000))
    broken = SourceHealth("scrape", "http://broken:8000/metrics", False, "x" * 1_000_000, 3.0)
    warned = replace(SIGNALS, warnings=("w" * 1_000_000,) * 1000)
    text = encode(snapshot(health=(*fine, broken), signals=warned, warnings=("c" * 1_000_000,) * 1000))
    assert len(text) < 256 * 1024
    health = decode(text, 100.0).health
    assert len(health) == ENDPOINTS_TOLD
    assert health[0].endpoint == broken.endpoint
    assert len(health[0].detail) == DETAIL_LENGTH


def test_fields_of_a_newer_version_are_ignored() -> None:
    body = json.loads(encode(snapshot()))
    body["decision"]["mood"] = "calm"
    body["signals"]["tides_per_day"] = ["known", 2.0, 0.0]
    body["later"] = True
    assert decode(json.dumps(body), 100.0) == at_rest(snapshot())


@pytest.mark.parametrize("kind", ["reasons", "suppressed"])
def test_a_reason_of_a_newer_version_costs_no_target(kind: str) -> None:
    """In a rolling upgrade: else the scalers of before could not answer KEDA for what a new one owns."""
    body = json.loads(encode(snapshot()))
    new = {"code": "tidal_lock", "target": "replicas", "wanted": 3, "kept": 2}
    body["decision"][kind] = [*body["decision"][kind], new]
    assert decode(json.dumps(body), 100.0) == at_rest(snapshot())


def test_a_signal_that_is_not_told_has_no_source() -> None:
    """Told by an older version, which does not know it."""
    body = json.loads(encode(snapshot()))
    del body["signals"]["kv_use_ratio"]
    assert isinstance(decode(json.dumps(body), 100.0).signals.kv_use_ratio, Unknown)


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: "",
        lambda body: "[]",
        lambda body: "null",
        lambda body: json.dumps(body | {"decision": {}}),
        lambda body: json.dumps(body | {"signals": {"running": ["sometimes", 3]}}),
        lambda body: json.dumps(body | {"signals": {"running": ["known", None, 1]}}),
        lambda body: json.dumps(body | {"policy": "{"}),
        lambda body: json.dumps({key: value for key, value in body.items() if key != "workload"}),
    ],
)
def test_what_cannot_be_meant_is_one_kind_of_error(damage: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the kind is the point
        decode(damage(json.loads(encode(snapshot()))), 100.0)
