"""Snapshots as JSON: every status told as it is, and nothing that JSON has no word for."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.model import Memory, Mode, Override, Rung, Targets
from scaler.policy.model import Idle
from scaler.serve.decision_document import adjustment
from scaler.serve.render import endpoint_label, served_target, workload_detail, workload_summary
from scaler.signals.model import CATALOG, Applied, Known, Signals
from tests.serve.tide import POLICY, SIGNALS, START, FakeWorkloads, adjusted, snapshot


def detail(**changes: Any) -> dict[str, Any]:
    workload = FakeWorkloads().add("team-a/chat", snapshot(**changes))
    document = workload_detail(workload, 101.0, current=True)
    json.dumps(document, allow_nan=False)  # no infinity, no NaN, nothing but plain values
    return document


def test_a_signal_is_told_by_its_status() -> None:
    signals = {signal["signal"]: signal for signal in detail()["signals"]}
    assert list(signals) == list(CATALOG)
    assert signals["arrivals_per_second"] == {
        "signal": "arrivals_per_second",
        "meaning": "requests arriving, over the window",
        "unit": "req/s",
        "required_for": ["replicas down", "zero"],
        "status": "known",
        "value": 3.0,
        "latency": None,
        "age_seconds": 3.0,
        "reason": None,
    }
    assert (signals["waiting"]["status"], signals["waiting"]["value"], signals["waiting"]["age_seconds"]) == (
        "stale",
        7,
        41,
    )
    unknown = signals["gpu_busy_ratio"]
    assert (unknown["status"], unknown["value"], unknown["reason"]) == ("unknown", None, "no source gives this signal")
    absent = signals["e2e_seconds"]
    assert (absent["status"], absent["latency"], absent["reason"]) == (
        "not_applicable",
        None,
        "no requests in the window",
    )


def test_a_quantile_is_an_interval_with_no_upper_bound_beyond_the_last_bucket() -> None:
    signals = {signal["signal"]: signal for signal in detail()["signals"]}
    assert signals["ttft_seconds"]["latency"]["p95"] == {"low": 2.5, "high": 5.0, "estimate": 3.75}
    assert signals["tpot_seconds"]["latency"]["p95"] == {"low": 0.04, "high": None, "estimate": 0.04}


def test_infinity_and_nan_are_null() -> None:
    document = detail(
        utilisation=float("inf"),
        capacity=CapacityEstimate(float("nan"), float("inf"), "prior"),
        signals=Signals(running=Known(float("nan"), 98.0)),
    )
    assert document["utilisation"] is None
    assert document["capacity"] == {
        "sequences": None,
        "requests_per_second": None,
        "source": "prior",
        "assumed": True,
        "measured": {"low": None, "high": None},
        "windows": 0,
        "load_share": 0.75,
        "loaded_sequences": None,
    }
    assert document["cold_start"] == {
        "expected_seconds": 60,
        "warm": {"p50_seconds": 60, "p95_seconds": 60},
        "new": {},
    }


def test_reasons_are_data_and_a_sentence() -> None:
    assert detail()["reasons"][0] == {
        "code": "memory_pressure",
        "target": "batch",
        "signal": "kv_use_ratio",
        "value": 0.97,
        "threshold": 0.95,
        "sentence": "KV use 0.97 is over 0.95: batch cut to 32",
    }


def test_objectives_stand_beside_their_p95() -> None:
    ttft, tpot = detail()["objectives"]
    assert ttft == {
        "objective": "ttft",
        "warning_seconds": 1.0,
        "critical_seconds": 5.0,
        "verdict": "breached",
        "critical_verdict": "met",
        "status": "known",
        "p95": {"low": 2.5, "high": 5.0, "estimate": 3.75},
    }
    assert (tpot["objective"], tpot["critical_seconds"], tpot["critical_verdict"]) == ("tpot", None, None)


def test_a_target_names_only_what_an_engine_needs() -> None:
    assert served_target(snapshot(targets=Targets(2, True, None)), mono=112.5).document() == {
        "workload": "team-a/chat",
        "batch_size": None,
        "token_budget": None,
        "admission": "open",
        "queue_limit": None,
        "workers": None,
        "rung": "awake",
        "sleep_level": None,
        "generation": 7,
        "valid_until": "2025-03-03T09:01:00.000Z",
        "valid_seconds": 47.5,
        "state": "critical",
    }


def test_a_target_of_sleepers_says_how_deep() -> None:
    policy = POLICY.model_copy(update={"idle": Idle(sleep_after_seconds=300, sleep_level=2)})
    document = served_target(snapshot(targets=Targets(1, True, None, rung=Rung.ASLEEP), policy=policy), mono=112.5)
    assert (document.rung, document.sleep_level) == ("asleep", 2)


def test_a_wake_stands_beside_a_cold_start() -> None:
    memory = Memory(asleep_seconds=60.0, woken_seconds=3.5, loaded_seconds=140.0)
    applied = (Applied("a", 1.0, None, rung="awake", wake_seconds=2.0), Applied("b", 1.0, None, wake_seconds=2.5))
    sleep = detail(next_memory=memory, asleep=1, signals=replace(SIGNALS, applied=applied))["sleep"]
    assert sleep == {
        "level": 1,
        "asleep_replicas": 1,
        "asleep_seconds": 60.0,
        "waking_seconds": None,
        "wake_seconds": 3.5,
        "engines_wake_seconds": 2.5,
        "cold_start_seconds": 140.0,
        "declared_cold_start_seconds": 120.0,
    }


def test_a_target_that_nobody_renewed_is_valid_no_longer() -> None:
    assert served_target(snapshot(), mono=160.0).valid_seconds == 0.0
    assert served_target(snapshot(), mono=99.0).valid_seconds == 60.0  # a copy decided "after" now is not younger


def test_an_adjustment_says_from_what_to_what_and_by_how_much() -> None:
    document = adjustment(adjusted(snapshot()))
    json.dumps(document, allow_nan=False)
    assert document["at"] == "2025-03-03T09:00:00.000Z"
    assert document["changes"] == [{"what": "batch", "from": 64, "to": 32}]
    assert document["reasons"][0]["sentence"] == "KV use 0.97 is over 0.95: batch halved to 32"
    assert document["signals"][2] == {"signal": "gpu_busy_ratio", "status": "unknown", "value": None, "unit": "0..1"}


def test_who_rules_stands_beside_what_the_laws_would_tell() -> None:
    assert (detail()["mode"], detail()["override"], detail()["advised"]) == ("active", None, None)
    memory = Memory(override=Override(5, None, START + timedelta(minutes=5), "ana"))
    document = detail(mode=Mode.OVERRIDE, advised=Targets(1, True, None), next_memory=memory)
    assert (document["mode"], document["mode_words"]) == ("override", "an operator's override rules")
    assert document["override"]["remaining_seconds"] == 300
    assert document["advised"] == {
        "replicas": 1,
        "active": True,
        "batch_size": None,
        "token_budget": None,
        "admission": "open",
    }


def test_before_the_first_tick_nothing_is_made_up() -> None:
    workload = FakeWorkloads().add("team-a/chat")
    summary = workload_summary(workload, 101.0, current=False)
    assert (summary["state"], summary["decided_at"], summary["batch_size"]) == ("unknown", None, None)
    assert set(summary["replicas"].values()) == {None}
    ticked = FakeWorkloads().add("team-a/chat", snapshot())
    assert set(summary) == set(workload_summary(ticked, 101.0, current=True))


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("http://vllm:8000/metrics", "http://vllm:8000/metrics"),
        ("https://user:secret@vllm/metrics?token=secret#x", "https://vllm/metrics"),
        ("http://[fd00::1]:8000/metrics", "http://[fd00::1]:8000/metrics"),
        ("http://[broken", "unreadable"),
        ("pod-a", "pod-a"),
    ],
)
def test_an_endpoint_is_shown_without_what_may_be_secret(endpoint: str, shown: str) -> None:
    assert endpoint_label(endpoint) == shown


def test_a_document_says_in_words_what_stands_and_what_to_do() -> None:
    """The page shows these sentences; only the server words them."""
    workload = FakeWorkloads().add("team-a/chat", snapshot())
    document = workload_detail(workload, 101.0, current=True)
    told = {each["about"]: each["sentence"] for each in document["standing"]}
    assert told["cold start"].startswith("the next replica is expected to take 1 min; measured")
    assert told.keys() == {"cold start", "season"}, "no sleep, price or budget is declared"
    assert any("replicas.max" in sentence for sentence in document["advice"]), "it is held at its ceiling"
    unread = workload_detail(FakeWorkloads().add("team-a/new"), 101.0, current=True)
    assert unread["standing"] == []
    assert unread["advice"] == ["ask again in a few seconds: the first tick is being made"]
