"""The ``/metrics`` page of a model engine, word for word as vLLM 0.32 would write it: names, types, labels, buckets.

Names, help texts, labels and bucket bounds were read off the page of a real vLLM 0.32.0 under load. Left out is what
nothing here stands for: prefix and multimodal caches, LoRA, HTTP server statistics, ``_created`` gauges.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from scaler.lab.engine import Engine, Sequence, Step

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
         160.0, 640.0, 2560.0)  # fmt: skip
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
            960.0, 1920.0, 7680.0)  # fmt: skip
_STEP_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def one_two_five(largest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to ``largest``: vLLM's bounds for token counts, which follow its ``--max-model-len``."""
    decades = (10**exponent for exponent in range(len(str(largest))))
    return tuple(float(bound) for decade in decades for bound in (decade, 2 * decade, 5 * decade) if bound <= largest)


@dataclass(slots=True)
class Distribution:
    """A histogram: upper bounds (+Inf is implied), how many fell into each bucket, and their sum."""

    help: str
    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Observe ``value`` so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """(``le``, count of values up to it), as Prometheus exposes them."""
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(names, (float(count) for count in accumulate(self.counts)), strict=True))


class VllmPage:
    """Books an engine's steps and writes its page. ``max_model_len`` is the longest request, tokens."""

    def __init__(self, engine: Engine, *, model_name: str, max_model_len: int, process_start_seconds: float) -> None:
        self._engine = engine
        self._labels = {"engine": "0", "model_name": model_name}
        self._process_start_seconds = process_start_seconds
        tokens = one_two_five(max_model_len)
        self._preemptions = self._prompt_tokens = self._generation_tokens = 0
        self._finished = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self._distributions = {
            name: Distribution(text, bounds)
            for name, text, bounds in (
                ("request_prompt_tokens", "Number of prefill tokens processed.", tokens),
                ("request_generation_tokens", "Number of generation tokens processed.", tokens),
                ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", _STEP_TOKENS),
                ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", _TTFT),
                ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _PER_TOKEN),
                (
                    "request_time_per_output_token_seconds",
                    "Histogram of time_per_output_token_seconds per request.",
                    _PER_TOKEN,
                ),
                ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", _REQUEST),
                ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", _REQUEST),
                ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", _REQUEST),
                ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", _REQUEST),
                ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", _REQUEST),
                (
                    "request_num_preemptions",
                    "Histogram of the number of times a request was preempted.",
                    _PREEMPTIONS,
                ),
            )
        }
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def book(self, step: Step) -> None:
        """Count one completed step."""
        seen = self._distributions
        self._preemptions += step.preempted
        self._generation_tokens += step.generated_tokens
        seen["iteration_tokens_total"].add(step.prefill_tokens + step.generated_tokens)
        for seconds, count in step.intervals:
            seen["inter_token_latency_seconds"].add(seconds, count)
        for sequence in step.started:
            assert sequence.first_token_at is not None
            # vLLM counts a prompt when its first token is out, whole, whatever was preempted meanwhile.
            self._prompt_tokens += sequence.prompt_tokens
            seen["time_to_first_token_seconds"].add(sequence.first_token_at - sequence.arrived_at)
        for sequence in step.finished:
            self._book_finished(sequence)

    def _book_finished(self, sequence: Sequence) -> None:
        admitted, first, finished = sequence.admitted_at, sequence.first_token_at, sequence.finished_at
        assert admitted is not None
        assert first is not None
        assert finished is not None
        self._finished["length"] += 1  # the model has no end token: every answer ends at max_tokens
        following = sequence.output_tokens - 1
        for name, value in (
            ("request_prompt_tokens", sequence.prompt_tokens),
            ("request_generation_tokens", sequence.output_tokens),
            ("request_time_per_output_token_seconds", (finished - first) / following if following else 0.0),
            ("e2e_request_latency_seconds", finished - sequence.arrived_at),
            ("request_queue_time_seconds", admitted - sequence.arrived_at),
            ("request_inference_time_seconds", finished - admitted),
            ("request_prefill_time_seconds", first - admitted),
            ("request_decode_time_seconds", finished - first),
            ("request_num_preemptions", sequence.preemptions),
        ):
            self._distributions[name].add(value)

    def text(self) -> bytes:
        """The page as of the last step booked, in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The families, for prometheus_client."""
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            value=self._process_start_seconds,
        )
        engine = self._engine
        waiting = len(engine.waiting)
        yield self._gauge("num_requests_running", "Number of requests in model execution batches.", engine.running)
        yield self._gauge("num_requests_waiting", "Number of requests waiting to be processed.", waiting)
        reasons = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            labels=(*self._labels, "reason"),
        )
        for reason, value in (("capacity", waiting), ("deferred", 0)):
            reasons.add_metric((*self._labels.values(), reason), value)
        yield reasons
        yield self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", engine.kv_use_ratio)
        yield self._counter(
            "num_preemptions", "Cumulative number of preemption from the engine.", {(): self._preemptions}
        )
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", {(): self._prompt_tokens})
        yield self._counter(
            "generation_tokens", "Number of generation tokens processed.", {(): self._generation_tokens}
        )
        yield self._counter(
            "request_success",
            "Count of successfully processed requests.",
            {(reason,): count for reason, count in self._finished.items()},
            "finished_reason",
        )
        for name, seen in self._distributions.items():
            family = HistogramMetricFamily(f"vllm:{name}", seen.help, labels=tuple(self._labels))
            family.add_metric(tuple(self._labels.values()), seen.cumulative(), seen.sum)
            yield family
        yield self._cache_config()

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=tuple(self._labels))
        family.add_metric(tuple(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, values: dict[tuple[str, ...], int], *labels: str) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=(*self._labels, *labels))
        for extra, value in values.items():
            family.add_metric((*self._labels.values(), *extra), value)
        return family

    def _cache_config(self) -> Metric:
        """The static facts of the KV cache; one token per block, as the model counts."""
        tokens = str(self._engine.hardware.kv_tokens)
        facts = {
            "block_size": "1",
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "engine": "0",
            "kv_cache_size_tokens": tokens,
            "num_gpu_blocks": tokens,
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=tuple(facts)
        )
        family.add_metric(tuple(facts.values()), 1.0)
        return family
