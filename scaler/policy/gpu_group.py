"""Several workloads on one card: what is declared of who has which part of it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from scaler.policy.group import BatchSize, Group

#: Shares are given in decimals, and seven of them may add up to a little more than they mean.
DUST = 1e-9


class GpuGroup(Group):
    """A card shared with other workloads: each has a part of its own, and who is idle lends."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")] | None = None
    """The card's name; all that say the same share it. Each replica of a workload is then on a card of that kind,
    beside one of every other."""
    share_ratio: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """The part of the card that is this workload's own, of its time and of its memory. Those of one card come to 1 at
    most; what is nobody's is lent to nobody."""
    batch: BatchSize | None = None
    """The batch that fills that part. The batch bound moves with the part that it has: at half of it, half of this;
    never above ``batch.max``, nor below ``batch.min``."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        said = {"name": self.name, "share_ratio": self.share_ratio, "batch": self.batch}
        missing = [key for key, value in said.items() if value is None]
        if 0 < len(missing) < len(said):
            raise ValueError(f"{' and '.join(missing)} missing: name, share_ratio and batch are declared together")
        return self

    @property
    def declared(self) -> bool:
        """Whether the workload shares a card."""
        return self.name is not None
