"""What is declared of the batch: its range, how it may move, and the queue that the ``queue`` strategy holds."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from scaler.policy.group import BatchSize, Group, Seconds


class Batch(Group):
    """The batch each replica should run: its range and how it may move."""

    min: BatchSize = 2
    """Never smaller."""
    max: BatchSize | None = None
    """Never larger: the engine's own cap (vLLM: ``--max-num-seqs``), which no metric tells."""
    start: BatchSize | None = None
    """The first value published. Unset: the engine's cap for ``adaptive`` with continuous batching, else 8."""
    batching: Literal["continuous", "static"] | None = None
    """How the engine forms its batches: requests join and leave at every step, or a batch waits to fill and is computed
    whole. Unset: as the engine's preset says."""
    cooldown_seconds: Seconds = 60.0
    """Between two ordinary changes. Never delays protection or a jump."""
    settle_seconds: Seconds = 15.0
    """After a protective shrink, how long to watch its effect before the next one."""
    up_factor: Annotated[float, Field(gt=1.0, le=16.0)] = 2.0
    """One step up multiplies by this."""
    down_factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """One step down multiplies by this. So does memory pressure where KV use does not tell how far to go; it never goes
    further at once."""
    workers_per_sequence: Annotated[float, Field(gt=0.0, le=64.0)] = 1.0
    """Workers published with the batch (connections or threads that a gateway keeps to one replica), per sequence."""
    token_budget: PositiveInt | None = None
    """The engine's tokens per step (vLLM: ``--max-num-batched-tokens``), if it may be changed."""
    token_budget_min: PositiveInt = 256
    """The token budget is never cut below this."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        if self.start is not None and not self.min <= self.start <= (self.max or self.start):
            raise ValueError(f"start ({self.start}) must lie in min..max ({self.min}..{self.max})")
        if self.token_budget is not None and self.token_budget < self.token_budget_min:
            raise ValueError(f"token_budget ({self.token_budget}) is below token_budget_min ({self.token_budget_min})")
        return self


class QueueTarget(Group):
    """The queue that the ``queue`` strategy, and static batching, hold: requests waiting per ready replica."""

    target: PositiveFloat = 10.0
    """The queue to hold: the batch is multiplied by what waits over this."""
    low: Annotated[float, Field(ge=0.0)] = 6.0
    """Below this the batch shrinks, towards the value it started from."""
    high: PositiveFloat = 15.0
    """Above this the batch grows."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.target < self.high:
            raise ValueError(
                f"low ({self.low:g}) < target ({self.target:g}) < high ({self.high:g}) must hold: between low and high "
                "nothing moves"
            )
        return self
