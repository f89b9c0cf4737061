"""The registry of workloads: who is known, under which policy, and what was last decided for each.

Everything here is touched only from the event loop. Whoever asks reads ``Workload.snapshot``; only the loop replaces
it, so asking never advances anything.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from scaler.control.model import Memory
from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile, Resolved
from scaler.policy.metadata import fingerprint
from scaler.serve.inbox import DemandInbox
from scaler.serve.snapshot import Adjustment, Snapshot
from scaler.signals.preset import Preset, PresetError, load_preset
from scaler.signals.window import History

log = structlog.get_logger(__name__)

#: How long a workload's very first call may wait for its first tick, seconds (DESIGN section 5).
FIRST_TICK_SECONDS = 1.0
#: Adjustments kept per workload for ``/decisions`` and ``explain``.
ADJUSTMENTS_KEPT = 200
#: An edited ScaledObject changes its metadata once. Metadata that changes to and fro this often within this long comes
#: from two triggers of one ScaledObject, which would be answered from two policies and added up by nobody.
CONFLICT_CHANGES, CONFLICT_SECONDS = 3, 180.0

_NAME_PART = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(slots=True, eq=False)
class Workload:
    """One workload's live state. ``version`` rises with every tick; wait for it with :meth:`Workloads.wait_change`.

    ``away_seconds`` is set after a restart: how long the scaler was away, still to be credited to the idle timer or
    not, as ``watermark`` (what the activity counters read when last stored) will tell once they are read again.
    """

    name: str
    resolved: Resolved
    preset: Preset
    metadata: dict[str, str] | None
    inbox: DemandInbox
    memory: Memory = field(default_factory=Memory)
    history: History = field(default_factory=History)
    snapshot: Snapshot | None = None
    version: int = 0
    generation: int = 0
    watermark: dict[str, list[object]] | None = None
    away_seconds: float = 0.0
    adjustments: deque[Adjustment] = field(default_factory=lambda: deque(maxlen=ADJUSTMENTS_KEPT))
    decisions_total: dict[tuple[str, str, str], int] = field(default_factory=dict)
    ticking: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiters: set[asyncio.Future[None]] = field(default_factory=set)
    metadata_changes: deque[float] = field(default_factory=lambda: deque(maxlen=CONFLICT_CHANGES))


class Workloads:
    """Every workload known to this scaler.

    ``tick_seconds`` is the loop's period; ``mono`` and ``utc`` give the time. ``evaluate`` is set by the loop: it
    evaluates one workload at once.
    """

    def __init__(
        self,
        policies: PolicyFile,
        *,
        tick_seconds: float,
        mono: Callable[[], float] = time.monotonic,
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.policies = policies
        self.tick_seconds = tick_seconds
        self.mono = mono
        self.utc = utc
        self.ready = False
        self.evaluate: Callable[[Workload], object] | None = None
        self._known: dict[str, Workload] = {}
        for name in policies.workloads:
            self._add(name, None)

    def names(self) -> list[str]:
        """Every known workload, sorted."""
        return sorted(self._known)

    def get(self, name: str) -> Workload | None:
        """The workload of this ``namespace/name``, if known."""
        return self._known.get(name)

    def validate(self, name: str, metadata: Mapping[str, str]) -> None:
        """Check a name and metadata without registering anything. Raises :class:`PolicyError`."""
        self._resolve(name, metadata)

    def register(self, name: str, metadata: Mapping[str, str]) -> Workload:
        """The workload a ScaledObject's call is about; made known, and evaluated at once, by its first call.

        Raises :class:`PolicyError` for a bad name or metadata, and where two triggers of one ScaledObject disagree.
        """
        workload = self._known.get(name)
        if workload is None:
            workload = self._add(name, dict(metadata))
            log.info("workload registered", workload=name, warnings=list(workload.resolved.warnings))
            self.evaluate_soon(workload)
        elif workload.metadata is None or fingerprint(workload.metadata) != fingerprint(metadata):
            self._adopt(workload, metadata)
        return workload

    def restore(self, name: str, metadata: Mapping[str, str] | None) -> Workload | None:
        """A workload the store remembers, known again before anyone calls; None where its policy is gone or bad."""
        if name in self._known:
            return self._known[name]
        if metadata is None:
            return None
        try:
            return self._add(name, dict(metadata))
        except PolicyError as error:
            log.warning("remembered workload has no valid policy any more", workload=name, problems=error.problems)
            return None

    async def first_snapshot(self, workload: Workload) -> Snapshot | None:
        """The workload's snapshot; the very first call waits for the first tick, at most one second."""
        if workload.snapshot is None:
            await self.wait_change(workload, workload.version, FIRST_TICK_SECONDS)
        return workload.snapshot

    async def wait_change(self, workload: Workload, version: int, timeout: float) -> None:
        """Return when the workload has ticked past ``version``, or after ``timeout`` seconds."""
        if workload.version > version:
            return
        ticked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        workload.waiters.add(ticked)
        try:
            await asyncio.wait((ticked,), timeout=timeout)
        finally:
            workload.waiters.discard(ticked)

    def publish(self, workload: Workload, snapshot: Snapshot) -> None:
        """Replace the workload's snapshot and wake whoever waits for it. The loop's alone."""
        workload.snapshot = snapshot
        workload.version += 1
        for waiter in workload.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def evaluate_soon(self, workload: Workload) -> None:
        """Ask for a tick of this workload now; without a running loop it waits for the next one."""
        if self.evaluate is not None:
            self.evaluate(workload)

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is of a living loop: older than three ticks and a source's time limit, it is not."""
        allowed = 3 * self.tick_seconds + snapshot.policy.scrape.timeout_seconds
        return self.mono() - snapshot.decided_at.mono <= allowed

    def replace_policies(self, policies: PolicyFile) -> None:
        """Go over to another policy file: workloads it declares anew become known, those it no longer declares and
        nobody calls are forgotten, the others take their new policy and keep their memory.

        Raises :class:`PolicyError` before anything is changed, if a workload it declares names an unknown engine.
        """
        before, self.policies = self.policies, policies
        try:
            resolved = {name: self._resolve(name, None) for name in policies.workloads if name not in self._known}
            resolved |= {
                name: self._resolve(name, workload.metadata)
                for name, workload in self._known.items()
                if name in policies.workloads or workload.metadata is not None
            }
        except PolicyError:
            self.policies = before
            raise
        for name in self._known.keys() - resolved.keys():
            del self._known[name]
        for name, (policy, preset) in resolved.items():
            workload = self._known.get(name)
            if workload is None:
                self._add(name, None)
            else:
                workload.resolved, workload.preset = policy, preset

    def _adopt(self, workload: Workload, metadata: Mapping[str, str]) -> None:
        resolved, preset = self._resolve(workload.name, metadata)
        now = self.mono()
        workload.metadata_changes.append(now)
        changes = workload.metadata_changes
        if len(changes) == CONFLICT_CHANGES and now - changes[0] <= CONFLICT_SECONDS:
            raise PolicyError(
                [
                    f"{workload.name}: this ScaledObject's calls carry two different scalerMetadata by turns; it has "
                    "two triggers for loadtide that disagree. Keep one, or give both the same metadata"
                ]
            )
        first = workload.metadata is None
        workload.metadata, workload.resolved, workload.preset = dict(metadata), resolved, preset
        if not first:
            log.info("workload metadata changed", workload=workload.name, warnings=list(resolved.warnings))
        self.evaluate_soon(workload)

    def _add(self, name: str, metadata: dict[str, str] | None) -> Workload:
        resolved, preset = self._resolve(name, metadata)
        inbox = DemandInbox(resolved.policy.push, self.mono, resolved.policy.replicas.load_timeout_seconds)
        workload = Workload(name, resolved, preset, metadata, inbox)
        self._known[name] = workload
        return workload

    def _resolve(self, name: str, metadata: Mapping[str, str] | None) -> tuple[Resolved, Preset]:
        parts = name.split("/")
        if len(parts) != 2 or not all(len(part) <= 253 and _NAME_PART.fullmatch(part) for part in parts):
            raise PolicyError([f"{name!r} is no workload name; it is the ScaledObject's namespace/name"])
        resolved = self.policies.resolve(name, metadata)
        try:
            return resolved, load_preset(resolved.policy.engine)
        except PresetError as error:
            raise PolicyError([f"{name}: engine: {error}"]) from error
