"""What readers see of the registry of workloads: the exporter and the HTTP API need this much and nothing more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from scaler.control.model import Override
from scaler.policy.layers import Resolved
from scaler.serve.inbox import DemandInbox
from scaler.serve.ownership import Told
from scaler.serve.snapshot import Adjustment, Snapshot
from scaler.serve.timeline import Timeline


class PublishedWorkload(Protocol):
    """One workload as a reader sees it. ``version`` rises with every tick, ``generation`` when the engine's targets do.

    ``decisions_total`` counts by (target, direction, code), ``dropped_series_total`` the series left out, once at each
    read; ``adjustments`` is oldest first.
    """

    @property
    def name(self) -> str: ...
    @property
    def resolved(self) -> Resolved: ...
    @property
    def inbox(self) -> DemandInbox: ...
    @property
    def snapshot(self) -> Snapshot | None: ...
    @property
    def owner(self) -> str | None: ...
    @property
    def guarded_mono(self) -> float | None: ...
    @property
    def version(self) -> int: ...
    @property
    def adjustments(self) -> Sequence[Adjustment]: ...
    @property
    def decisions_total(self) -> Mapping[tuple[str, str, str], int]: ...
    @property
    def dropped_series_total(self) -> int: ...
    @property
    def timeline(self) -> Timeline: ...


class PublishedWorkloads(Protocol):
    """The registry as a reader sees it (:class:`scaler.serve.workloads.Workloads`)."""

    @property
    def ready(self) -> bool:
        """Whether the loop has completed a round since it was known who owns what."""

    @property
    def tick_seconds(self) -> float:
        """The loop's period."""

    def names(self) -> Sequence[str]:
        """Every known workload's name, ``namespace/name``."""

    def get(self, name: str) -> PublishedWorkload | None:
        """The workload of that name, None where there is none."""

    def asked(self, workload: Any) -> None:
        """Note that somebody still wants to know: a workload that nobody asks for is forgotten."""

    async def tell(self, workload: Any, told: Told) -> None:
        """Take what was pushed to whoever ticks the workload. Raises TooManySourcesError, and OwnerUnheard where that
        one cannot be reached.
        """

    async def set_override(self, workload: Any, override: Override | None) -> None:
        """Take an operator's override (None: its end) to whoever ticks the workload, who then does so at once. Raises
        OwnerUnheard where it cannot be made known.
        """

    async def wait_change(self, workload: Any, version: int, timeout: float) -> None:
        """Return when the workload's version is above ``version``, or after ``timeout`` seconds."""

    def evaluate_soon(self, workload: Any) -> None:
        """Have the workload ticked at once, not at its next turn."""

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is young enough to be believed, which it is not once the loop is dead."""

    def mono(self) -> float:
        """Monotonic seconds, the clock of ``Signal.at`` and ``Now.mono``."""

    def utc(self) -> datetime:
        """The time of day, timezone-aware."""
