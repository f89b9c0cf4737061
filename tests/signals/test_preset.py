"""Presets as data, and reading a body by one: renames, engines, ranks, models; what is left out rather than guessed."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scaler.signals.exposition import ExpositionError
from scaler.signals.observation import Buckets, EngineSample
from scaler.signals.preset import (
    FAMILIES,
    OPTIONAL,
    Preset,
    PresetError,
    known_engines,
    load_preset,
    read_preset,
    register_presets,
)
from scaler.signals.reading import STALE_AFTER_SECONDS, read_engine

BODIES = Path(__file__).parent / "bodies"
ENGINES = Path(__file__).parents[2] / "scaler" / "signals" / "engines"
NOW_UNIX = 1_700_000_000.0


def read(body: str, model_name: str | None = None, preset: Preset | None = None) -> EngineSample:
    return read_engine(body, preset or load_preset("vllm"), 5.0, model_name=model_name, now_unix=NOW_UNIX, seconds=0.25)


def warned(sample: EngineSample, *words: str) -> bool:
    return any(all(word in warning for word in words) for warning in sample.warnings)


QUEUE = 'vllm:num_requests_waiting{model_name="m"} 3\n'
OLD_KV = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.63\n'
NEW_KV = 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.63\n'


@pytest.mark.parametrize("body", [OLD_KV, OLD_KV + NEW_KV, NEW_KV + OLD_KV, NEW_KV], ids=["old", "both", "both", "new"])
def test_a_renamed_gauge_is_read_under_either_name_and_never_added(body: str) -> None:
    sample = read(QUEUE + body)
    assert sample.gauges["kv_use"] == 0.63
    assert sample.gauges["kv_use_mean"] == 0.63
    assert not sample.warnings


def test_the_new_name_wins_even_when_the_old_one_disagrees() -> None:
    assert read(OLD_KV.replace("0.63", "0.9") + NEW_KV).gauges["kv_use"] == 0.63


def test_kv_use_under_no_name_is_unknown_with_one_warning_and_the_queue_still_works() -> None:
    sample = read(QUEUE)
    assert sample.gauges == {"waiting": 3.0}
    assert sample.warnings == ("no KV-cache use in the metrics; batch adaptation by memory pauses",)


@pytest.mark.parametrize(
    ("value", "word"), [("63", "ratio"), ("1.51", "ratio"), ("NaN", "nan"), ("+Inf", "inf"), ("-0.1", "-0.1")]
)
def test_a_kv_use_that_is_no_ratio_is_unknown_and_warned_of_once(value: str, word: str) -> None:
    sample = read(QUEUE + NEW_KV.replace("0.63", value) + OLD_KV)
    assert "kv_use" not in sample.gauges
    assert "kv_use_mean" not in sample.gauges
    assert warned(sample, "kv_use", "vllm:kv_cache_usage_perc", word)
    assert len(sample.warnings) == 1


def test_a_percentage_is_read_as_a_ratio_only_where_the_preset_says_so() -> None:
    preset = changed_preset(lambda families: families["kv_use"].update(scale=0.01))
    assert read(NEW_KV.replace("0.63", "63"), preset=preset).gauges["kv_use"] == 0.63


TWO_ENGINES = """\
vllm:num_requests_running{engine="0",model_name="m"} 7
vllm:num_requests_running{engine="1",model_name="m"} 9
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="1",model_name="m"} 4
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.8
"""
OTHER_MODEL = 'vllm:num_requests_waiting{engine="0",model_name="other"} 50\n'


def test_data_parallel_engines_are_summed_and_their_kv_use_is_the_greatest() -> None:
    sample = read(TWO_ENGINES)
    assert sample.gauges == {"running": 16.0, "waiting": 4.0, "kv_use": 0.8, "kv_use_mean": 0.5}
    assert not sample.warnings


def test_a_model_filter_leaves_the_other_model_out() -> None:
    assert read(TWO_ENGINES + OTHER_MODEL, "m").gauges == read(TWO_ENGINES).gauges
    assert not read(TWO_ENGINES + OTHER_MODEL, "m").warnings


def test_without_a_filter_all_models_are_summed_and_a_warning_names_them() -> None:
    sample = read(TWO_ENGINES + OTHER_MODEL)
    assert sample.gauges["waiting"] == 54.0
    assert warned(sample, "2 models share the endpoint", '"m", "other"')


def test_a_filter_that_matches_nothing_is_unknown_and_names_the_models_there_are() -> None:
    sample = read(TWO_ENGINES + OTHER_MODEL + "process_start_time_seconds 1.6e9\n", "sql")
    assert (sample.gauges, sample.counters, sample.histograms) == ({}, {}, {})
    assert sample.process_start_seconds == 1.6e9
    (warning,) = sample.warnings
    assert 'model_name="sql"' in warning
    assert '"m", "other"' in warning


@pytest.mark.parametrize("name", ["/data/models/gemma (v2)", "org/m+x", 'a"b', "back\\slash", "{m} 1"])
def test_a_model_is_matched_exactly_whatever_its_name_holds(name: str) -> None:
    label = name.replace("\\", "\\\\").replace('"', '\\"')
    body = f'vllm:num_requests_waiting{{model_name="{label}"}} 3\n' + OTHER_MODEL
    assert read(body, name).gauges == {"waiting": 3.0}
    assert read(body, name[:-1]).gauges == {}


def test_a_nan_in_one_engine_makes_the_sum_unknown_and_not_smaller() -> None:
    sample = read(TWO_ENGINES.replace("} 9", "} NaN"))
    assert "running" not in sample.gauges
    assert sample.gauges["waiting"] == 4.0
    assert warned(sample, "running", "nan", "unknown")


def test_rank_copies_count_once_before_engines_are_summed() -> None:
    lines = [
        f'vllm:num_requests_running{{engine="{engine}",model_name="m",tp_rank="{tp}",pp_rank="{pp}"}} {value}\n'
        f'vllm:request_success_total{{engine="{engine}",model_name="m",tp_rank="{tp}",pp_rank="{pp}"}} {10 * value}\n'
        for engine, tp, pp, value in [(0, 0, 0, 7), (0, 1, 0, 6), (0, 0, 1, 7), (1, 0, 0, 9), (1, 1, 0, 9)]
    ]
    sample = read("".join(lines))
    assert sample.gauges["running"] == 16.0
    assert sample.counters["finished"] == {'engine="0",model_name="m"': 70.0, 'engine="1",model_name="m"': 90.0}


def test_of_rank_copies_of_a_histogram_the_fullest_counts() -> None:
    def copy(rank: int, count: int) -> str:
        return histogram("vllm:time_to_first_token_seconds", f'model_name="m",tp_rank="{rank}"', count=count)

    assert read(copy(0, 4) + copy(1, 6)).histograms["ttft"]['model_name="m"'].count == 6.0


def test_samples_of_the_past_are_left_out() -> None:
    def at(age_seconds: float) -> str:
        return f"{(NOW_UNIX - age_seconds) * 1000:.0f}"

    body = (
        f'vllm:num_requests_running{{engine="0"}} 9 {at(4 * 3600)}\n'
        f'vllm:num_requests_waiting{{engine="0"}} 40 {at(STALE_AFTER_SECONDS + 1)}\n'
        f'vllm:num_requests_waiting{{engine="1"}} 2 {at(STALE_AFTER_SECONDS - 1)}\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} 0.9 {at(4 * 3600)}\n'
    )
    sample = read(body)
    assert sample.gauges == {"waiting": 2.0}
    assert sample.warnings == ("samples older than 45 s left out: 3",)


def test_either_separator_after_the_prefix_is_read() -> None:
    assert read(TWO_ENGINES.replace("vllm:", "vllm_")).gauges == read(TWO_ENGINES).gauges
    assert read(TWO_ENGINES + TWO_ENGINES.replace("vllm:", "vllm_")).gauges == read(TWO_ENGINES).gauges


def test_creation_times_and_the_lora_clock_are_never_load() -> None:
    body = (
        QUEUE
        + 'vllm:request_success_total{model_name="m"} 4\nvllm:request_success_created{model_name="m"} 1.7e9\n'
        + 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="sql"} 1.76e9\n'
        + 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.7599e9\n'
    )
    sample = read(body)
    assert sample.gauges == {"waiting": 3.0}
    assert sample.counters == {"finished": {'model_name="m"': 4.0}}


def test_counters_stay_per_series_and_a_nan_makes_the_family_unknown() -> None:
    body = (
        'vllm:request_success_total{finished_reason="stop"} 4\nvllm:request_success_total{finished_reason="abort"} 1\n'
    )
    assert read(body).counters["finished"] == {'finished_reason="stop"': 4.0, 'finished_reason="abort"': 1.0}
    assert "finished" not in read(body.replace(" 1\n", " NaN\n")).counters


def histogram(name: str, labels: str = 'model_name="m"', count: float = 5, bounds: tuple[str, ...] = ("0.1",)) -> str:
    rows = [f'{name}_bucket{{{labels},le="{bound}"}} 2' for bound in bounds]
    return "\n".join([*rows, f'{name}_bucket{{{labels},le="+Inf"}} {count}', f"{name}_sum{{{labels}}} 1.5"]) + (
        f"\n{name}_count{{{labels}}} {count}\n"
    )


TTFT = histogram("vllm:time_to_first_token_seconds")


def test_a_histogram_is_put_together_per_series() -> None:
    body = TTFT + histogram("vllm:time_to_first_token_seconds", 'model_name="n"', 7, bounds=("0.5", "0.05"))
    assert read(body).histograms["ttft"] == {
        'model_name="m"': Buckets((0.1, math.inf), array("d", (2.0, 5.0)), 1.5, 5.0),
        'model_name="n"': Buckets((0.05, 0.5, math.inf), array("d", (2.0, 2.0, 7.0)), 1.5, 7.0),
    }


def test_a_histogram_without_a_count_line_has_its_last_buckets_count() -> None:
    body = "\n".join(line for line in TTFT.splitlines() if "_count" not in line) + "\n"
    assert read(body).histograms["ttft"]['model_name="m"'].count == 5.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('le="+Inf"', 'le="0.2"'),
        ('le="0.1"', 'le="low"'),
        ('le="0.1"', 'le="NaN"'),
        (',le="0.1"', ""),
        ("} 2", "} 9"),
        ("} 2", "} NaN"),
        ("} 2", "} -1"),
        ("} 1.5", "} NaN"),
        ("_sum", "_total"),
        ('_count{model_name="m"} 5', '_count{model_name="m"} +Inf'),
        ("vllm", 'vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.10"} 2\nvllm'),
    ],
)
def test_a_malformed_histogram_series_is_left_out_and_the_others_stay(old: str, new: str) -> None:
    good = histogram("vllm:time_to_first_token_seconds", 'model_name="n"')
    sample = read(TTFT.replace(old, new, 1) + good)
    assert list(sample.histograms["ttft"]) == ['model_name="n"']
    assert warned(sample, "ttft", "malformed series of vllm:time_to_first_token_seconds left out: 1")


@pytest.mark.parametrize("newest", range(3))
def test_the_time_per_output_token_is_read_from_the_best_name_there_is(newest: int) -> None:
    names = ["request_time_per_output_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds"]
    body = "".join(histogram(f"vllm:{name}", count=10 + place) for place, name in enumerate(names) if place >= newest)
    assert read(body).histograms["tpot"]['model_name="m"'].count == 10 + newest


CACHE = 'vllm:cache_config_info{{engine="{0}",block_size="16",num_gpu_blocks="{1}"{2}}} 1.0\n'


@pytest.mark.parametrize(
    ("lines", "tokens"),
    [
        ([(0, "100", ',kv_cache_size_tokens="65536"')], 65536.0),
        ([(0, "100", "")], 1600.0),
        ([(0, "100", ',kv_cache_size_tokens="None"')], 1600.0),
        ([(0, "100", ""), (1, "200", "")], 4800.0),
        ([(0, "100", ',_block_size_resolved="False"'), (0, "150", ',_block_size_resolved="True"')], 2400.0),
        ([(0, "None", "")], None),
        ([(0, "9" * 400, "")], None),
    ],
)
def test_kv_capacity_stands_in_labels_and_is_summed_over_engines(
    lines: list[tuple[int, str, str]], tokens: float | None
) -> None:
    body = QUEUE + "".join(CACHE.format(*line) for line in lines)
    assert read(body).gauges.get("kv_capacity_tokens") == tokens
    assert read(body, "m").gauges.get("kv_capacity_tokens") == tokens  # it names no model, and belongs to each


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "sglang:num_running_reqs 3\nsglang:num_queue_reqs 3\npython_info 1\n",
            "sglang: metrics; is engine: vllm right",
        ),
        ("sglang_num_running_reqs 3\nprocess_start_time_seconds 1\n", "sglang_ metrics; is engine: vllm right"),
        ("tgi_queue_size 6\nhttp_requests_total 1\n", "tgi_ metrics"),
        ("process_start_time_seconds 1\npython_info 1\n", "still loading"),
    ],
)
def test_a_body_of_another_engine_is_refused_and_says_what_it_holds(body: str, words: str) -> None:
    with pytest.raises(ExpositionError, match=words):
        read(body)


def test_a_broken_or_repeated_line_is_a_warning() -> None:
    sample = read(QUEUE + NEW_KV + 'weird{a="b} 1\n' + QUEUE)
    assert sample.gauges["waiting"] == 3.0
    assert warned(sample, "unreadable lines", "skipped: 1")
    assert warned(sample, "lines that repeat a series", ": 1")


@pytest.mark.parametrize("value", ["1.76e9", "1.7e308", "1000000001"])
def test_a_number_of_requests_that_no_engine_has_is_unknown(value: str) -> None:
    """A time stamp where a count belongs; and a few of the greatest floats, of several pods, would be infinity."""
    sample = read(QUEUE.replace(" 3", f" {value}") + NEW_KV)
    assert sample.gauges.keys() == {"kv_use", "kv_use_mean"}
    assert warned(sample, "waiting: vllm:num_requests_waiting is", "more than any engine has")


@pytest.mark.parametrize("broken", ['vllm:num_requests_running{engine="1",model_name="m} 7', "9x", "7 until now 1"])
def test_a_broken_line_of_one_engine_does_not_leave_the_sum_of_the_others(broken: str) -> None:
    """The others alone look like less load: with the first of two engines idle, like none."""
    last = broken if "{" in broken else f'vllm:num_requests_running{{engine="1"}} {broken}'
    sample = read(f'vllm:num_requests_running{{engine="0"}} 0\n{last}\n{QUEUE}')
    assert sample.gauges == {"waiting": 3.0}
    assert warned(sample, "running: lines of vllm_num_requests_running are lost; read as unknown")


def test_a_broken_line_of_a_counter_takes_the_counter_with_it_for_this_read() -> None:
    line = 'vllm:request_success_total{{finished_reason="{}"}} {}\n'
    assert "finished" in read(QUEUE + line.format("stop", 5) + line.format("length", 6)).counters
    assert "finished" not in read(QUEUE + line.format("stop", 5) + line.format("length", "six")).counters


@pytest.mark.parametrize("lost", ['{model_name="m} 0.9', '{model_name="m"} 0.9 1000'], ids=["broken", "of the past"])
def test_what_is_on_the_page_and_cannot_be_used_is_not_unborn(lost: str) -> None:
    """SGLang's metrics appear with their first value, so that absent is zero; unreadable is not."""
    page = 'sglang:max_total_num_tokens{model_name="m"} 1000\nsglang:num_queue_reqs{model_name="m"} 3\n'
    sglang = load_preset("sglang")
    assert read(page, preset=sglang).gauges["kv_use"] == 0.0
    sample = read(f"{page}sglang:token_usage{lost}\n", preset=sglang)
    assert "kv_use" not in sample.gauges
    assert warned(sample, "kv_use: lines of sglang_token_usage are lost")


def test_a_real_loaded_vllm_is_read_whole() -> None:
    sample = read((BODIES / "vllm-0.32-load.txt").read_text(), "tiny")
    assert sample.gauges["running"] == 7.0
    assert sample.gauges["waiting"] == 56.0
    assert sample.gauges["kv_use"] == pytest.approx(0.01566, abs=1e-5)
    assert sample.gauges["kv_capacity_tokens"] == 65536.0
    assert sum(sample.counters["finished"].values()) == 167.0
    assert sum(sample.counters["generation_tokens"].values()) == 25900.0
    assert sum(sample.counters["admission_rejections"].values()) == 0.0
    assert {key: next(iter(series.values())).count for key, series in sample.histograms.items()} == {
        "ttft": 174.0,
        "tpot": 167.0,
        **dict.fromkeys(("e2e", "queue", "prefill", "decode", "prompt_length", "generation_length"), 167.0),
    }
    assert sample.process_start_seconds == pytest.approx(1795967287.47)
    assert (sample.at, sample.seconds, sample.warnings) == (5.0, 0.25, ())


def test_a_real_idle_vllm_has_every_family_of_its_preset() -> None:
    sample = read((BODIES / "vllm-0.32-idle.txt").read_text())
    read_families = {*sample.gauges, *sample.counters, *sample.histograms} - {"kv_use_mean"}
    assert read_families == set(load_preset("vllm").families)
    assert sample.not_applicable == load_preset("vllm").not_applicable
    assert (sample.gauges["running"], sample.gauges["waiting"]) == (0.0, 0.0)
    assert not sample.warnings


NUMBERS = st.sampled_from(["NaN", "+Inf", "-Inf", "1e308", "-1", "0", "0.5", "63", "1 1000", "1 99999999999999"])
ANY_NAME = st.sampled_from(sorted(load_preset("vllm").wanted))
ANY_LABELS = st.dictionaries(
    st.sampled_from(["le", "engine", "model_name", "tp_rank", "num_gpu_blocks", "block_size", "kv_cache_size_tokens"]),
    st.sampled_from(["0", "1", "+Inf", "-Inf", "NaN", "", "m", "9" * 5000]),
)


@given(st.lists(st.tuples(ANY_NAME, ANY_LABELS, NUMBERS), max_size=30), st.none() | st.just("m"))
def test_whatever_the_engine_says_no_gauge_is_nan_infinite_or_negative(
    lines: list[tuple[str, dict[str, str], str]], model_name: str | None
) -> None:
    body = "v 1\n"
    for name, labels, number in lines:
        pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
        body += f"{name}{{{pairs}}} {number}\n"
    try:
        sample = read(body, model_name)
    except ExpositionError:
        return
    numbers = [*sample.gauges.values(), *(value for series in sample.counters.values() for value in series.values())]
    assert all(0 <= number < math.inf for number in numbers)
    assert all(buckets.bounds[-1] == math.inf for series in sample.histograms.values() for buckets in series.values())


@pytest.mark.parametrize(("state", "awake"), [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)])
def test_vllm_tells_in_its_sleep_that_it_sleeps(state: str, awake: float) -> None:
    page = "".join(
        f'vllm:engine_sleep_state{{engine="0",model_name="tiny",sleep_state="{word}"}} {float(word == state)}\n'
        for word in ("awake", "weights_offloaded", "discard_all")
    )
    page += 'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0\n'
    assert read(page).gauges["awake_engines"] == awake


# Presets as data.


@pytest.mark.parametrize("engine", known_engines())
def test_every_shipped_preset_loads_and_declares_every_family_once(engine: str) -> None:
    preset = load_preset(engine)
    assert set(FAMILIES) - OPTIONAL <= preset.families.keys() | preset.not_applicable.keys()
    assert preset.not_applicable.keys() <= {*FAMILIES, "gpu_memory_free"}
    assert all(reason.startswith(f"engine {engine}: ") for reason in preset.not_applicable.values())
    assert not any(name.endswith("_created") or ":" in name for name in preset.wanted)


def test_vllm_preallocates_and_batches_continuously() -> None:
    preset = load_preset("vllm")
    assert (preset.continuous_batching, preset.preallocates_gpu_memory) == (True, True)
    assert (preset.model_label, preset.engine_label) == ("model_name", "engine")


@pytest.mark.parametrize("name", ["vlm", "../engines/vllm", ""])
def test_an_unknown_engine_lists_the_known_ones(name: str) -> None:
    with pytest.raises(PresetError, match="vllm"):
        load_preset(name)


def changed_preset(change: object = None, **top: object) -> Preset:
    """vLLM's preset with something changed in its families, or at its top."""
    text = (ENGINES / "vllm.yaml").read_text()
    document = yaml.safe_load(text) | top
    if callable(change):
        change(document["families"])
    return read_preset(yaml.safe_dump(document), "vllm")


def test_an_engine_without_a_model_label_reads_everything_and_says_so() -> None:
    sample = read(TWO_ENGINES, "m", changed_preset(model_label=None))
    assert sample.gauges["running"] == 16.0
    assert warned(sample, "does not name its model")


@pytest.mark.parametrize(
    ("key", "family", "words"),
    [
        ("finished", {"kind": "counter", "names": ["vllm:request_success_created"]}, "time of creation"),
        ("waiting", {"kind": "gauge", "names": ["vllm:lora_requests_info"]}, "means nothing"),
        ("kv_capacity_tokens", {"kind": "info", "names": ["vllm:cache_config_info"]}, "labels is for kind: info"),
        ("ttft", {"kind": "histogram", "names": ["x"], "combine": "max"}, "combine: max"),
        ("finished", {"kind": "counter", "names": ["x"], "scale": 0.001}, "scale is for gauges and histograms"),
        ("running", {"kind": "gauge", "names": ["x"], "times": {"a": ["b"]}}, "times is for a gauge with where"),
        (
            "running",
            {"kind": "gauge", "names": ["x"], "where": {"a": ["b"]}, "or_where": {"c": ["d"]}},
            "running: or_where is for gateways",
        ),
        ("ttft", {"kind": "histogram", "names": ["x"], "plus": ["y"]}, "plus is for gauges and counters"),
        ("kv_use", {"kind": "gauge", "names": ["x"], "plus": ["y"], "combine": "max"}, "combine: max"),
        (
            "ttft",
            {"kind": "histogram", "names": [], "mean": {"names": ["x"]}},
            "mean is for histograms, and needs count",
        ),
        ("finished", {"kind": "counter", "names": ["x"], "estimate": {"names": ["y"]}}, "estimate is for gauges"),
        ("ttft", {"kind": "gauge", "names": ["x"]}, "ttft must be of kind histogram"),
        ("running", {"kind": "gauge", "names": []}, "names is empty"),
        ("running", {"kind": "gauge", "name": ["x"]}, "families.running.name"),
        ("speed", {"kind": "gauge", "names": ["x"]}, "no such family: speed"),
    ],
)
def test_a_preset_that_cannot_be_meant_is_refused_with_the_place(key: str, family: object, words: str) -> None:
    with pytest.raises(PresetError, match=words):
        changed_preset(lambda families: families.update({key: family}))


def test_a_preset_must_place_every_family_exactly_once() -> None:
    with pytest.raises(PresetError, match="neither in families nor in not_applicable: ttft"):
        changed_preset(lambda families: families.pop("ttft"))
    with pytest.raises(PresetError, match="both in families and in not_applicable: ttft"):
        changed_preset(not_applicable=["ttft"])
    left_out = changed_preset(lambda families: families.pop("ttft"), not_applicable=["ttft"])
    assert left_out.not_applicable["ttft"] == "engine vllm: it does not report this"
    left_out = changed_preset(lambda families: families.pop("ttft"), not_applicable={"ttft": "it streams nothing"})
    assert left_out.not_applicable["ttft"] == "engine vllm: it streams nothing"


def test_an_operators_own_presets_are_known_after_they_are_registered(tmp_path: Path) -> None:
    own = (ENGINES / "vllm.yaml").read_text().replace("vllm:", "mine:").replace("name: vllm", "name: mine")
    (tmp_path / "mine.yaml").write_text(own)
    (tmp_path / "vllm.yaml").write_text((ENGINES / "vllm.yaml").read_text().replace("vllm:", "patched:"))
    try:
        assert register_presets(tmp_path) == ("mine", "vllm")
        assert {"mine", "vllm", "sglang"} <= set(known_engines())
        assert (
            read('mine:num_requests_waiting{model_name="m"} 3\n', preset=load_preset("mine")).gauges["waiting"] == 3.0
        )
        assert "patched_num_requests_running" in load_preset("vllm").wanted
    finally:
        register_presets(None)
    assert "mine" not in known_engines()
    assert "vllm_num_requests_running" in load_preset("vllm").wanted
    with pytest.raises(PresetError, match="engine 'mine' is not known"):
        load_preset("mine")


def test_presets_that_cannot_be_meant_are_refused_with_their_file_and_change_nothing(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match="no preset in"):
        register_presets(tmp_path)
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    with pytest.raises(PresetError, match=r"mine\.yaml: continuous_batching: Field required"):
        register_presets(tmp_path)
    assert "mine" not in known_engines()


def test_a_preset_is_named_after_its_file_and_is_yaml() -> None:
    with pytest.raises(PresetError, match="write name: vllm"):
        changed_preset(name="vlm")
    with pytest.raises(PresetError, match="not YAML"):
        read_preset("a: [", "vllm")
    with pytest.raises(PresetError, match="preset vllm: preset: "):
        read_preset("just words", "vllm")
