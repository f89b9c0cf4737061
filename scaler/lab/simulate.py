"""One policy on one trace: requests, replicas, scrapes, decisions, KEDA and the HPA, in simulated time.

What a policy sees is what production sees: samples of the replicas' own counters, taken every ``tick_seconds`` (and
lost at ``lost_share``), folded by the same window as in the server (:mod:`scaler.lab.looking`). It never sees the
trace. What it wishes is enacted by KEDA and the HPA as they were observed to behave (:mod:`scaler.lab.keda`), and a
replica takes its cold start.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListOf
from dataclasses import field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Protocol

from scaler.control.model import Now
from scaler.lab.fleet import Fleet, Replica, Request
from scaler.lab.hardware import Hardware
from scaler.lab.looking import looking
from scaler.lab.meters import FOLDED
from scaler.policy.model import Policy
from scaler.signals.model import Applied, Signals
from scaler.signals.observation import Demand, EngineSample, Observation, ReadFailure, ReplicaCounts
from scaler.value import frozen

#: Simulated time begins here (a Monday), and on this monotonic clock.
BEGIN_UTC, BEGIN_MONO = datetime(2026, 6, 1, tzinfo=UTC), 1_000_000.0


@frozen
class Wish:
    """What a policy wants in one tick.

    ``metric`` is the external metric's value, of which the HPA divides the total by the policy's ``metric_target``;
    None: the scaler answers UNAVAILABLE. ``batch`` None leaves the engines' batch alone, ``token_budget`` None is their
    own; while ``hold`` they admit nobody.
    """

    metric: float | None
    active: bool = True
    batch: int | None = None
    token_budget: int | None = None
    hold: bool = False


class LabPolicy(Protocol):
    """A policy in the lab. ``metric_target`` is the HPA's AverageValue target."""

    @property
    def name(self) -> str: ...
    @property
    def metric_target(self) -> float: ...
    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        """The wish for this tick, from what was measured; ``asked`` is the target's present replica count."""


class Enactor(Protocol):
    """KEDA and the HPA between a wish and the replica count."""

    def enact(self, wish: Wish, metric_target: float, current: int, seconds: float) -> int:
        """The replica count after this moment, given the latest wish; called once per second of simulated time."""


@frozen
class World:
    """What a simulation runs in. Lengths of the trace must fit the hardware's KV cache.

    ``lost_share`` is the probability that one replica's scrape is lost; ``initial_replicas`` stand ready at the start.
    ``fill_seconds``: of engines that batch statically, how long a batch waits to fill; None: they batch continuously.
    """

    hardware: Hardware
    cold_start_seconds: float
    batch: int
    initial_replicas: int = 1
    tick_seconds: float = 5.0
    lost_share: float = 0.0
    max_model_len: int = 131_072
    fill_seconds: float | None = None
    window: Policy = field(default_factory=Policy)


@frozen
class Moment:
    """One tick of the timeline, for pictures: times in seconds, rates per second."""

    at: float
    arrivals: float
    asked: int
    ready: int
    running: int
    waiting: int
    batch: int
    wish: float | None


@frozen
class Run:
    """The result: each request with its sequence, what was paid (replica-hours, drains included, times the GPUs of one
    replica), how often the count changed, the timeline, and how many requests still wait at the gateway.
    """

    fleet: Fleet
    gpu_hours: float
    replica_changes: int
    timeline: tuple[Moment, ...]
    unserved: int


def simulate(
    trace: ListOf[Request],
    policy: LabPolicy,
    enactor: Enactor,
    world: World,
    *,
    seconds: float,
    seed: int,
    reads: frozenset[str] = FOLDED,
    watch: Callable[[float, Fleet], None] | None = None,
) -> Run:
    """Run ``policy`` on ``trace`` (ordered by time) for ``seconds``. The same arguments give the same result.

    ``reads``: the families of the engines' metrics that the policy's signals are made of; none where it looks at no
    signal. The others are not measured, which saves time and changes nothing. ``watch`` is shown the fleet at every
    tick (seconds from the start), with everything measured, as a Prometheus beside the scaler would see it.
    """
    chance = Random(seed)
    fleet = Fleet(
        world.hardware,
        world.batch,
        world.cold_start_seconds,
        world.max_model_len,
        Random(chance.random()),
        world.fill_seconds,
        read=reads if watch is None else None,
    )
    fleet.start(world.initial_replicas)
    look, timeline, position = looking(reads, world.window, world.tick_seconds), [], 0
    wish = Wish(float(world.initial_replicas), active=world.initial_replicas > 0)
    ticks, target = int(seconds / world.tick_seconds), policy.metric_target
    arrived_before = 0
    for tick in range(1, ticks + 1):
        end = tick * world.tick_seconds
        start = end - world.tick_seconds
        for second in range(int(world.tick_seconds)):
            until = start + second + 1
            while position < len(trace) and trace[position].at < until:
                fleet.submit(trace[position])
                position += 1
            fleet.move(until)
            asked = fleet.asked
            wanted = enactor.enact(wish, target, asked, until)
            if wanted != asked:
                fleet.scale(wanted)
        fleet.settle()
        if watch is not None:
            watch(end, fleet)
        mono = BEGIN_MONO + end
        signals = look(_observe(fleet, mono, world, chance), mono, BEGIN_UTC.timestamp() + end) if reads else Signals()
        wish = policy.tick(signals, Now(BEGIN_UTC + timedelta(seconds=end), mono), fleet.asked)
        fleet.tell(batch=wish.batch, token_budget=wish.token_budget, hold=wish.hold)
        timeline.append(_moment(fleet, end, (position - arrived_before) / world.tick_seconds, wish))
        arrived_before = position
    fleet.close()
    return Run(
        fleet=fleet,
        gpu_hours=fleet.gpu_seconds / 3600.0 * world.hardware.gpus,
        replica_changes=fleet.changes,
        timeline=tuple(timeline),
        unserved=len(fleet.gateway),
    )


def _observe(fleet: Fleet, mono: float, world: World, chance: Random) -> Observation:
    endpoints: dict[str, EngineSample | ReadFailure] = {}
    for replica in fleet.ready:
        if world.lost_share and chance.random() < world.lost_share:
            endpoints[replica.name] = ReadFailure(mono, "scrape lost")
        else:
            endpoints[replica.name] = replica.meters.sample(mono, BEGIN_UTC.timestamp() + replica.ready_at)
    # A cluster tells both: that no endpoint is ready, and how many replicas there should be.
    absent = None if fleet.ready else "no replica is ready"
    counts = ReplicaCounts(mono, ready=len(fleet.ready), asked=fleet.asked, pending=len(fleet.loading), unschedulable=0)
    demand = Demand(mono, float(len(fleet.gateway)), wake_requested=False)
    return Observation(
        mono, endpoints, demand, absent=absent, replicas=counts, applied=tuple(map(_applied, fleet.ready))
    )


def _applied(replica: Replica) -> Applied:
    """What an engine that follows the published target reports of itself."""
    engine = replica.engine
    admission = "open" if engine.admitting else "hold"
    return Applied(replica.name, 0.0, engine.max_num_seqs, engine.max_num_batched_tokens, admission, engine.running)


def _moment(fleet: Fleet, at: float, arrivals: float, wish: Wish) -> Moment:
    return Moment(
        at=at,
        arrivals=arrivals,
        asked=fleet.asked,
        ready=len(fleet.ready),
        running=sum(replica.engine.running for replica in fleet.ready),
        waiting=sum(len(replica.engine.waiting) for replica in fleet.ready) + len(fleet.gateway),
        batch=fleet.batch,
        wish=wish.metric,
    )
