"""Hours in which a GPU is dearer or cheaper than usual, and what then changes: the ``price`` part of the policy."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from scaler.policy.group import Group, Replicas, SomeReplicas
from scaler.policy.windows import Hours


class PriceWindow(Hours):
    """Daily hours with a price of their own, or with another balance between latency and throughput."""

    objective_factor: Annotated[float, Field(ge=0.5, le=5.0)] = 1.0
    """Every objective, and every critical bound, is this many times what is declared: above 1 fewer replicas serve more
    requests each, and each a little slower; below 1 the reverse."""
    floor: Replicas = 0
    """Never fewer replicas while the window is open."""
    ceiling: SomeReplicas | None = None
    """Never more replicas while the window is open. A floor above it wins."""
    hour_price: Annotated[float, Field(ge=0.0)] | None = None
    """What a GPU costs an hour meanwhile. Unset: gpu.hour_price."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.ceiling is not None and self.ceiling < self.floor:
            raise ValueError(f"ceiling ({self.ceiling}) is below floor ({self.floor})")
        return self


class Price(Group):
    """When a GPU has another price. What it costs otherwise is ``gpu.hour_price``."""

    windows: tuple[PriceWindow, ...] = ()
    """Daily windows; of overlapping ones the first in the list counts."""

    def open(self, utc: datetime) -> PriceWindow | None:
        """The window open at ``utc`` (timezone-aware), if any."""
        if not self.windows:
            return None
        return next((window for window in self.windows if window.contains(utc)), None)
