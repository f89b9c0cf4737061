"""Every engine's preset on a page of that engine, and what the fold makes of engines that lack something.

The pages in ``bodies`` with a version in their name were written by that version: vLLM's and Ray Serve's at work,
LMDeploy's by its metrics code alone. The others are written by hand after the engines' own source and docs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scaler.signals.exposition import ExpositionError
from scaler.signals.model import Known, NotApplicable, Signals, Unknown, known_value
from scaler.signals.observation import EngineSample
from scaler.signals.preset import load_preset
from scaler.signals.reading import read_engine
from tests.signals.timeline import UNIX, Timeline, down, pod

BODIES = Path(__file__).parent / "bodies"
HANDWRITTEN = ("llamacpp", "lmdeploy", "rayserve", "sglang", "tgi", "triton", "trtllm")


def page(engine: str, body: str | None = None, model_name: str | None = None) -> EngineSample:
    text = (BODIES / f"{engine}.txt").read_text() if body is None else body
    return read_engine(text, load_preset(engine), 0.0, model_name=model_name, now_unix=UNIX, seconds=0.1)


def folded(*pages: EngineSample, seconds: float = 30.0) -> Signals:
    """The signals after these pages of one endpoint, ``seconds`` apart."""
    line = Timeline(interval_seconds=seconds)
    return [line.at(number * seconds, a=each) for number, each in enumerate(pages)][-1]


@pytest.mark.parametrize("engine", HANDWRITTEN)
def test_a_page_of_the_engine_gives_every_family_of_its_preset(engine: str) -> None:
    sample = page(engine, model_name="Model" if engine == "rayserve" else None)
    estimated = {"running"} if engine == "triton" else set()
    told = {*sample.gauges, *sample.counters, *sample.histograms} - {"kv_use_mean", "running_seconds"}
    assert told == set(load_preset(engine).families) - estimated
    assert all(sample.histograms.values())
    assert len(sample.warnings) == len(estimated)


def test_a_real_page_of_ray_serve_is_read_as_what_was_asked_of_it() -> None:
    """16 clients, two replicas that take two each; of 64 answered requests, 6 were made to fail."""
    sample = page("rayserve", (BODIES / "rayserve-2.60.txt").read_text(), "Model")
    assert sample.gauges == {"running": 4.0, "waiting": 12.0}
    assert sum(sample.counters["finished"].values()) == 64.0
    assert sum(each.count for each in sample.histograms["e2e"].values()) == 64.0
    assert not sample.warnings


def test_what_lmdeploys_own_code_exposes_is_read_as_what_it_was_given() -> None:
    """16 running, 8 waiting in the engine and 3 before it; two tokens came with each output after the first."""
    sample = page("lmdeploy", (BODIES / "lmdeploy-0.16.txt").read_text())
    assert (sample.gauges["running"], sample.gauges["waiting"], sample.gauges["kv_use"]) == (16.0, 11.0, 0.62)
    told = {*sample.gauges, *sample.counters, *sample.histograms} - {"kv_use_mean"}
    assert told == set(load_preset("lmdeploy").families)
    assert sum(sample.counters["finished"].values()) == 90.0
    (per_token,) = sample.histograms["tpot"].values()
    assert 0.01 < per_token.sum / per_token.count < 0.025  # each gap was of 20 to 50 ms
    assert not sample.warnings


def test_a_real_page_of_triton_is_read_as_what_was_asked_of_it() -> None:
    """Of 155 requests 16 found the queue full, which it counts nowhere; 3 failed and 136 were answered."""
    sample = page("triton", (BODIES / "triton-2.51.txt").read_text())
    assert sample.gauges == {"waiting": 8.0}
    assert sum(sample.counters["finished"].values()) == 139.0
    (whole,) = sample.histograms["e2e"].values()
    assert (whole.count, round(whole.sum, 2)) == (136.0, 60.04)
    assert sample.warnings == ("running is estimated from nv_inference_compute_infer_duration_us",)


@pytest.mark.parametrize("engine", [*HANDWRITTEN, "vllm"])
def test_the_wrong_engines_name_is_refused_and_the_prefix_of_the_right_one_is_named(engine: str) -> None:
    body = (BODIES / ("vllm-0.32-idle.txt" if engine == "vllm" else f"{engine}.txt")).read_text()
    prefix = {"llamacpp": "llamacpp:", "rayserve": "ray_", "triton": "nv_", "trtllm": "nv_"}
    other = "tgi" if engine != "tgi" else "vllm"
    with pytest.raises(ExpositionError, match=f"{prefix.get(engine, engine)}.*is engine: {other} right"):
        page(other, body)


# What an engine does not have


def test_what_the_engine_lacks_is_not_applicable_with_its_name_and_never_zero() -> None:
    signals = folded(page("tgi"), page("tgi"))
    assert signals.ttft_seconds == NotApplicable("engine tgi: it measures no time to the first token")
    assert isinstance(signals.kv_use_ratio, NotApplicable)
    assert isinstance(signals.kv_use_mean_ratio, NotApplicable)
    assert isinstance(signals.preemptions_recent, NotApplicable)
    assert known_value(signals.waiting) == 6.0


def test_an_engine_that_counts_no_requests_has_no_arrivals_and_can_still_be_proven_quiet() -> None:
    idle = pod(running=0, waiting=0, prompt_tokens=5, generation_tokens=5, steps=3)
    idle = replace(idle, not_applicable=load_preset("llamacpp").not_applicable)
    signals = folded(idle, idle)
    assert signals.arrivals_last_per_second == NotApplicable("engine llamacpp: it counts no requests")
    assert isinstance(signals.finished_per_second, NotApplicable)
    assert (signals.running, signals.waiting) == (Known(0.0, 30), Known(0.0, 30))
    assert not signals.counters_moved
    assert folded(idle, replace(idle, counters={**idle.counters, "generation_tokens": {"": 9.0}})).counters_moved


def test_what_only_one_of_two_engines_lacks_is_not_lacking() -> None:
    lacking = replace(pod(running=1), not_applicable={"kv_use": "engine x: none"})
    signals = Timeline().at(0, a=lacking, b=pod(running=1, kv_use=0.5, kv_use_mean=0.5))
    assert signals.kv_use_ratio.at_least == 0.5  # type: ignore[union-attr]
    assert isinstance(Timeline().at(0, a=lacking, b=lacking).kv_use_ratio, NotApplicable)


def test_without_any_read_nothing_is_said_to_be_lacking() -> None:
    assert isinstance(Timeline().at(0, a=down()).kv_use_ratio, Unknown)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "trtllm", "lmdeploy", "llamacpp"])
def test_a_full_card_of_an_engine_that_preallocates_is_no_memory_signal(engine: str) -> None:
    full = replace(pod(running=3, gpu_memory_free=0.003), not_applicable=load_preset(engine).not_applicable)
    signal = Timeline().at(0, a=full).gpu_memory_free_ratio
    assert isinstance(signal, NotApplicable)
    assert "the engine preallocates" in signal.reason


@pytest.mark.parametrize("engine", ["triton", "rayserve"])
def test_free_memory_counts_where_the_engine_does_not_preallocate(engine: str) -> None:
    full = replace(pod(running=3, gpu_memory_free=0.08), not_applicable=load_preset(engine).not_applicable)
    assert Timeline().at(0, a=full).gpu_memory_free_ratio == Known(0.08, 0)


# Metrics that appear with their first value

FRESH_SGLANG = 'sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 458000\n'


def test_a_new_engine_whose_metrics_are_not_born_yet_is_proven_idle() -> None:
    sample = page("sglang", FRESH_SGLANG)
    assert (sample.gauges["running"], sample.gauges["waiting"]) == (0.0, 0.0)
    assert (sample.counters["finished"], sample.histograms["ttft"]) == ({}, {})
    signals = folded(sample, sample)
    for signal in (signals.arrivals_last_per_second, signals.running, signals.waiting, signals.finished_per_second):
        assert known_value(signal) == 0.0
    assert not signals.counters_moved
    assert isinstance(signals.ttft_seconds, NotApplicable)


def test_the_first_request_of_a_counter_born_by_it_counts() -> None:
    first = FRESH_SGLANG + 'sglang:num_requests_total{model_name="m",is_streaming="true"} 1\n'
    first += 'sglang:num_running_reqs{model_name="m"} 0\nsglang:num_queue_reqs{model_name="m"} 0\n'
    first += 'sglang:prompt_tokens_total{model_name="m"} 9\nsglang:generation_tokens_total{model_name="m"} 9\n'
    signals = folded(page("sglang", FRESH_SGLANG), page("sglang", first))
    assert signals.counters_moved
    assert known_value(signals.arrivals_last_per_second) == pytest.approx(1 / 30)


def test_once_requests_are_counted_a_missing_metric_is_renamed_and_not_zero() -> None:
    renamed = (BODIES / "sglang.txt").read_text().replace("num_queue_reqs", "num_waiting_reqs")
    sample = page("sglang", renamed)
    assert "waiting" not in sample.gauges
    assert sample.counters["preemptions"] == {}  # may never happen, so it proves nothing
    assert "finished" not in page("sglang", renamed.replace("num_requests_total", "requests_total")).counters


def test_an_engine_whose_metrics_are_there_from_the_start_is_not_read_as_unborn() -> None:
    sample = page("vllm", 'vllm:num_requests_running{model_name="m"} 0\n')
    assert (set(sample.gauges), sample.counters) == ({"running"}, {})


def test_a_model_that_is_not_on_the_page_is_not_unborn() -> None:
    sample = page("sglang", FRESH_SGLANG, model_name="sql")
    assert (sample.gauges, sample.counters) == ({}, {})


# Engines' own traps


def test_sglangs_priority_breakdown_is_not_added_to_its_total() -> None:
    body = "".join(
        f'sglang:num_queue_reqs{{model_name="m",priority="{priority}"}} {value}\n'
        for priority, value in (("", 9), ("1", 4), ("2", 5))
    )
    assert page("sglang", body).gauges["waiting"] == 9.0


def test_sglangs_ranks_count_once_and_its_disaggregation_queues_not_at_all() -> None:
    body = (BODIES / "sglang.txt").read_text()
    copies = body + "".join(
        line.replace('tp_rank="0"', 'tp_rank="1"') + "\n" for line in body.splitlines() if 'dp_rank="0"' in line
    )
    assert page("sglang", copies).gauges == page("sglang").gauges
    assert page("sglang").gauges["waiting"] == 4.0


def test_tgi_counts_a_rejected_request_once() -> None:
    more = (BODIES / "tgi.txt").read_text().replace("tgi_request_count 60", "tgi_request_count 65")
    more = more.replace('{err="overloaded"} 2', '{err="overloaded"} 4')
    signals = folded(page("tgi"), page("tgi", more))
    assert known_value(signals.arrivals_last_per_second) == pytest.approx(5 / 30)


@pytest.mark.parametrize(
    ("engine", "before", "after"),
    [
        ("tgi", 'success{method="decode"} 4100', 'success{method="decode"} {0}'),
        ("llamacpp", "llamacpp:n_decode_total 1600", "llamacpp:n_decode_total {0}"),
        ("sglang", ',mode="decode"}} 4000.0', ',mode="decode"}} {0}'),
    ],
)
def test_a_long_answer_is_no_stall_where_only_steps_move(engine: str, before: str, after: str) -> None:
    body, line = (BODIES / f"{engine}.txt").read_text(), Timeline(interval_seconds=30)
    before = before.replace("}}", "}")
    assert before in body
    for step in range(8):
        moved = body.replace(before, after.replace("}}", "}").replace("{0}", str(10_000 + step)))
        signals = line.at(step * 30, a=page(engine, moved))
    assert signals.stalled_replicas == Known(0.0, 210)
    assert not signals.counters_moved  # steps are progress, and no request
    for step in range(8, 16):
        signals = line.at(step * 30, a=page(engine, moved))
    assert signals.stalled_replicas == Known(1.0, 450)


def test_tensorrt_llms_ensemble_is_counted_by_its_inner_model_alone() -> None:
    assert sum(page("trtllm").counters["finished"].values()) == 92.0
    assert sum(page("trtllm", model_name="ensemble").counters["finished"].values()) == 92.0
    assert "running" not in page("trtllm", model_name="ensemble").gauges
    assert page("trtllm").gauges["kv_capacity_tokens"] == 6239 * 64


def test_tensorrt_llm_without_latency_histograms_says_how_to_have_them() -> None:
    body = "\n".join(line for line in (BODIES / "trtllm.txt").read_text().splitlines() if "first_response" not in line)
    (warning,) = page("trtllm", body + "\n").warnings
    assert "--metrics-config histogram_latencies=true" in warning


def test_milliseconds_become_seconds() -> None:
    (buckets,) = page("trtllm").histograms["ttft"].values()
    assert buckets.bounds == pytest.approx((0.1, 0.5, 2.0, 5.0, float("inf")))
    assert buckets.sum == pytest.approx(21.0)


def test_lmdeploys_two_queues_are_one() -> None:
    assert page("lmdeploy").gauges["waiting"] == 13.0


def test_vllms_swapped_requests_wait() -> None:
    body = 'vllm:num_requests_waiting{model_name="m"} 3\nvllm:num_requests_swapped{model_name="m"} 2\n'
    assert page("vllm", body).gauges["waiting"] == 5.0


def test_ray_serves_queue_is_that_of_all_its_handles_and_of_the_chosen_deployment() -> None:
    sample = page("rayserve", model_name="Model")
    assert (sample.gauges["running"], sample.gauges["waiting"]) == (5.0, 7.0)
    assert sum(sample.counters["finished"].values()) == 303.0
    assert any("2 models share the endpoint" in warning for warning in page("rayserve").warnings)


def test_a_mean_without_buckets_is_exact_and_its_quantiles_are_undecided() -> None:
    later = (BODIES / "llamacpp.txt").read_text().replace("predicted_seconds_total 30", "predicted_seconds_total 40")
    signals = folded(page("llamacpp"), page("llamacpp", later.replace("predicted_total 1500", "predicted_total 1900")))
    tpot = known_value(signals.tpot_seconds)
    assert tpot is not None
    assert (tpot.mean_seconds, tpot.samples) == (pytest.approx(0.025), 400.0)
    assert tpot.against(0.001, 20) == tpot.against(1000.0, 20) == "undecided"
