"""What a probe makes of a page: every engine's and gateway's, and everything that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy
from scaler.probe.losses import SIGNALS, disabled_by
from scaler.probe.page import look_at_page
from scaler.probe.policy_lines import Declared, prometheus_lines, quoted, scrape_lines, workload_name
from scaler.probe.report import FamilyFound, Report
from scaler.signals.exposition import ExpositionError
from scaler.signals.model import CATALOG
from scaler.signals.preset import FAMILIES, PresetError, known_engines, load_preset
from scaler.signals.window import _SIGNALS_OF  # the fold's own table: ours must not say otherwise
from tests.signals.test_gateway import MATCH, PAGES
from tests.signals.timeline import UNIX

BODIES = Path(__file__).parents[1] / "signals" / "bodies"
URL = "http://engine:8000/metrics"


def body(file: str) -> str:
    return (BODIES / f"{file}.txt").read_text()


def without(text: str, *names: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not any(name in line for name in names))


def looked(text: str, engine: str | None = None, model: str | None = None) -> Report:
    return look_at_page(text, URL, UNIX, engine=engine, model=model)


def family(report: Report, name: str) -> FamilyFound:
    (found,) = [each for each in report.families if each.family == name]
    return found


def policy_of(report: Report) -> Policy:
    """The policy that the lines make; they must be accepted as they stand."""
    file = PolicyFile.parse("lines.yaml", report.policy)
    (name,) = file.workloads
    return file.resolve(name).policy


@pytest.mark.parametrize("file", sorted(path.stem for path in BODIES.glob("*.txt")))
def test_every_engines_page_fits_its_preset_and_ends_in_a_policy_for_it(file: str) -> None:
    engine = file.partition("-")[0]
    report = looked(body(file))
    assert report.usable
    assert report.what == f"a metrics page of engine {engine}"
    assert [each.family for each in report.families] == list(FAMILIES)
    assert not [each for each in report.families if each.status == "missing"]
    lacking = {each.family for each in report.families if each.status == "not applicable"}
    assert lacking >= set(load_preset(engine).not_applicable) - {"gpu_memory_free"}
    policy = policy_of(report)
    assert (policy.engine, policy.scrape.urls) == (engine, (URL,))
    assert "# batch: {max: 64}" in report.policy


def test_the_alias_that_matched_and_what_it_says_are_told() -> None:
    report = looked(body("vllm-0.32-load"))
    assert family(report, "waiting") == FamilyFound("waiting", "found", "vllm:num_requests_waiting", "56")
    assert family(report, "ttft").value == "174 samples, mean 0.57 s"
    old = body("vllm-0.32-load").replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    assert family(looked(old), "kv_use").name == "vllm:gpu_cache_usage_perc"
    estimated = family(looked(body("triton")), "running")
    assert (estimated.status, estimated.name) == ("estimated", "nv_inference_compute_infer_duration_us")


def test_what_is_missing_and_what_that_disables_is_told() -> None:
    report = looked(without(body("vllm-0.32-load"), "vllm:num_requests_running", "vllm:kv_cache_usage_perc"))
    assert report.usable
    assert family(report, "running").status == "missing"
    assert family(report, "running").note == "disables replicas down, zero"
    assert family(report, "kv_use").note == "disables batch cut by memory"
    assert "no KV-cache use in the metrics; batch adaptation by memory pauses" in report.warnings


def test_an_idle_engine_has_nothing_yet_and_misses_nothing() -> None:
    idle = 'sglang:max_total_num_tokens{model_name="m"} 100000\n'
    report = looked(idle)
    assert report.what == "a metrics page of engine sglang"
    assert {each.status for each in report.families} == {"found", "nothing yet", "not applicable"}


def test_engines_and_rank_copies_of_one_page_are_told_apart() -> None:
    facts = "\n".join(looked(body("sglang")).facts)
    assert "2 engines in one replica (dp_rank = 0, 1)" in facts
    assert "2 copies by tp_rank (0, 4): they count once" in facts


def test_several_models_are_told_and_the_policy_chooses_one() -> None:
    both = body("vllm-0.32-load") + without(body("vllm-0.32-load"), "#", "process_").replace('"tiny"', '"zeta"')
    report = looked(both)
    assert "models (model_name): tiny, zeta" in report.facts
    assert any("2 models share the endpoint" in warning for warning in report.warnings)
    assert policy_of(report).scrape.model_name == "tiny"
    one = looked(both, model="zeta")
    assert policy_of(one).scrape.model_name == "zeta"
    assert not any("share the endpoint" in warning for warning in one.warnings)
    wrong = looked(both, model="gone")
    assert (wrong.usable, wrong.policy) == (False, "")
    assert 'the models that are there: "tiny", "zeta"' in " ".join(wrong.warnings)


def test_time_stamps_give_ages() -> None:
    stamped = f'vllm:num_requests_running{{model_name="m"}} 3 {(UNIX - 12) * 1000:.0f}\n'
    report = looked(stamped)
    assert family(report, "running").age_seconds == pytest.approx(12)
    assert "samples carry time stamps: the oldest is 12 s old" in report.facts


def test_a_nan_is_there_but_not_usable() -> None:
    report = looked(
        body("vllm-0.32-load").replace("vllm:kv_cache_usage_perc{", 'vllm:kv_cache_usage_perc{x="1",')
        + 'vllm:kv_cache_usage_perc{model_name="tiny"} NaN\n'
    )
    assert family(report, "kv_use").note == "there, but not usable; disables batch cut by memory"
    assert any("kv_use" in warning and "unknown" in warning for warning in report.warnings)


def test_the_wrong_engine_is_said_with_the_right_one() -> None:
    report = looked(body("vllm-0.32-load"), engine="tgi")
    assert not report.usable
    assert "it fits engine vllm (18 of 18 families); leave --engine out to see it" in report.warnings
    partly = looked(body("trtllm"), engine="triton")
    assert partly.usable
    assert any("fits trtllm" in warning for warning in partly.warnings)
    with pytest.raises(PresetError, match="write one of"):
        looked(body("tgi"), engine="gpt")


@pytest.mark.parametrize("gateway", sorted(PAGES))
def test_every_gateways_page_fits_its_preset_and_ends_in_a_policy_for_it(gateway: str) -> None:
    report = looked(PAGES[gateway])
    assert report.usable
    assert report.what == f"a metrics page of gateway {gateway}"
    policy = policy_of(report)
    assert (policy.gateway.preset, policy.gateway.urls) == (gateway, (URL,))
    assert {*policy.gateway.match} <= {*MATCH[gateway]}
    assert {each.status for each in report.families} <= {"found", "not applicable"}


def test_a_dcgm_exporter_ends_in_a_policy_too() -> None:
    page = (
        'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",modelName="H100",namespace="chat",pod="a"} 50\n'
        'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-2",modelName="H100",namespace="chat",pod="b"} 60\n'
    )
    report = looked(page)
    assert "2 GPUs or MIG instances: H100" in report.facts
    assert "held by pods: chat/a, chat/b" in report.facts
    assert policy_of(report).gpu.dcgm_urls == (URL,)


@pytest.mark.parametrize("text", ["", "<!doctype html><html></html>\n", "vllm:num_requests_running 1"])
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(ExpositionError):
        looked(text)


def test_a_page_of_nothing_known_says_what_it_holds() -> None:
    report = looked("prometheus_tsdb_head_series 5\nprometheus_build_info 1\ngo_goroutines 3\n")
    assert (report.usable, report.policy) == (False, "")
    assert "it holds 3 metrics: prometheus_*, go_*" in report.facts
    assert not looked('kube_deployment_spec_replicas{namespace="a",deployment="b"} 1\n').usable


# What is written down elsewhere too


def test_losses_cover_every_family_and_agree_with_the_fold() -> None:
    assert set(SIGNALS) == set(FAMILIES)
    assert {name for names in SIGNALS.values() for name in names} <= set(CATALOG)
    for key, signals in _SIGNALS_OF.items():
        if key in SIGNALS:
            assert SIGNALS[key] == signals
    assert all(disabled_by(key) for key in FAMILIES if key != "kv_capacity_tokens")


@given(st.text(max_size=80), st.text(max_size=80))
def test_policy_lines_are_accepted_whatever_a_label_holds(model: str, other: str) -> None:
    model = model or "m"
    file = PolicyFile.parse("p.yaml", scrape_lines(URL, "vllm", [model, other], model))
    assert file.resolve(file.workloads[0]).policy.scrape.model_name == model
    match = {"namespace": other or "n", "model_name": model}
    sent = {"Authorization": "Bearer s", "X-Scope-OrgID": "chat"}
    text = prometheus_lines("http://prometheus:9090", sent, [Declared("vllm", match)] * 3, 7)
    file = PolicyFile.parse("p.yaml", text)
    assert len(file.workloads) == 3
    assert all(dict(file.resolve(name).policy.prometheus.match) == match for name in file.workloads)


def test_the_gpus_of_a_prometheus_are_declared_where_its_series_tell_whose_they_are() -> None:
    match = {"namespace": "chat", "model_name": "m"}
    told, untold, none = (
        prometheus_lines("http://prometheus:9090", {}, [Declared("vllm", match, gpus_told=each)], 0)
        for each in (True, False, None)
    )
    assert PolicyFile.parse("p.yaml", told).resolve("chat/m").policy.gpu.source == "main"
    assert PolicyFile.parse("p.yaml", untold).resolve("chat/m").policy.gpu.source is None
    assert "# gpu: {source: main, match: {LABEL: VALUE}}" in untold
    assert "gpu:" not in none


@pytest.mark.parametrize("engine", known_engines())
def test_every_engine_has_a_flag_for_its_batch(engine: str) -> None:
    assert "the engine's own cap" not in scrape_lines(URL, engine, [], None)


def test_names_of_workloads_are_such() -> None:
    assert workload_name("Chat", "org/Llama-3.1_8B") == "chat/llama-3-1-8b"
    assert workload_name("", "") == "default/my-model"
    assert workload_name("a", "m", ["a/m"]) == "a/m-2"
    assert quoted("😀\x00") == '"😀\\u0000"'
