"""How long one step of a continuous-batching engine takes, as a formula with constants fitted to measurements::

    step_ms = a + b · sequences + c · context tokens + d · prefill tokens

``a`` is reading the weights, ``b`` the work per sequence, ``c`` reading the KV cache, ``d`` the prompts' compute.
"""

from __future__ import annotations

from scaler.value import frozen


@frozen
class StepCost:
    """The four constants of the step time, milliseconds."""

    base_ms: float
    per_sequence_ms: float
    per_context_token_ms: float
    per_prefill_token_ms: float

    def seconds(self, sequences: int, context_tokens: int, prefill_tokens: int) -> float:
        """How long one step takes with so much work in it."""
        milliseconds = (
            self.base_ms
            + self.per_sequence_ms * sequences
            + self.per_context_token_ms * context_tokens
            + self.per_prefill_token_ms * prefill_tokens
        )
        return milliseconds / 1000.0


@frozen
class Hardware:
    """A model on its accelerators: how long a step takes, how many tokens the KV cache holds, how many GPUs it is."""

    cost: StepCost
    kv_tokens: int
    gpus: int = 1


#: Fits to measurements that NVIDIA's aiconfigurator publishes (aiconfigurator-core 0.12.0,
#: ``systems/silicon_sample.csv``); the last one to those of splitwise-sim (``data/perf_model.csv``). The rows are in
#: ``tests/lab/data``; how far the model is off them, `benchmarks/README.md` says.
HARDWARE = {
    "llama-3.1-8b-h100": Hardware(StepCost(6.42, 0.0, 0.0000499, 0.0196), 458_000),
    "llama-3.1-70b-fp8-4xh100": Hardware(StepCost(11.0, 0.055, 0.0000279, 0.0446), 484_000, 4),
    # No KV size is published with the others. Of Qwen3-32B on two: 0.9 of 160 GB less 66 GB of weights and 4 GB of
    # working memory, at 256 KiB a token (64 layers, 8 KV heads of 128, 16 bits). The other two: as the 70B.
    "qwen3-32b-2xh100": Hardware(StepCost(13.96, 0.057, 0.0000542, 0.0490), 280_000, 2),
    "qwen3-32b-4xh100": Hardware(StepCost(9.26, 0.061, 0.0000253, 0.0288), 484_000, 4),
    "llama-2-70b-8xa100": Hardware(StepCost(44.1, 0.19, 0.000335, 0.155), 484_000, 8),
}
