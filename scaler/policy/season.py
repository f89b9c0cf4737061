"""The season of a workload's arrivals: the ``season`` part of the policy."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from scaler.policy import promql
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
    source: str | None = None
    """A server that knows the past, by its name under ``sources:`` of the policy file: four weeks of arrivals are read
    from it once, so that the season need not be waited for."""
    query: Annotated[str, Field(min_length=1, max_length=4000)] | None = None
    """PromQL that gives this workload's arrivals per second as one series, for ``source``. Unset: by the engine's
    counter of requests and ``prometheus.match``. Where it may be at zero replicas add ``or vector(0)``."""
    quantile: Annotated[float, Field(ge=0.5, le=0.99)] = 0.5
    """Of what such a slot usually brings, this quantile is bought for; 0.9 buys more for days that differ much."""

    @field_validator("query")
    @classmethod
    def _readable(cls, query: str | None) -> str | None:
        try:
            return query if query is None or promql.read(query) else None
        except promql.PromqlError as error:
            raise ValueError(f"{error}; write PromQL that gives one number") from error

    def slot(self, utc: datetime) -> int:
        """The slot of local time that ``utc`` (timezone-aware) lies in: 96 to a day, numbered through from Monday,
        1 January of year 1. A day of 25 hours has four slots twice, one of 23 hours lacks four.
        """
        local = utc.astimezone(ZoneInfo(self.zone))
        return (local.toordinal() - 1) * SLOTS_A_DAY + (local.hour * 3600 + local.minute * 60) // SLOT_SECONDS
