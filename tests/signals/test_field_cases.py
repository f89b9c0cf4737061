"""The field cases of groups 2 (zero and cold start) and 3 (engine metrics), each with its own input, from the page that
was seen to the signals that control gets. G2-03 and G2-08's gateways are in test_gateway, G2-05 is in tests/control,
G3-08 in test_exposition and test_scrape.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.model import Policy, Scrape
from scaler.signals.exposition import ExpositionError
from scaler.signals.model import Known, NotApplicable, Signals, Stale, Unknown, known_value
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import load_preset
from scaler.signals.reading import read_engine
from tests.signals.test_engines import BODIES
from tests.signals.timeline import UNIX, Timeline, down, pod


def page(body: str, engine: str = "vllm", *, at: float = 0.0, model_name: str | None = None) -> EngineSample:
    sample = read_engine(body, load_preset(engine), at, model_name=model_name, now_unix=UNIX + at, seconds=0.1)
    return replace(sample, at=at)


def failed(body: str) -> ReadFailure:
    """An answer that is no page, as the scrape source tells it."""
    with pytest.raises(ExpositionError) as refused:
        page(body)
    return down(str(refused.value))


def folded(*bodies: str, engine: str = "vllm", seconds: float = 30.0, model_name: str | None = None) -> Signals:
    line = Timeline(interval_seconds=seconds)
    for number, body in enumerate(bodies):
        signals = line.at(number * seconds, a=page(body, engine, model_name=model_name))
    return signals


# G2-01: an empty or broken answer at peak is not zero

SIX_REPLICAS = [f"pod{number}" for number in range(6)]
LOST = {
    "HTTP 503": down("HTTP 503"),
    "refused": down("connection refused"),
    "an HTML login page": failed("<!DOCTYPE html><html>please log in</html>"),
    "an empty body": failed(""),
    "NaN": page('vllm:num_requests_waiting{model_name="m"} NaN\n'),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_g2_01_a_lost_answer_at_peak_is_held_then_unknown_and_never_zero(lost: EngineSample | ReadFailure) -> None:
    line = Timeline(Policy(hold_seconds=120), interval_seconds=5)
    waiting = pod(running=1, waiting=7, finished=0)
    assert line.at(0, **dict.fromkeys(SIX_REPLICAS, waiting)).waiting == Known(42.0, 0)
    for seconds in range(20, 300, 5):
        signals = line.at(seconds, **dict.fromkeys(SIX_REPLICAS, lost))
        if isinstance(lost, EngineSample):
            assert signals.waiting == Unknown("no endpoint reports waiting")  # read whole, and it says nothing
        elif seconds <= 120:
            assert signals.waiting == Stale(42.0, 0, at_least=0.0)
        else:
            assert isinstance(signals.waiting, Unknown)
            assert isinstance(signals.ready_replicas, Unknown)


def test_g2_01_the_operator_may_say_that_empty_means_zero() -> None:
    line = Timeline(Policy(scrape=Scrape(empty_means="zero")))
    line.at(0, a=pod(running=6, waiting=42))
    assert line.at(20, a=down("HTTP 503")).waiting == Known(0.0, 20)


# G2-06: counters reset and disappear with pods


def test_g2_06_per_series_deltas_over_pods_that_come_and_go() -> None:
    line = Timeline(interval_seconds=15)
    line.at(0, a=pod(finished=1000, started=-900), b=pod(finished=500, started=-900))
    signals = line.at(15, a=pod(finished=1000, started=-900), c=pod(finished=7, started=5))
    assert (known_value(signals.finished_per_second), signals.counters_moved) == (pytest.approx(7 / 15), True)
    signals = line.at(30, a=pod(finished=3, started=20), c=pod(finished=7, started=5))
    assert (known_value(signals.finished_per_second), signals.counters_moved) == (pytest.approx(10 / 30), True)


# G2-07: the ghosts of deleted pods


def ghosts(stamp: str) -> str:
    """What a federating collector still shows of two pods at second 300; ``stamp`` is the gone one's time stamp."""
    return (
        f'vllm:num_requests_waiting{{pod="m-aaa"}} 0 {(UNIX + 298) * 1000:.0f}\n'
        f'vllm:num_requests_waiting{{pod="m-zzz"}} 40 {stamp}\n'
    )


def test_g2_07_age_alone_drops_a_ghost_where_no_list_of_endpoints_helps() -> None:
    sample = page(ghosts(f"{(UNIX + 205) * 1000:.0f}"), at=300.0)
    assert sample.gauges["waiting"] == 0.0
    assert "samples older than 45 s left out: 1" in sample.warnings
    assert sample.dropped_series == 1
    assert page(ghosts(f"{(UNIX + 299) * 1000:.0f}"), at=300.0).gauges["waiting"] == 40.0


def test_g2_07_a_pod_that_is_no_endpoint_any_more_is_not_load() -> None:
    line = Timeline(interval_seconds=5)
    line.at(295, **{"m-aaa": pod(waiting=0), "m-zzz": pod(waiting=40)})
    assert line.at(300, **{"m-aaa": pod(waiting=0)}).waiting == Known(0.0, 300)


def test_g2_07_an_endpoint_without_a_fresh_sample_makes_the_sum_incomplete_and_not_smaller() -> None:
    line = Timeline(interval_seconds=5)
    line.at(200, **{"m-aaa": pod(waiting=2), "m-bbb": pod(waiting=40)})
    line.at(250, **{"m-aaa": pod(waiting=2), "m-bbb": down()})
    assert line.at(300, **{"m-aaa": pod(waiting=2), "m-bbb": down()}).waiting == Stale(42.0, 200, at_least=2.0)


# G2-08: probes and scrapes do not keep an idle model awake

HTTP_PER_MINUTE = {
    'handler="/health",method="GET"': 6,
    'handler="/metrics",method="GET"': 4,
    'handler="/v1/models",method="GET"': 2,
    'handler="/v1/chat/completions",method="OPTIONS"': 1,
    'handler="/v1/chat/completions",method="POST"': 0,
}


def idle_minute(minute: int, finished: int = 50) -> str:
    probes = "".join(
        f'http_requests_total{{{labels},status="2xx"}} {100 + minute * count}\n'
        for labels, count in HTTP_PER_MINUTE.items()
    )
    return probes + (
        'vllm:num_requests_running{model_name="m"} 0\nvllm:num_requests_waiting{model_name="m"} 0\n'
        f'vllm:request_success_total{{finished_reason="stop",model_name="m"}} {finished}\n'
    )


def test_g2_08_probes_and_scrapes_are_no_traffic() -> None:
    line = Timeline(interval_seconds=60)
    for minute in range(6):
        signals = line.at(60.0 * minute, a=page(idle_minute(minute)))
        assert not signals.counters_moved
    assert (signals.arrivals_last_per_second, signals.running) == (Known(0.0, 300), Known(0.0, 300))


def test_g2_08_a_health_checkers_completion_is_a_real_request() -> None:
    assert folded(idle_minute(0), idle_minute(5, finished=51), seconds=300).counters_moved


# G5-09: five replicas with streams, one of which tells nothing


def test_g5_09_running_that_one_of_five_does_not_tell_is_not_known() -> None:
    line = Timeline(interval_seconds=15)
    line.at(0, **{f"pod{number}": pod(running=3 if number == 0 else 0, waiting=0) for number in range(5)})
    quiet = {f"pod{number}": pod(running=0, waiting=0) for number in range(4)}
    signals = line.at(15, **quiet, pod4=pod(waiting=0))
    assert signals.running == Stale(0.0, 15, at_least=0.0)
    assert line.at(30, **quiet, pod4=pod(running=0, waiting=0)).running == Known(0.0, 30)


# G3-01: the KV-cache gauge renamed

OLD = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.63\n'
NEW = 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.63\n'
QUEUE = 'vllm:num_requests_waiting{engine="0",model_name="m"} 3\n'


@pytest.mark.parametrize("body", [OLD, OLD + NEW, NEW], ids=["old", "both", "new"])
def test_g3_01_kv_use_is_the_same_under_either_name(body: str) -> None:
    signals = folded(QUEUE + body)
    assert (signals.kv_use_ratio, signals.kv_use_mean_ratio) == (Known(0.63, 0), Known(0.63, 0))
    assert signals.warnings == ()


def test_g3_01_under_no_name_it_is_unknown_with_one_warning_and_the_queue_works() -> None:
    signals = folded(QUEUE)
    assert signals.kv_use_ratio == Unknown("no endpoint reports kv_use")
    assert signals.waiting == Known(3.0, 0)
    assert signals.warnings == ("no KV-cache use in the metrics; batch adaptation by memory pauses",)


def test_g3_01_a_value_over_one_and_a_half_is_a_percentage_only_where_it_is_declared() -> None:
    assert isinstance(folded(QUEUE + NEW.replace("0.63", "63")).kv_use_ratio, Unknown)


# G3-02: frozen gauges, and an engine that hangs


def frozen(running: int, waiting: int, kv: float, tokens: int) -> str:
    return (
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
        f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}\n'
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {kv}\n'
        f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}\n'
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10\n'
    )


@pytest.mark.parametrize(
    ("running", "waiting", "kv", "moves", "stalled"),
    [(106, 15, 0.904, False, True), (106, 15, 0.904, True, False), (0, 6, 0.0, False, True)],
    ids=["A: frozen", "B: tokens move", "C: waiting without running"],
)
def test_g3_02_ten_minutes_of_the_same_gauges(
    running: int, waiting: int, kv: float, moves: bool, stalled: bool
) -> None:
    line = Timeline(interval_seconds=15)
    for seconds in range(0, 615, 15):
        body = frozen(running, waiting, kv, 9000 + seconds * moves)
        signals = line.at(float(seconds), a=page(body))
    assert signals.stalled_replicas == Known(float(stalled), 600)
    assert known_value(signals.waiting) == (0.0 if stalled else waiting)
    assert signals.counters_moved is moves
    assert line.history.progress_seconds("a") == (600.0 if stalled else 0.0)


# G3-03: several engines in one server

TWO_ENGINES = """\
vllm:num_requests_running{engine="0",model_name="m"} 7
vllm:num_requests_running{engine="1",model_name="m"} 9
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="1",model_name="m"} 4
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.8
"""
OTHER_MODEL = 'vllm:num_requests_waiting{engine="0",model_name="other"} 50\n'


@pytest.mark.parametrize(("extra", "model_name"), [("", None), ("", "m"), (OTHER_MODEL, "m")])
def test_g3_03_engines_of_one_server_are_summed_and_their_kv_use_is_the_greatest(
    extra: str, model_name: str | None
) -> None:
    signals = folded(TWO_ENGINES + extra, model_name=model_name)
    assert (signals.running, signals.waiting) == (Known(16.0, 0), Known(4.0, 0))
    assert (signals.kv_use_ratio, signals.kv_use_mean_ratio) == (Known(0.8, 0), Known(0.5, 0))
    assert signals.ready_replicas == Known(1.0, 0)  # capacity is per pod, not per engine


def test_g3_03_without_a_filter_two_models_are_summed_and_named() -> None:
    signals = folded(TWO_ENGINES + OTHER_MODEL)
    assert signals.waiting == Known(54.0, 0)
    assert any("2 models share the endpoint" in warning for warning in signals.warnings)


# G3-05: either separator after the prefix


@pytest.mark.parametrize(
    "spellings",
    [("sglang:",), ("sglang_",), ("sglang:", "sglang_"), ("sglang_", "sglang:")],
    ids=lambda each: str(each),
)
def test_g3_05_sglangs_queue_under_either_spelling_is_never_counted_twice(spellings: tuple[str, ...]) -> None:
    body = "".join(f'{prefix}num_queue_reqs{{model_name="m"}} 4\n' for prefix in spellings)
    assert folded(body, engine="sglang").waiting == Known(4.0, 0)


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_"])
def test_g3_05_a_collector_that_renamed_vllm_is_understood(prefix: str) -> None:
    assert folded(TWO_ENGINES.replace("vllm:", prefix)).waiting == Known(4.0, 0)


# G3-07: the LoRA clock, and models with slashes in their names

LORA = """\
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="sql"} 1.76e9
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.7599e9
"""


@pytest.mark.parametrize("name", ["/data/models/gemma (v2)", "org/m+x", 'a"b'])
def test_g3_07_a_model_is_matched_exactly_and_the_lora_clock_is_no_queue(name: str) -> None:
    label = name.replace('"', '\\"')
    body = LORA + f'vllm:num_requests_waiting{{model_name="{label}"}} 3\n' + OTHER_MODEL
    signals = folded(body, model_name=name)
    assert signals.waiting == Known(3.0, 0)
    assert all(signal.value < 1e6 for _, signal in signals.items() if isinstance(signal, Known))  # type: ignore[operator]


def test_g3_07_an_adapters_name_is_no_model_and_the_models_there_are_named() -> None:
    signals = folded(LORA + 'vllm:num_requests_waiting{model_name="/data/models/gemma (v2)"} 3\n', model_name="sql")
    assert isinstance(signals.waiting, Unknown)
    assert 'no metrics of model_name="sql"; the models that are there: "/data/models/gemma (v2)"' in signals.warnings


# G3-09: Triton and TGI

TRITON = """\
nv_inference_queue_duration_us{{model="m",version="1"}} {queue_us}
nv_inference_request_success{{model="m",version="1"}} {finished}
"""
PENDING = 'nv_inference_pending_request_count{model="m",version="1"} 12\n'
BEFORE, AFTER = TRITON.format(queue_us="1.000e9", finished=500), TRITON.format(queue_us="1.090e9", finished=530)


def test_g3_09_a_tritons_pending_gauge_is_its_queue() -> None:
    signals = folded(BEFORE + PENDING, AFTER + PENDING, engine="triton")
    assert signals.waiting == Known(12.0, 30)
    assert signals.warnings == ()


def test_g3_09_without_b_the_queue_is_estimated_from_the_time_spent_in_it_and_says_so() -> None:
    signals = folded(BEFORE, AFTER, engine="triton")
    assert known_value(signals.waiting) == pytest.approx(3.0)
    queue = known_value(signals.queue_seconds)
    assert queue is not None
    assert queue.mean_seconds == pytest.approx(3.0)
    assert signals.warnings == ("waiting is estimated from nv_inference_queue_duration_us",)
    assert known_value(signals.arrivals_per_second) == pytest.approx(1.0)


def test_g3_09_after_the_first_scrape_alone_an_estimate_is_unknown() -> None:
    assert isinstance(folded(BEFORE, engine="triton").waiting, Unknown)


def test_g3_09_tgi_has_its_own_words_and_no_time_to_first_token() -> None:
    signals = folded("tgi_queue_size 6\ntgi_batch_current_size 14\n", engine="tgi")
    assert (signals.waiting, signals.running) == (Known(6.0, 0), Known(14.0, 0))
    assert signals.ttft_seconds == NotApplicable("engine tgi: it measures no time to the first token")


def test_g3_09_the_wrong_engine_is_said_with_the_prefix_that_was_found() -> None:
    with pytest.raises(ExpositionError, match="the body has nv_ metrics; is engine: tgi right"):
        page(BEFORE, "tgi")


# The rules behind the derived numbers, for any input


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 1000), st.booleans(), st.booleans()), min_size=2, max_size=9
    )
)
def test_an_estimated_queue_is_never_negative_and_never_more_than_the_time_that_was_counted(
    reads: list[tuple[int, int, bool, bool]],
) -> None:
    """Whatever resets (a value that falls), vanishes or cannot be read in between."""
    line = Timeline(interval_seconds=30)
    for number, (queue_us, finished, lost, missing) in enumerate(reads):
        body = TRITON.format(queue_us=queue_us, finished=finished)
        if missing:
            body = body.splitlines()[1] + "\n"
        signals = line.at(30.0 * number, a=down() if lost else page(body, "triton"))
        if isinstance(signals.waiting, Known | Stale):
            assert 0.0 <= signals.waiting.value <= 10**9 / 1e6 / 30 + 1e-9
        queue = signals.queue_seconds
        if isinstance(queue, Known | Stale):
            assert 0.0 <= queue.value.mean_seconds < math.inf
            assert queue.value.p95.high == math.inf


@given(
    st.randoms(use_true_random=False), st.sampled_from(["sglang", "tgi", "triton", "trtllm", "lmdeploy", "rayserve"])
)
def test_the_order_of_a_pages_lines_changes_nothing(rng: random.Random, engine: str) -> None:
    lines = (BODIES / f"{engine}.txt").read_text().splitlines(keepends=True)
    shuffled = list(lines)
    rng.shuffle(shuffled)
    straight, mixed = page("".join(lines), engine), page("".join(shuffled), engine)
    assert mixed.gauges == pytest.approx(straight.gauges)
    assert mixed.counters == straight.counters
    assert mixed.histograms == straight.histograms
