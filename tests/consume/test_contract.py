"""The contract with consumers: what is served survives the wire, what cannot be meant is refused, what is old ends."""

from __future__ import annotations

import ast
import contextlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.consume import contract
from scaler.consume.contract import (
    ADMISSIONS,
    LONGEST_WAIT_SECONDS,
    REPORT_BYTES,
    RUNGS,
    AppliedReport,
    ContractError,
    ServedTarget,
    hold,
    parse_report,
    parse_target,
    valid_seconds,
)

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
sizes = st.none() | st.integers(1, 1_000_000)
admissions = st.sampled_from(ADMISSIONS)
targets = st.builds(
    ServedTarget,
    workload=st.just("chat/llama-8b"),
    batch_size=sizes,
    token_budget=sizes,
    admission=admissions,
    generation=st.integers(0, 10**9),
    valid_until=st.integers(0, 10**9).map(lambda milliseconds: START + timedelta(milliseconds=milliseconds)),
    valid_seconds=st.integers(0, 3_600_000).map(lambda milliseconds: milliseconds / 1000),
    state=st.sampled_from(["high", "normal"]),
    queue_limit=sizes,
    workers=sizes,
    rung=st.sampled_from(RUNGS),
    sleep_level=st.none() | st.integers(1, 2),
)
reports = st.builds(
    AppliedReport,
    replica=st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=253),
    batch_size=sizes,
    token_budget=sizes,
    admission=admissions,
    running=st.none() | st.integers(0, 1_000_000),
    generation=st.none() | st.integers(0, 10**9),
    rung=st.none() | st.sampled_from(RUNGS),
    wake_seconds=st.none() | st.floats(0, 86_400),
)


def served(**changes: object) -> str:
    document = ServedTarget("chat/llama-8b", 32, None, "open", 7, START, 55.0, "high").document()
    return json.dumps(document | changes)


@given(targets)
def test_a_target_survives_the_wire(target: ServedTarget) -> None:
    assert parse_target(json.dumps(target.document())) == target


@given(reports)
def test_a_report_survives_the_wire(report: AppliedReport) -> None:
    assert len(report.body()) <= REPORT_BYTES
    assert parse_report(report.body()) == report


def test_a_rung_that_nobody_knows_is_read_as_awake() -> None:
    assert parse_target(served(rung="hibernating")).rung == "awake"


def test_a_report_of_an_engine_without_sleep_is_as_scalers_of_before_take_it() -> None:
    assert set(AppliedReport("a", 8).document()).isdisjoint({"rung", "wake_seconds"})


def test_what_a_later_version_adds_to_a_target_is_ignored() -> None:
    assert parse_target(served(colour="blue")) == parse_target(served())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "must be a JSON object"),
        ("{}", '"batch_size" is missing'),
        (served(batch_size=0), '"batch_size" must lie in 1 .. 1000000, not 0'),
        (served(batch_size=-5), '"batch_size" must lie in 1 .. 1000000, not -5'),
        (served(batch_size=True), '"batch_size" must be a whole number or null, not true'),
        (served(batch_size="32"), '"batch_size" must be a whole number or null, not "32"'),
        (served(batch_size=32.5), '"batch_size" must be a whole number or null, not 32.5'),
        ('{"batch_size": NaN}', "NaN is not a number that can be acted on"),
        (served(token_budget=0), '"token_budget" must lie in'),
        (served(admission="closed"), '"admission" must be one of open, hold, shed, not "closed"'),
        (served(admission=["open"]), '"admission" must be one of open, hold, shed, not ["open"]'),
        (served(valid_until="soon"), '"valid_until" must be a time such as 2026-01-05T09:00:00Z'),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(body: str | bytes, told: str) -> None:
    with pytest.raises(ContractError) as refused:
        parse_target(body)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("{}", '"replica" is missing; send for example'),
        ('{"replica": "a"}', '"batch_size" is missing; send for example'),
        ('{"replica": "", "batch_size": 8}', '"replica" must be the pod\'s name'),
        ('{"replica": 7, "batch_size": 8}', '"replica" must be the pod\'s name'),
        ('{"replica": "a\\nb", "batch_size": 8}', '"replica" must be the pod\'s name'),
        ('{"replica": "a", "batch_size": 8, "bach": 1}', "unknown field 'bach'; the fields are replica, batch_size"),
        ('{"replica": "a", "batch_size": 8, "running": -1}', '"running" must lie in 0 ..'),
        ('{"replica": "a", "batch_size": 8, "rung": "dozing"}', '"rung" must be one of awake, asleep, or null'),
        ('{"replica": "a", "batch_size": 8, "rung": ["asleep"]}', '"rung" must be one of awake, asleep, or null'),
        ('{"replica": "a", "batch_size": 8, "wake_seconds": -1}', '"wake_seconds" must be seconds in 0 .. 86400'),
        ('{"replica": "a", "batch_size": 8, "wake_seconds": true}', '"wake_seconds" must be seconds in 0 .. 86400'),
        (b" " * (REPORT_BYTES + 1), "4096 are the most"),
    ],
)
def test_a_report_that_cannot_be_meant_is_refused(body: str | bytes, told: str) -> None:
    with pytest.raises(ContractError) as refused:
        parse_report(body)
    assert told in str(refused.value)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_nothing_but_a_contract_error_comes_of_rubbish(body: str | bytes) -> None:
    for parse in (parse_target, parse_report):
        with contextlib.suppress(ContractError):
            parse(body)


def test_a_target_is_followed_until_it_ends_by_the_consumer_s_own_clock() -> None:
    held = hold(served(valid_seconds=55.0), '"7-abc"', answered_mono=1000.0)
    assert held.at(1054.9) == held.target
    assert held.at(1055.0) is None
    renewed = held.renewed(valid_seconds("60.000"), answered_mono=1030.0)
    assert renewed.at(1089.9) == held.target
    assert renewed.at(1090.0) is None
    assert renewed.tag == '"7-abc"'


@pytest.mark.parametrize("said", [None, "", "soon", "nan", "-inf", "inf", "-3", []])
def test_a_validity_that_cannot_be_read_is_none(said: object) -> None:
    assert valid_seconds(said) == 0.0


def test_a_target_without_a_validity_is_expired_at_once() -> None:
    assert hold('{"batch_size": 32, "valid_until": "2026-01-05T09:00:00Z"}', "", 1000.0).at(1000.0) is None


@given(st.floats(0.0, 3600.0))
def test_the_next_answer_comes_well_before_the_end(left: float) -> None:
    wait = hold(served(valid_seconds=left), "", 0.0).wait_seconds(0.0)
    assert 1.0 <= wait <= LONGEST_WAIT_SECONDS
    if left >= 3.0:
        assert wait <= left / 3 + 1e-3


def test_an_adapter_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(contract.__file__).read_text(encoding="utf-8"))
    imported = {
        (node.module or "").partition(".")[0] if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names
