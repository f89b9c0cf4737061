"""The registry of workloads: who is known, under which policy, and what was last decided for each.

Everything here is touched only from the event loop. Whoever asks reads ``Workload.snapshot``; only the loop replaces
it, so asking never advances anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

import structlog

from scaler.control.model import Override
from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile, Resolved
from scaler.policy.metadata import fingerprint, is_whole
from scaler.serve.applied import AppliedReports
from scaler.serve.inbox import DemandInbox
from scaler.serve.limits import Limits, check_room
from scaler.serve.ownership import Ownership, SoleOwner, Told, is_demand
from scaler.serve.refusals import Refusals
from scaler.serve.snapshot import Snapshot
from scaler.serve.timeline import moment
from scaler.serve.workload import CONFLICT_CHANGES, CONFLICT_SECONDS
from scaler.serve.workload import Workload as Workload
from scaler.serve.workload_policy import policy_and_preset
from scaler.signals.preset import Preset

log = structlog.get_logger(__name__)

#: How long a workload's very first call may wait for its first tick, seconds: KEDA asks with no deadline of its own,
#: and a slow answer keeps its other ScaledObjects waiting.
FIRST_TICK_SECONDS = 1.0
#: A loop that comes round later than this many ticks was stopped (a frozen process): in that time nobody could ask.
LATE_TICKS = 3.0


class Workloads:
    """Every workload known to this scaler.

    ``tick_seconds`` is the loop's period; ``mono`` and ``utc`` give the time. The loop sets ``evaluate``, which ticks
    one workload at once, ``recall``, which gives one that becomes known what the store remembers of it, and ``keep``,
    which stores one at once.
    """

    def __init__(
        self,
        policies: PolicyFile,
        *,
        tick_seconds: float,
        mono: Callable[[], float] = time.monotonic,
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
        limits: Limits = Limits(),  # noqa: B008  a frozen value
    ) -> None:
        self.policies = policies
        self.tick_seconds = tick_seconds
        self.mono = mono
        self.utc = utc
        self.ready = False
        self.evaluate: Callable[[Workload], object] | None = None
        self.recall: Callable[[Workload], object] | None = None
        self.keep: Callable[[Workload], Awaitable[None]] | None = None
        self.ownership: Ownership = SoleOwner()
        self._limits = limits
        self._known: dict[str, Workload] = {}
        self._refusals = Refusals()
        self._looked_mono = mono()
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
        workload = self._known.get(name)
        if workload is None or workload.metadata != metadata:  # the same as last time were found good then
            self._judge(name, metadata)

    def register(self, name: str, metadata: Mapping[str, str]) -> Workload:
        """The workload a ScaledObject's call is about; made known, and evaluated at once, by its first call.

        Raises :class:`PolicyError` for a bad name or metadata, and where two triggers of one ScaledObject disagree;
        :class:`scaler.serve.limits.LimitReached` where there are too many workloads for one more.
        """
        workload = self._known.get(name)
        if workload is None:
            found = self._judge(name, metadata)
            if name not in self.policies.workloads:
                called = [known for known in self._known if known not in self.policies.workloads]
                check_room(name, called, self.policies.tenancy.workloads_per_namespace, self._limits.workloads)
            workload = self._add(name, dict(metadata), found)
            log.info("workload registered", workload=name, warnings=list(workload.resolved.warnings))
            self.evaluate_soon(workload)
        # A comparison of two maps settles nearly every call; a fingerprint costs more than the rest of the answer.
        elif workload.seen != metadata or workload.metadata is not workload.seen:
            self._adopt(workload, metadata)
        workload.asked_mono = self.mono()
        return workload

    def asked(self, workload: Workload) -> None:
        """Note that somebody wants to know of this workload: an open stream, or a consumer of its target."""
        workload.asked_mono = self.mono()

    def learn(self, name: str, metadata: Mapping[str, str]) -> None:
        """Take over metadata that another scaler was called with, new or changed. Bad ones are logged and left."""
        workload = self._known.get(name)
        try:
            if workload is None:
                self._add(name, dict(metadata))
            elif workload.metadata != metadata:
                self._adopt(workload, metadata)
        except PolicyError as error:
            log.warning("metadata from another scaler refused", workload=name, problems=error.problems)

    def forget_unasked(self, after_seconds: float) -> list[Workload]:
        """Forget, and return, the workloads that nobody has asked for in ``after_seconds``: their ScaledObject is gone,
        or paused, which looks the same from here.

        Asking is a call of KEDA, an open stream, or a consumer polling the target: an engine that follows our batch
        keeps a paused workload evaluated. What the policy file declares is never forgotten. Pushed demand is no
        asking: a gateway does not know whether the ScaledObject still exists.
        """
        now = self.mono()
        gap, self._looked_mono = now - self._looked_mono, now
        if gap > LATE_TICKS * self.tick_seconds or self.ownership.deaf:
            for workload in self._known.values():
                workload.asked_mono += gap
        forgotten = [
            workload
            for name, workload in self._known.items()
            if name not in self.policies.workloads and now - workload.asked_mono > after_seconds
        ]
        for workload in forgotten:
            del self._known[workload.name]
            log.info("workload forgotten, nobody asks for it", workload=workload.name)
        return forgotten

    def restore(self, name: str, metadata: Mapping[str, str] | None) -> Workload | None:
        """A workload the store remembers, known again before anyone calls; None where its policy is gone, bad, or not
        all of it was stored.
        """
        if name in self._known:
            return self._known[name]
        if metadata is None or not is_whole(metadata):
            return None  # what was withheld from the store comes with the ScaledObject's next call
        try:
            return self._add(name, dict(metadata))
        except PolicyError as error:
            log.warning("remembered workload has no valid policy any more", workload=name, problems=error.problems)
            return None

    def at_hand(self, workload: Workload) -> Snapshot | None:
        """The snapshot to answer a further call from, noted as asked for; None where there is none to stand by, or
        anything must be found out first.
        """
        snapshot = self.ownership.at_hand(workload)
        if snapshot is None or not snapshot.decision.available or not self.is_current(snapshot):
            return None
        workload.asked_mono = self.mono()
        return snapshot

    async def first_snapshot(self, workload: Workload) -> Snapshot | None:
        """The snapshot to answer from; the very first call waits for the first tick, at most one second. Raises
        :class:`scaler.serve.ownership.OwnerUnheard`.
        """
        if workload.snapshot is None:
            await self.wait_change(workload, workload.version, FIRST_TICK_SECONDS)
        return await self.ownership.answer(workload)

    async def tell(self, workload: Workload, told: Told) -> None:
        """Take what was pushed to whoever ticks the workload, who does so at once where it is demand. Raises
        :class:`scaler.serve.inbox.TooManySourcesError`, :class:`scaler.serve.ownership.OwnerUnheard`.
        """
        await self.ownership.tell(workload, told)
        if is_demand(told):
            self.evaluate_soon(workload)

    async def set_override(self, workload: Workload, override: Override | None) -> None:
        """Let an operator's override (None: its end) rule, whoever ticks the workload; what returns is kept. Raises
        :class:`scaler.serve.ownership.OwnerUnheard`.
        """
        await self.ownership.set_override(workload, override)
        said = None if override is None else f"{override.by} until {override.until:%Y-%m-%d %H:%M:%S} UTC"
        log.info("override set" if override else "override ended", workload=workload.name, by=said)
        if self.keep is not None:
            await self.keep(workload)
        self.evaluate_soon(workload)

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
        workload.timeline.append(moment(snapshot))
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

        Metadata that does not go with the new file is its author's to mend, not the operator's: the workload goes on
        by the file alone where that declares it, is forgotten where not, and its next call is refused in words.

        Raises :class:`PolicyError` before anything is changed, if a workload it declares names an unknown engine.
        """
        before, self.policies = self.policies, policies
        try:
            resolved = {name: policy_and_preset(self.policies, name, None) for name in policies.workloads}
        except PolicyError:
            self.policies = before
            raise
        self._refusals.forget()
        for name, called in self._known.items():
            if called.metadata is None:
                continue
            try:
                resolved[name] = policy_and_preset(self.policies, name, called.metadata)
            except PolicyError as error:
                called.metadata = None
                log.warning("metadata does not go with the new policy", workload=name, problems=error.problems)
        for name in self._known.keys() - resolved.keys():
            del self._known[name]
        for name, (policy, preset) in resolved.items():
            workload = self._known.get(name)
            if workload is None:
                self._add(name, None)
            else:
                self._follow(workload, policy, preset)

    def _judge(self, name: str, metadata: Mapping[str, str]) -> tuple[Resolved, Preset]:
        """The policy and preset; the same refusal again costs no more reading."""
        self._refusals.again(name, metadata)
        try:
            return policy_and_preset(self.policies, name, metadata)
        except PolicyError as error:
            self._refusals.keep(name, metadata, error)
            raise

    def _adopt(self, workload: Workload, metadata: Mapping[str, str]) -> None:
        """Go over to the metadata of a call, unless calls of two triggers alternate."""
        workload.called = None
        resolved, preset = self._judge(workload.name, metadata)
        now, changes, first = self.mono(), workload.metadata_changes, workload.metadata is None
        changed = workload.seen is not None and fingerprint(workload.seen) != fingerprint(metadata)
        if changed and (not changes or now - changes[-1] > self.tick_seconds):
            workload.metadata_changes = changes = (*changes, now)[-CONFLICT_CHANGES:]
        workload.seen = dict(metadata)
        if len(changes) == CONFLICT_CHANGES and now - changes[0] <= CONFLICT_SECONDS:
            raise PolicyError(
                [
                    f"{workload.name}: this ScaledObject's calls carry two different scalerMetadata by turns; it has "
                    "two triggers for loadtide that disagree. Keep one, or give both the same metadata"
                ]
            )
        same = not first and fingerprint(workload.metadata or {}) == fingerprint(metadata)
        workload.metadata = workload.seen
        if same:
            return
        self._follow(workload, resolved, preset)
        if not first:
            log.info("workload metadata changed", workload=workload.name, warnings=list(resolved.warnings))
        self.evaluate_soon(workload)

    def _add(
        self, name: str, metadata: dict[str, str] | None, found: tuple[Resolved, Preset] | None = None
    ) -> Workload:
        resolved, preset = found or policy_and_preset(self.policies, name, metadata)
        inbox = DemandInbox(resolved.policy.push, self.mono)
        reports = inbox, AppliedReports(self.mono)
        workload = Workload(name, resolved, preset, metadata, metadata, *reports, asked_mono=self.mono())
        self._known[name] = workload
        if self.recall is not None:
            self.recall(workload)
        return workload

    def _follow(self, workload: Workload, resolved: Resolved, preset: Preset) -> None:
        """Put a known workload under another policy; what it remembers stays."""
        workload.called = None
        workload.resolved, workload.preset = resolved, preset
        workload.inbox.follow(resolved.policy.push)
