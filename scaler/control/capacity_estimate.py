"""What one replica serves within its objectives, and how that is known (:mod:`scaler.control.capacity`)."""

from __future__ import annotations

from scaler.value import frozen


@frozen
class CapacityEstimate:
    """What one replica serves within its objectives, and where that belief comes from.

    ``requests_per_second`` (μ*) is None until a residence time has been measured or a value declared. ``low`` and
    ``high`` are between what measurement alone puts ``sequences`` (None: nothing measured; ``high`` inf: no end seen),
    ``windows`` how many windows it has seen. ``load_share`` is the share of L° (the concurrency at which the
    objective just holds) that ``sequences`` are.
    """

    sequences: float
    requests_per_second: float | None
    source: str
    low: float | None = None
    high: float | None = None
    windows: int = 0
    load_share: float = 0.75

    def at_share(self, share: float) -> CapacityEstimate:
        """The same replica, loaded to ``share`` of L°."""
        factor = share / self.load_share
        rate = None if self.requests_per_second is None else self.requests_per_second * factor
        sequences = self.sequences * factor
        return CapacityEstimate(sequences, rate, self.source, self.low, self.high, self.windows, share)

    @property
    def assumed(self) -> bool:
        """Whether it is neither declared nor measured nor shown by a cap: a guess that decides nothing by itself."""
        return self.source == "prior"
