"""What a replica measures of itself: vLLM's counters and histograms, booked from a model engine's steps.

Bucket bounds and the moments of counting are vLLM 0.32's, read off a real one. Two readers: :mod:`scaler.lab.vllm_page`
writes them as a page, :meth:`Meters.sample` gives them to the window fold directly, as a scrape of that page would.
Counting takes longer than the engine's steps themselves, so that what nobody reads can be left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from scaler.lab.sequence import Sequence, Step
from scaler.lab.static_batching import AnyEngine
from scaler.signals.histogram import shared_bounds
from scaler.signals.observation import Buckets, EngineSample

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
    counts: list[float] = field(init=False)
    sum: float = 0.0
    _with_inf: tuple[float, ...] = field(init=False)
    _read: Buckets | None = None

    def __post_init__(self) -> None:
        self.counts = [0.0] * (len(self.bounds) + 1)
        self._with_inf = shared_bounds((*self.bounds, inf))

    def add(self, value: float, times: int = 1) -> None:
        """Observe ``value`` so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self._read = None

    def buckets(self) -> Buckets:
        """As the window fold takes a histogram series."""
        if self._read is None:
            cumulative = tuple(accumulate(self.counts))
            self._read = Buckets(self._with_inf, cumulative, self.sum, cumulative[-1])
        return self._read

    def cumulative(self) -> list[tuple[str, float]]:
        """(``le``, count of values up to it), as Prometheus exposes them."""
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


#: The gauges and counters the window fold reads, by its names.
GAUGES = ("running", "waiting", "kv_use", "kv_use_mean", "kv_capacity_tokens")
COUNTERS = ("finished", "preemptions", "prompt_tokens", "generation_tokens")
#: The histograms it reads, by its names, and vLLM's names for them.
HISTOGRAMS = {
    "ttft": "time_to_first_token_seconds",
    "tpot": "request_time_per_output_token_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "request_queue_time_seconds",
    "prefill": "request_prefill_time_seconds",
    "decode": "request_decode_time_seconds",
    "prompt_length": "request_prompt_tokens",
    "generation_length": "request_generation_tokens",
}
#: All that the window fold reads of an engine.
FOLDED = frozenset((*GAUGES, *COUNTERS, *HISTOGRAMS))


#: What is observed of a request when it has finished, in the order of :meth:`Meters._book_finished`.
_AT_THE_END = (
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "request_num_preemptions",
)


class Meters:
    """Books an engine's steps. ``max_model_len`` is the longest request, tokens. ``read``: the families that samples
    are wanted of, so that nothing else need be counted; None: all of them, and a page.
    """

    def __init__(self, engine: AnyEngine, *, max_model_len: int, read: frozenset[str] | None = None) -> None:
        self.engine = engine
        self.read = FOLDED if read is None else read
        self.has_page = read is None
        #: Whether anything is counted at all: gauges are the engine's own.
        self.counts = not self.read.issubset(GAUGES)
        tokens = one_two_five(max_model_len)
        self.preemptions = self.prompt_tokens = 0
        self.finished = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.distributions = {
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
        # Looked up once: a simulation books millions of steps.
        self._step_tokens = self.distributions["iteration_tokens_total"]
        self._first_token = self.distributions["time_to_first_token_seconds"]
        self._inter_token = self.distributions["inter_token_latency_seconds"]
        self._at_the_end = [self.distributions[name] for name in _AT_THE_END]
        self._sampled = {family: self.distributions[name] for family, name in HISTOGRAMS.items() if family in self.read}
        self._histograms: Mapping[str, Mapping[str, Buckets]] | None = None

    @property
    def generation_tokens(self) -> int:
        """Tokens of answers."""
        return self.engine.generated_tokens

    def book(self, steps: Iterable[Step]) -> None:
        """Count completed steps, as far as anybody reads what is counted."""
        if not self.counts:
            return
        for step in steps:
            if self.has_page:
                self._book_page(step)
            if step.preempted:
                self.preemptions += step.preempted
            if step.started or step.finished:
                self._histograms = None
                for sequence in step.started:
                    assert sequence.first_token_at is not None
                    # vLLM counts a prompt when its first token is out, whole, whatever was preempted meanwhile.
                    self.prompt_tokens += sequence.prompt_tokens
                    self._first_token.add(sequence.first_token_at - sequence.arrived_at)
                for sequence in step.finished:
                    self._book_finished(sequence)

    def _book_page(self, step: Step) -> None:
        for seconds, count in step.intervals:
            self._inter_token.add(seconds, count)
        self._step_tokens.add((step.prefill_tokens + step.generated_tokens) / step.steps, step.steps)

    def _book_finished(self, sequence: Sequence) -> None:
        admitted, first, finished = sequence.admitted_at, sequence.first_token_at, sequence.finished_at
        assert admitted is not None
        assert first is not None
        assert finished is not None
        self.finished["length"] += 1  # the model has no end token: every answer ends at max_tokens
        following = sequence.output_tokens - 1
        seen = self._at_the_end
        seen[0].add(sequence.prompt_tokens)
        seen[1].add(sequence.output_tokens)
        seen[2].add((finished - first) / following if following else 0.0)
        seen[3].add(finished - sequence.arrived_at)
        seen[4].add(admitted - sequence.arrived_at)
        seen[5].add(first - admitted)
        seen[6].add(finished - first)
        if self.has_page:
            seen[7].add(finished - admitted)
            seen[8].add(sequence.preemptions)

    def sample(self, at: float, process_start_seconds: float) -> EngineSample:
        """The numbers that are read, as a scrape at ``at`` (monotonic seconds) would give them to the window fold."""
        engine, read = self.engine, self.read
        if self._histograms is None:
            self._histograms = {family: {"": seen.buckets()} for family, seen in self._sampled.items()}
        use = engine.kv_use_ratio
        gauges = (float(engine.running), float(len(engine.waiting)), use, use, float(engine.hardware.kv_tokens))
        counted = (sum(self.finished.values()), self.preemptions, self.prompt_tokens, self.generation_tokens)
        return EngineSample(
            at=at,
            process_start_seconds=process_start_seconds,
            gauges={family: value for family, value in zip(GAUGES, gauges, strict=True) if family in read},
            counters={family: {"": float(n)} for family, n in zip(COUNTERS, counted, strict=True) if family in read},
            histograms=self._histograms,
        )
