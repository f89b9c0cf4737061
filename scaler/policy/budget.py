"""How many GPU-hours a day or a month may take: the ``budget`` part of the policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from scaler.policy.group import Group
from scaler.policy.zone import Zone


class Budget(Group):
    """GPU-hours of one workload in a day or a month, and what happens when they are spent."""

    gpu_hours: Annotated[float, Field(gt=0.0, le=1e9)] | None = None
    """So many in each period. Unset: no budget."""
    per: Literal["day", "month"] = "month"
    """The period: a calendar day or month."""
    zone: Zone = "UTC"
    """IANA time zone in which it begins, at midnight."""
    at_end: Literal["warn", "cap"] = "warn"
    """``warn``: say so, and go on. ``cap``: no replica above the floor any more; what the floor takes until the period
    ends is set aside from the beginning. A floor is never undercut: where it alone takes more, it wins, and that is
    said. With a floor of 0 a spent budget takes the workload to zero."""

    def period(self, utc: datetime) -> tuple[str, datetime]:
        """The name of the period that ``utc`` (timezone-aware) lies in, ``2026-03-29`` or ``2026-03``, and when it ends
        (UTC). A day in which the clocks change has 23 or 25 hours.
        """
        zone = ZoneInfo(self.zone)
        local = utc.astimezone(zone)
        if self.per == "day":
            name, following = f"{local:%Y-%m-%d}", local.date() + timedelta(days=1)
        else:
            name, following = f"{local:%Y-%m}", (local.date().replace(day=28) + timedelta(days=4)).replace(day=1)
        return name, datetime(following.year, following.month, following.day, tzinfo=zone).astimezone(UTC)
