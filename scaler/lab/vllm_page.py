"""The ``/metrics`` page of a model engine, word for word as vLLM 0.32 would write it: names, types, labels, buckets.

Names, help texts and labels were read off the page of a real vLLM 0.32.0 under load. Left out is what
nothing here stands for: prefix and multimodal caches, LoRA, HTTP server statistics, ``_created`` gauges.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from scaler.lab.engine import Engine
from scaler.lab.meters import Meters
from scaler.lab.sequence import Step


class VllmPage:
    """Books an engine's steps and writes its page. ``max_model_len`` is the longest request, tokens."""

    def __init__(self, engine: Engine, *, model_name: str, max_model_len: int, process_start_seconds: float) -> None:
        self.meters = Meters(engine, max_model_len=max_model_len)
        self._labels = {"engine": "0", "model_name": model_name}
        self._process_start_seconds = process_start_seconds
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def book(self, step: Step) -> None:
        """Count one completed step."""
        self.meters.book((step,))

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
        meters, engine = self.meters, self.meters.engine
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
            "num_preemptions", "Cumulative number of preemption from the engine.", {(): meters.preemptions}
        )
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", {(): meters.prompt_tokens})
        yield self._counter(
            "generation_tokens", "Number of generation tokens processed.", {(): meters.generation_tokens}
        )
        yield self._counter(
            "request_success",
            "Count of successfully processed requests.",
            {(reason,): count for reason, count in meters.finished.items()},
            "finished_reason",
        )
        for name, seen in meters.distributions.items():
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
        tokens = str(self.meters.engine.hardware.kv_tokens)
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
