"""When a rise of arrivals is a jump, and what it buys at once: the declared or derived rows of the table."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, PositiveFloat, field_validator

from scaler.policy.group import BatchSize, Group, Seconds, SomeReplicas


class JumpRow(Group):
    """One row of the jump table: at this arrival rate, this batch on this many replicas (absolute, not a delta)."""

    rate_at_least: Annotated[float, Field(ge=0.0)]
    """Requests per second of the whole workload."""
    batch: BatchSize
    """Batch size of each replica."""
    replicas: SomeReplicas
    """Replicas of the workload."""


class Jump(Group):
    """A rise so steep that cooldowns are skipped and a table is read."""

    rows: tuple[JumpRow, ...] = ()
    """The table; the highest row whose ``rate_at_least`` is reached counts."""
    factor: Annotated[float, Field(gt=1.0)] = 2.0
    """Arrivals at least this many times the expected ones."""
    minimum_excess_requests: PositiveFloat = 5.0
    """And at least this many requests more than expected within the time looked at: at low rates ratios are noise."""
    hold_seconds: Seconds = 120.0
    """How long the jump's peak is held."""

    @field_validator("rows")
    @classmethod
    def _distinct(cls, rows: tuple[JumpRow, ...]) -> tuple[JumpRow, ...]:
        ordered = sorted(rows, key=lambda row: row.rate_at_least)
        for lower, upper in pairwise(ordered):
            if lower.rate_at_least == upper.rate_at_least:
                raise ValueError(f"two rows with rate_at_least {upper.rate_at_least:g}; keep one")
            if upper.replicas < lower.replicas:
                raise ValueError(
                    f"the row rate_at_least {upper.rate_at_least:g} has fewer replicas ({upper.replicas}) than the "
                    f"row rate_at_least {lower.rate_at_least:g} ({lower.replicas})"
                )
        return tuple(ordered)
