"""One node agent: its parts, and what they tell each other."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import structlog

from scaler.agent.agent_metrics import AgentState
from scaler.agent.engine_follower import EngineFollower
from scaler.agent.engine_watch import EngineWatch
from scaler.agent.engines import EngineName, EngineOptions, adapter_for, sleeper_for
from scaler.agent.gpu_watch import GpuWatch
from scaler.agent.guard_loop import GuardLoop
from scaler.agent.holders import PodResources
from scaler.agent.local_guard import LocalGuard
from scaler.agent.relay import Relay, ScalerAddress
from scaler.agent.ruling import Ruling, rule
from scaler.agent.rung_follower import RungFollower
from scaler.agent.served_target import ServedTargets
from scaler.consume.contract import AppliedReport, ServedTarget
from scaler.consume.link import LOOK_SECONDS as LINK_LOOK_SECONDS
from scaler.consume.link import EngineLink
from scaler.consume.rung_link import RungLink
from scaler.policy.model import Policy
from scaler.process.options import Address
from scaler.signals.nvml import LocalGpus
from scaler.value import frozen

log = structlog.get_logger(__name__)


#: Where an engine that asks for its target itself finds it. On loopback: who reaches it speaks to the scaler as we do.
TARGET_HTTP = Address("127.0.0.1", 9411)
#: How often an engine is asked what it runs with, where its answer also tells of a queue that nobody else sees.
LOOK_SECONDS = {EngineName.ENVOY: 2.0}
#: How often it is looked whether something else rules: a target expires without anybody saying so.
RULING_SECONDS = 1.0


@frozen
class AgentOptions:
    """What one agent does. Without ``engine`` it only reads and exports GPUs; without ``scaler`` only the guard rules.

    ``workload`` is "namespace/name", ``replica`` and ``pod`` ("namespace/name") are the engine's pod. ``metrics_url``
    is the engine's page, "" where no guard is wanted. ``pod_resources``: the kubelet's socket, "" where it isn't asked.
    """

    http: Address
    policy: Policy
    workload: str = ""
    replica: str = ""
    pod: str = ""
    scaler: ScalerAddress | None = None
    engine: EngineOptions | None = None
    metrics_url: str = ""
    target_http: Address = TARGET_HTTP
    gpu_metrics: bool = False
    pod_resources: str = ""
    grace_seconds: float = 15.0


class Agent:
    """The parts of one agent and what they tell each other. ``mono`` is the monotonic time."""

    def __init__(
        self,
        options: AgentOptions,
        session: aiohttp.ClientSession,
        gpus: LocalGpus,
        *,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._mono = mono
        self.pods = PodResources(options.pod_resources) if options.pod_resources else None
        self.gpus = GpuWatch(gpus, self.pods, pod=options.pod, environment=os.environ)
        self.relay = Relay(session, options.scaler, mono=mono, changed=self._changed) if options.scaler else None
        self.guard = self._guard_loop(session)
        self.follower: EngineFollower | None = None
        self.served: ServedTargets | None = None
        self.rung: RungFollower | None = None
        if options.engine is not None:
            self._with_engine(options.engine, session)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What runs for ever."""
        parts = (self.gpus, self.pods, self.relay, self.guard, self.follower, self.rung)
        loops = [part.run() for part in parts if part is not None]
        return [*loops, self._watch_ruling()] if self._options.engine else loops

    def ruling(self) -> Ruling:
        """What rules the engine now."""
        return rule(self._target(), self.guard.guard if self.guard else LocalGuard())

    def state(self) -> AgentState:
        """Everything that is told, now."""
        target, relay, guard = self._target(), self.relay, self.guard
        ends = relay.ends_mono if relay else None
        return AgentState(
            gpus=self.gpus.telemetry,
            holders=self.gpus.holders,
            workload=self._options.workload,
            replica=self._options.replica,
            target=target,
            target_seconds=None if target is None or ends is None else max(ends - self._mono(), 0.0),
            scaler_up=None if relay is None else not relay.trouble,
            guard=guard.guard if guard else None,
            guard_moves=(guard.lowered, guard.raised) if guard else (0, 0),
            engine_read=None if guard is None else not guard.engine.trouble,
            ruling=self.ruling() if self._options.engine else None,
            followed=self.follower.followed if self.follower else None,
            changes=self.follower.changes if self.follower else 0,
            slept=self.rung.slept if self.rung else None,
            rung_changes=self.rung.changes if self.rung else 0,
        )

    def _target(self) -> ServedTarget | None:
        return self.relay.target() if self.relay else None

    def _in_force(self) -> int | None:
        """The batch that rules without the guard."""
        target = self._target()
        if target is not None and target.batch_size is not None:
            return target.batch_size
        batch = self.follower.followed.batch if self.follower else None
        own = None if batch is None else batch.own or batch.most
        return self._options.engine.own_batch if own is None and self._options.engine else own

    def _guard_loop(self, session: aiohttp.ClientSession) -> GuardLoop | None:
        options = self._options
        if options.engine is None or not options.metrics_url:
            return None
        engine = EngineWatch(session, options.metrics_url, options.policy, mono=self._mono, gpus=self.gpus.engines_own)
        return GuardLoop(engine, options.policy, mono=self._mono, in_force=self._in_force, changed=self._changed)

    def _with_engine(self, engine: EngineOptions, session: aiohttp.ClientSession) -> None:
        sleeper = sleeper_for(engine, session)
        if sleeper is not None:
            self.rung = RungFollower(
                RungLink(sleeper, mono=self._mono),
                self._options.replica,
                self.ruling,
                mono=self._mono,
                report=self.relay.report if self.relay else None,
            )
        adapter = adapter_for(engine, session)
        if adapter is None:
            self.served = ServedTargets(self._options.workload, self.ruling, self._forward)
            return
        self.follower = EngineFollower(
            EngineLink(
                adapter,
                mono=self._mono,
                look_seconds=LOOK_SECONDS.get(engine.engine, LINK_LOOK_SECONDS),
                reload_seconds=engine.reload_seconds,
            ),
            self._options.replica,
            self.ruling,
            mono=self._mono,
            report=self.relay.report if self.relay else None,
            demand=self.relay.demand if self.relay else None,
            running=(lambda: self.guard.engine.running if self.guard else None),
        )

    async def _forward(self, report: AppliedReport) -> bool:
        told = report if self.rung is None else self.rung.completed(report)
        return await self.relay.report(told) if self.relay else True

    async def _watch_ruling(self) -> None:
        """Say it, and wake who waits for it, when something else rules."""
        before = Ruling()
        while True:
            ruling = self.ruling()
            if ruling.tag != before.tag:
                log.info(
                    "ruling",
                    ruler=ruling.ruler,
                    batch_size=ruling.batch_size,
                    before=before.batch_size,
                    token_budget=ruling.token_budget,
                    admission=ruling.admission,
                    rung=ruling.rung,
                    generation=ruling.generation,
                )
                before = ruling
                self._changed()
            await asyncio.sleep(RULING_SECONDS)

    def _changed(self) -> None:
        if self.follower is not None:
            self.follower.changed()
        if self.served is not None:
            self.served.changed()
        if self.rung is not None:
            self.rung.changed()
