"""Reasons in plain English: every code has words, and the words carry value, unit and threshold."""

from __future__ import annotations

import re

import pytest

from scaler.control.model import Admission, Cause, Code, LoadState, Reason, Suppressed, Target, Targets
from scaler.serve.quantities import compared, duration, number, phrase, plain_value, quantity
from scaler.serve.sentences import sentence, suppressed_sentence
from scaler.serve.words import ADMISSIONS, CAUSES, STATES, WORDINGS
from scaler.signals.model import CATALOG, Interval, Known, Latency, Stale, Unknown

TARGETS = Targets(replicas=2, active=True, batch=32, token_budget=1024, admission=Admission.HOLD)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason(Code.ARRIVALS, Target.REPLICAS, "arrivals_per_second", 3.0), "3 req/s arriving needs 2 replicas"),
        (
            Reason(Code.ARRIVALS, Target.REPLICAS, "arrivals_per_second", 3.0, 1.6),
            "3 req/s arriving needs 2 replicas (one serves 1.6 req/s)",
        ),
        (
            Reason(Code.BACKLOG, Target.REPLICAS, "waiting", 40.0),
            "40 requests waiting: 2 replicas needed to drain that in time",
        ),
        (
            Reason(Code.MEMORY_PRESSURE, Target.BATCH, "kv_use_ratio", 0.97, 0.95),
            "KV use 0.97 is over 0.95: batch halved to 32",
        ),
        (
            Reason(Code.MEMORY_PRESSURE, Target.ADMISSION, "preemptions_recent", 5.0, 0.0),
            "5 requests preempted in the last 15 s: new requests are held back",
        ),
        (
            Reason(Code.LATENCY_CRITICAL, Target.BATCH, "ttft_seconds", 5.6, 5.0),
            "TTFT P95 5.6 s is over 5 s, the critical bound: batch halved to 32",
        ),
        (
            Reason(Code.PREFILL_SHARE, Target.TOKEN_BUDGET, "tpot_seconds", 0.072, 0.05),
            "TPOT P95 72 ms is over 50 ms, long prompts in the way: token budget cut to 1,024",
        ),
        (
            Reason(Code.SIGNAL_LOST, Target.REPLICAS, "running", 40.0, 120.0),
            "running lost for 40 s: holding 2 replicas",
        ),
        (Reason(Code.TRAFFIC, Target.ACTIVE), "there is traffic: active"),
    ],
)
def test_a_reason_reads_as_a_sentence(reason: Reason, said: str) -> None:
    assert sentence(reason, TARGETS, batch_before=64) == said


def test_the_need_is_told_even_where_a_ceiling_keeps_the_target_below_it() -> None:
    reason = Reason(Code.ARRIVALS, Target.REPLICAS, "arrivals_per_second", 9.0)
    assert sentence(reason, TARGETS, need=6) == "9 req/s arriving needs 6 replicas"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason(Code.MEMORY_PRESSURE, Target.BATCH, "kv_use_ratio", 0.97, 0.95), "KV use 0.97 is over 0.95"),
        (Reason(Code.LATENCY_STEP, Target.REPLICAS, "ttft_seconds", 1.4, 1.0), "TTFT P95 1.4 s is over 1 s"),
        (Reason(Code.ARRIVALS, Target.REPLICAS, "arrivals_per_second", 3.0), "3 req/s arriving needs replicas"),
        (Reason(Code.SIGNAL_LOST, Target.REPLICAS, "running", 40.0, 120.0), "running lost for 40 s"),
        (Reason(Code.JUMP, Target.REPLICAS), "the load jumped"),
    ],
)
def test_without_targets_the_cause_alone_is_told(reason: Reason, said: str) -> None:
    assert sentence(reason) == said


def test_a_value_without_a_signal_is_an_outcome_and_is_not_told_as_a_measurement() -> None:
    reason = Reason(Code.RECOVERY, Target.TOKEN_BUDGET, None, 1024.0, 2048.0)
    assert sentence(reason, TARGETS) == "the pressure is over: token budget raised to 1,024"


def test_a_batch_the_engine_keeps_is_not_told_as_a_number() -> None:
    targets = Targets(replicas=1, active=True, batch=None)
    assert sentence(Reason(Code.BATCH_START, Target.BATCH), targets) == "starting value: the engine's own batch"


@pytest.mark.parametrize(
    ("suppressed", "said"),
    [
        (
            Suppressed(Code.COOLDOWN, Target.BATCH, 64, 32, remaining_seconds=41.0),
            "wanted batch 64, kept 32: cooldown has 41 s left",
        ),
        (
            Suppressed(Code.CEILING, Target.REPLICAS, 9, 4, "ceiling", 4.0),
            "wanted 9 replicas, kept 4: the ceiling",
        ),
        (
            Suppressed(Code.DOWN_WINDOW, Target.REPLICAS, 1, 4, "needed_replicas", 4.0, None, 125.0),
            "wanted 1 replica, kept 4: the highest need of the last minutes, 2 min 5 s left",
        ),
        (
            Suppressed(Code.TRIFLE, Target.REPLICAS, 3, 2, "needed_replicas", 2.05, 2.0),
            "wanted 3 replicas, kept 2: 2.05 replicas are needed, and a tenth is left to the room that the others keep "
            "for chance",
        ),
        (
            Suppressed(Code.UNPROVEN, Target.REPLICAS, 3, 7, "running_each", 32.0, 15.0),
            "wanted 3 replicas, kept 7: what a replica serves is a guess, so 15 sequences each are tried before 32",
        ),
        (
            Suppressed(Code.KV_ROOM, Target.BATCH, 64, 32, "kv_use_ratio", 0.9, 0.85),
            "wanted batch 64, kept 32: KV use 0.9 is over 0.85, no room to grow",
        ),
        (
            Suppressed(Code.IDLE_UNPROVEN, Target.ACTIVE, 0, 1, "pending"),
            "wanted zero replicas, kept active: pending is not known, so idleness is not proven",
        ),
        (
            Suppressed(Code.LOADING, Target.REPLICAS, 4, 3, "ttft_seconds", 1.4, 1.0, 30.0),
            "wanted 4 replicas, kept 3: a replica is loading, 30 s left (TTFT P95 1.4 s is over 1 s)",
        ),
        (
            Suppressed(Code.QUEUEING_KEEPS_BATCH, Target.BATCH, None, 32),
            "batch kept at 32: the latency is waiting time, which a smaller batch would only lengthen",
        ),
    ],
)
def test_what_was_held_back_reads_as_a_sentence(suppressed: Suppressed, said: str) -> None:
    assert suppressed_sentence(suppressed) == said


def test_every_code_state_cause_and_admission_has_words() -> None:
    assert set(WORDINGS) == set(Code)
    assert set(STATES) == set(LoadState)
    assert set(CAUSES) == set(Cause)
    assert set(ADMISSIONS) == set(Admission)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize(
    "measured", [(None, None, None), ("kv_use_ratio", 0.97, 0.95), ("utilisation", float("inf"), 1.0)]
)
def test_every_code_is_worded_whatever_it_carries(
    code: Code, target: Target, measured: tuple[str | None, float | None, float | None]
) -> None:
    said = [
        sentence(Reason(code, target, *measured)),
        sentence(Reason(code, target, *measured), TARGETS),
        sentence(Reason(code, target, *measured), Targets(0, False, None)),
        suppressed_sentence(Suppressed(code, target, 64.0, 32.0, *measured, remaining_seconds=41.0)),
        suppressed_sentence(Suppressed(code, target, None, None, *measured)),
    ]
    for text in said:
        assert text == text.strip()
        assert not re.search(r"[{}]|None|nan|  |: ?:|\(\)", text), text
        assert not text.endswith((":", ","))


def test_every_signal_has_a_phrase_with_its_unit() -> None:
    for signal in CATALOG:
        assert number(2.0) in phrase(signal, 2.0)
    assert phrase("generation_tokens_per_second", 812.4) == "812 tokens/s of answers computed"
    assert phrase("kv_capacity_tokens", 458_000) == "KV capacity 458,000 tokens"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.0123, "12.3 ms"),
        (1.4, "1.4 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (4800, "1 h 20 min"),
        (200_000, "2 d"),
    ],
)
def test_a_duration_is_said_in_the_units_a_person_would_use(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_numbers_never_show_an_exponent() -> None:
    assert [number(v) for v in (0, 0.97, 0.0004, 3, 12.34, 99.96, 1e12)] == [
        "0",
        "0.97",
        "0.0004",
        "3",
        "12.3",
        "100",
        "1,000,000,000,000",
    ]


def test_one_is_singular_and_names_that_are_no_signal_still_read() -> None:
    assert quantity("ready_replicas", 1.0) == "1 replica"
    assert quantity("idle_seconds", 90.0) == "1 min 30 s"
    assert compared("utilisation", 1.2, 1.0) == "utilisation 1.2 is over 1"


def test_a_signal_as_one_number_for_a_log_line() -> None:
    p95 = Interval(1.0, 2.0)
    assert plain_value(Known(3.0, 0.0)) == 3
    assert plain_value(Stale(4.0, 0.0)) == 4
    assert plain_value(Known(Latency(p95, p95, p95, 1.2, 30), 0.0)) == 1.5
    assert plain_value(Unknown("no answer")) is None
