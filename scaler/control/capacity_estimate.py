"""What one replica serves within its objectives, and how that is known (:mod:`scaler.control.capacity`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CapacityEstimate:
    """What one replica serves within its objectives, and where that belief comes from.

    ``requests_per_second`` (μ*) is None until a residence time has been measured or a value declared. ``low`` and
    ``high`` are between what measurement alone puts ``sequences`` (None: nothing measured; ``high`` inf: no end seen),
    ``windows`` how many windows it has seen.
    """

    sequences: float
    requests_per_second: float | None
    source: str
    low: float | None = None
    high: float | None = None
    windows: int = 0

    @property
    def assumed(self) -> bool:
        """Whether it is neither declared nor measured nor shown by a cap: a guess that decides nothing by itself."""
        return self.source == "prior"
