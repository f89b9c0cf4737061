"""ScaledObject metadata: a map of texts with KEDA's keys mixed in."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaler.policy.errors import PolicyError
from scaler.policy.keys import KEYS, folded
from scaler.policy.layers import PolicyFile
from scaler.policy.metadata import fingerprint, nearest_key, parse, reference
from scaler.policy.model import Policy

KEDA = {"scalerAddress": "scaler.keda:9090", "enableTLS": "true", "unsafeSsl": "false"}
#: The field case's map, its placeholder keys under their names here.
G1_08 = KEDA | {
    "objectivesTtftSeconds": "5.0",
    "replicasMin": " 0 ",
    "idleTimeoutSeconds": "08",
    "replicasMax": "1e1",
    "pushEnabled": "True",
    "tokenFromEnv": "abc123",
    "objectivsTtftSeconds": "3",
    "scrapeModelName": "",
}


def told(metadata: dict[str, str]) -> tuple[list[str], tuple[str, ...]]:
    """The problems and the warnings of a workload with this metadata."""
    try:
        return [], PolicyFile.empty().resolve("prod/llama", metadata).warnings
    except PolicyError as error:
        return error.problems or ["no problem named"], ()


def refused(metadata: dict[str, str]) -> str:
    with pytest.raises(PolicyError) as caught:
        parse(metadata)
    return str(caught.value)


def test_numbers_and_switches_are_read_as_a_person_means_them() -> None:
    parsed = parse(G1_08)
    assert parsed.overrides == {
        "objectives": {"ttft_seconds": 5.0},
        "replicas": {"min": 0, "max": 10},
        "idle": {"timeout_seconds": 8.0},
        "push": {"enabled": True},
    }
    policy = PolicyFile.empty().resolve("prod/llama", G1_08).policy
    assert (policy.objectives.ttft_seconds, policy.replicas.min, policy.replicas.max) == (5.0, 0, 10)
    assert (policy.idle.timeout_seconds, policy.push.enabled, policy.scrape.model_name) == (8.0, True, None)


def test_an_unknown_key_is_reported_once_with_the_nearest_and_the_object_works() -> None:
    about = [text for text in parse(G1_08).warnings if "objectivsTtft" in text]
    assert about == ['unknown key "objectivsTtftSeconds": did you mean "objectivesTtftSeconds"?']


def test_kedas_own_keys_are_ignored_silently() -> None:
    certificates = {"caCert": "x", "tlsClientCert": "x", "tlsClientKey": "x", "tlsCertFile": "x", "caCertFromEnv": "x"}
    parsed = parse(KEDA | certificates)
    assert (parsed.policy_name, parsed.overrides, parsed.warnings) == (None, {}, ())


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("objectivesTtftSeconds", "five", "a number of seconds above 0"),
        ("idleTimeoutSeconds", "-1", "a number of seconds above 0 and up to 31536000"),
        ("pushEnabled", "maybe", "true or false"),
        ("replicasMax", "2.5", "a whole number from 1 to 100000"),
        ("replicasMax", "0", "a whole number from 1 to 100000"),
        ("replicasMax", "1e999999", "a whole number"),
        ("objectivesMinimumSamples", "1e999999", "a whole number above 0"),
        ("replicasMax", "0x10", "a whole number"),
        ("replicasMax", "1_0", "a whole number"),
        ("replicasMax", "٣", "a whole number"),
        ("replicasMin", "null", "a whole number"),
        ("holdSeconds", "nan", "a number of seconds"),
        ("holdSeconds", "inf", "a number of seconds"),
        ("holdSeconds", "1e999", "a number of seconds"),
        ("holdSeconds", "5m", "a number of seconds"),
        ("strategy", "clever", "one of adaptive, queue, latency, stepwise"),
        ("engine", "v LLM", "a name in lower-case letters"),
        ("scrapeUrls", "vllm:8000", "write for example http://vllm:8000/metrics"),
        ("jumpRows", "50", "a list of mappings with the keys rate_at_least, batch, replicas"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(key: str, value: str, allowed: str) -> None:
    text = refused({key: value, "batchMin": "4"})
    assert key in text
    assert value in text
    assert allowed in text


def test_all_bad_values_are_told_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        parse({"replicasMax": "five", "holdSeconds": "-1", "pushEnabled": "maybe"})
    assert len(caught.value.problems) == 3


SECRET = "hunter2-s3cret"


@pytest.mark.parametrize("key", [key.metadata_name for key in KEYS.values()] + ["policy", "token", "replicaMax"])
def test_the_value_of_a_from_env_key_is_in_no_error_and_no_warning(key: str) -> None:
    problems, warnings = told({f"{key}FromEnv": SECRET})
    assert SECRET not in " ".join([*problems, *warnings])
    assert all(f"{key}FromEnv" in problem for problem in problems)


def test_a_secret_stays_hidden_when_only_the_layers_together_are_wrong() -> None:
    with pytest.raises(PolicyError) as caught:
        PolicyFile.empty().resolve("prod/llama", {"replicasMinFromEnv": "77", "replicasMax": "5"})
    assert "77" not in str(caught.value)
    assert "replicasMinFromEnv" in str(caught.value)
    warned = PolicyFile.empty().resolve("prod/llama", {"capacitySequencesFromEnv": "77", "batchMax": "5"}).warnings
    assert any("capacity.sequences" in text for text in warned)
    assert "77" not in " ".join(warned)


def test_a_structured_secret_stays_hidden() -> None:
    assert SECRET not in refused({"warmWindowsFromEnv": f"[{{start: {SECRET}}}]"})
    assert SECRET not in refused({"jumpRowsFromEnv": f"[*{SECRET}"})


def test_a_from_env_key_means_the_key_before_the_suffix() -> None:
    assert parse({"replicasMaxFromEnv": "7"}).overrides == {"replicas": {"max": 7}}


@pytest.mark.parametrize("key", ["replicas.max", "replicas_max", "REPLICASMAX", "replicas-max", "replicasMax"])
def test_case_dots_dashes_and_underscores_do_not_matter(key: str) -> None:
    assert parse({key: "7"}).overrides == {"replicas": {"max": 7}}


def test_one_key_in_two_spellings_is_refused() -> None:
    text = refused({"replicasMax": "7", "replicas.max": "7"})
    assert '"replicasMax"' in text
    assert '"replicas.max"' in text
    assert parse({"replicasMax": "7", "replicas.max": " "}).overrides == {"replicas": {"max": 7}}


@pytest.mark.parametrize(
    "text", ["http://a:1/m,http://b:1/m", "http://a:1/m \n http://b:1/m", '["http://a:1/m", "http://b:1/m"]',
             "- http://a:1/m\n- http://b:1/m"]
)  # fmt: skip
def test_urls_are_a_list_however_written(text: str) -> None:
    assert parse({"scrapeUrls": text}).overrides == {"scrape": {"urls": ["http://a:1/m", "http://b:1/m"]}}


@pytest.mark.parametrize(
    "text",
    [
        '[{"days": "mon-fri", "start": "22:00", "end": "06:00", "zone": "Europe/Berlin"}]',
        "[{days: mon-fri, start: 22:00, end: 06:00, zone: Europe/Berlin}]",
        "- days: mon-fri\n  start: 22:00\n  end: 06:00\n  zone: Europe/Berlin",
    ],
)
def test_windows_may_be_json_or_yaml(text: str) -> None:
    (window,) = PolicyFile.empty().resolve("a/b", {"warmWindows": text}).policy.warm.windows
    assert (window.days[0], window.start.hour, window.end.hour) == ("mon", 22, 6)


def test_an_error_in_a_structured_value_says_where() -> None:
    text = refused({"warmWindows": "[{start: 08:00, end: 20:00, zone: Europe/Berln}]"})
    assert text.startswith('metadata "warmWindows": at [0].zone: ')
    assert "Europe/Berln" in text
    assert "did you mean" in refused({"jumpRows": "[{rate_at_least: 1, batch: 2, replica: 3}]"})


def test_null_unsets() -> None:
    policy = PolicyFile.empty().resolve("a/b", {"objectivesTtftSeconds": "null"}).policy
    assert policy.objectives.ttft_seconds is None
    assert policy.objectives.tpot_seconds == 0.05


def test_a_map_too_large_is_refused() -> None:
    assert "201 keys" in refused({f"k{index}": "v" for index in range(201)})
    assert "bytes" in refused({"k": "v" * (64 * 1024)})
    parse({f"k{index}": "v" for index in range(200)})


def test_hostile_maps_are_judged_quickly() -> None:
    began = time.monotonic()
    parse({f"replicasMaximum{index}" * 5: "v" for index in range(200)})
    bomb = "&a [x,x,x,x,x,x,x,x]"
    for name in "bcdefghij":
        bomb = f"&{name} [{bomb}" + f",*{chr(ord(name) - 1)}" * 7 + "]"
    assert "values" in refused({"jumpRows": f"[{bomb}]"})
    assert "deeply" in refused({"jumpRows": "[" * 16_000})
    assert time.monotonic() - began < 20


def test_the_fingerprint_tells_two_triggers_apart() -> None:
    one = fingerprint({"replicasMax": "7", "engine": "vllm"} | KEDA)
    assert one == fingerprint({"engine": " vllm ", "replicas.max": "7", "scalerAddress": "elsewhere", "batchMax": ""})
    assert one != fingerprint({"replicasMax": "8", "engine": "vllm"})
    assert one != fingerprint({"engine": "vllm"})
    assert len({fingerprint({"a": "b,c"}), fingerprint({"a": "b", "c": ""}), fingerprint({"a,b": "c"})}) == 3


def test_the_reference_has_every_key_once_with_its_meaning() -> None:
    rows = reference()
    assert len(rows) == len(KEYS) + 1
    assert len({folded(row.metadata_key) for row in rows}) == len(rows)
    assert all(row.meaning and row.range and row.default for row in rows)
    row = next(row for row in rows if row.metadata_key == "replicasMax")
    assert (row.policy_path, row.type, row.default) == ("replicas.max", "whole", "null")
    assert "1 to 100000" in row.range
    names = {row.metadata_key: row.default for row in rows}
    assert names["objectivesTpotCriticalSeconds"] == "0.1 (language models)"
    assert names["objectivesE2eSeconds"] == "2 (other engines)"


def test_every_default_of_the_reference_can_be_written() -> None:
    for key in KEYS.values():
        if key.default is not None and key.default != []:
            text = str(key.default)
            group = parse({key.metadata_name: text}).overrides
            assert Policy.model_validate(group) == Policy()


NAMES = st.sampled_from([row.metadata_key for row in reference()])
VALUES = st.text(max_size=40) | st.sampled_from(
    ["1", "0", "-1", "1e5", "true", "null", "[1]", "{a: 1}", "[{start: 1}]", "a, b", "&a [*a]", '"\\UFFFFFFFF"', "mon"]
)


@settings(max_examples=300)
@given(st.dictionaries(NAMES | st.text(max_size=20) | NAMES.map(lambda name: name + "FromEnv"), VALUES, max_size=8))
@example({"jumpRows": '["\\UFFFFFFFF"]'})
@example({"jumpRows": "%YAML 1"})
@example({"\ud800": "\ud800", "scrapeUrls": "\ud800"})
def test_no_map_of_texts_raises_anything_but_a_policy_error(metadata: dict[str, str]) -> None:
    fingerprint(metadata)
    problems, _ = told(metadata)
    assert all(problem.startswith("metadata ") for problem in problems)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("maxReplicas", "replicasMax"),
        ("minReplica", "replicasMin"),
        ("ttftSecondsObjective", "objectivesTtftSeconds"),
        ("batchMx", "batchMax"),
        ("zzz", None),
    ],
)
def test_the_key_that_was_meant_is_one_of_the_same_words_first(written: str, meant: str | None) -> None:
    assert nearest_key(written) == meant
    assert nearest_key(f"{written}FromEnv") == (f"{meant}FromEnv" if meant else None)


def test_urls_in_errors_are_without_user_password_and_query() -> None:
    said = refused({"scrapeUrls": "ftp://user:hunter2@h:1/m?key=hunter3#x"})
    assert "hunter" not in said
    assert "ftp://h:1/m" in said
