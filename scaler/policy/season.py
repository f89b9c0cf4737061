"""The season of a workload's arrivals: the ``season`` part of the policy."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field

from scaler.policy.group import Group
from scaler.policy.zone import Zone

#: What is learned is kept by slots of this length, seconds.
SLOT_SECONDS = 900
SLOTS_A_DAY = 86_400 // SLOT_SECONDS


class Seasonal(Group):
    """What usually comes at this time of the week, learned from this workload's own arrivals, and bought for a cold
    start ahead. Nothing is bought while no such pattern shows.
    """

    enabled: bool = True
    """Whether replicas are bought for it. It is learned in any case."""
    zone: Zone = "UTC"
    """IANA time zone by which the callers live, for example Europe/Berlin: their day keeps its hours when the clocks
    change."""
    quantile: Annotated[float, Field(ge=0.5, le=0.99)] = 0.5
    """Of what such a slot usually brings, this quantile is bought for; 0.9 buys more for days that differ much."""

    def slot(self, utc: datetime) -> int:
        """The slot of local time that ``utc`` (timezone-aware) lies in: 96 to a day, numbered through from Monday,
        1 January of year 1. A day of 25 hours has four slots twice, one of 23 hours lacks four.
        """
        local = utc.astimezone(ZoneInfo(self.zone))
        return (local.toordinal() - 1) * SLOTS_A_DAY + (local.hour * 3600 + local.minute * 60) // SLOT_SECONDS
