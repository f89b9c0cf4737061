"""Several models on one card in simulated time: each an engine of its own, all of them sharing the card's time.

The card takes turns between those that have work: with two of them each step takes twice as long. What an engine may
run at once, whether it sleeps and whether it is there at all is decided by the code of the server: the window fold,
``decide``, and :mod:`scaler.control.card` for the parts. One replica each; requests that come while it cannot serve
wait at the gateway, which says so at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from scaler.control.card import Member, bounded, member_of, on_card, share_out
from scaler.control.decide import decide
from scaler.control.model import Decision, Memory, Now, Rung
from scaler.lab.engine import Engine
from scaler.lab.fleet import TOKENS_PER_STEP, Request
from scaler.lab.hardware import Hardware, StepCost
from scaler.lab.meters import Meters
from scaler.lab.promise import Promise, kept
from scaler.lab.sequence import Sequence
from scaler.lab.simulate import BEGIN_MONO, BEGIN_UTC
from scaler.policy.model import Policy
from scaler.signals.model import Signals
from scaler.signals.observation import Demand, EngineSample, Observation, ReplicaCounts
from scaler.signals.window import History, fold
from scaler.value import frozen

#: How finely the card is shared out, and how often everything is decided, seconds.
SLICE_SECONDS, TICK_SECONDS = 0.25, 5.0
#: What a sleeping engine keeps of its memory.
ASLEEP_MEMORY = 0.1

State = Literal["awake", "asleep", "waking", "zero", "loading"]


@frozen
class Ways:
    """How long a wake from sleep and a start from zero take, seconds; ``lends``: whether parts are lent at all."""

    wake_seconds: float = 3.0
    cold_start_seconds: float = 120.0
    lends: bool = True


@dataclass(slots=True)
class Tenant:
    """One model of the card: its requests, its policy (with its part of the card), and what it has become."""

    name: str
    policy: Policy
    requests: ListOf[Request]
    hardware: Hardware
    preallocates: bool = True
    state: State = "awake"
    serves_at: float = 0.0
    memory: Memory = field(default_factory=Memory)
    decision: Decision | None = None
    signals: Signals = field(default_factory=Signals)
    served: list[tuple[Request, Sequence]] = field(default_factory=list)
    gateway: deque[Request] = field(default_factory=deque)
    memory_share_seconds: float = 0.0
    batches: list[int] = field(default_factory=list)
    history: History = field(default_factory=History)
    position: int = 0
    engine: Engine = field(init=False)
    meters: Meters = field(init=False)

    def __post_init__(self) -> None:
        batch = self.policy.gpu_group.batch or 1
        self.engine = Engine(self.hardware, batch, TOKENS_PER_STEP, coast=True)
        self.meters = Meters(self.engine, max_model_len=131_072)

    @property
    def holds(self) -> float:
        """The share of its own memory that it holds."""
        return {"asleep": ASLEEP_MEMORY, "zero": 0.0}.get(self.state, 1.0)


@frozen
class Outcome:
    """What became of one tenant: requests judged, the share of them whose promise was kept, the memory that it held on
    average (share of the card), its largest batch.
    """

    name: str
    requests: int
    attainment: float
    memory_share: float
    largest_batch: int


def play_card(tenants: ListOf[Tenant], seconds: float, promise: Promise, ways: Ways) -> list[Outcome]:
    """Run the card for ``seconds`` and judge every tenant. The same tenants give the same result."""
    slices = round(seconds / SLICE_SECONDS)
    per_tick = round(TICK_SECONDS / SLICE_SECONDS)
    for number in range(1, slices + 1):
        until = number * SLICE_SECONDS
        busy = max(1, sum(not tenant.engine.idle for tenant in tenants))
        called = [_moved(tenant, until, busy) for tenant in tenants]
        for tenant, at_once in zip(tenants, called, strict=True):
            if number % per_tick == 0 or at_once:
                _decided(tenant, tenants, until, ways)
    return [_judged(tenant, seconds, promise) for tenant in tenants]


def _moved(tenant: Tenant, until: float, busy: int) -> bool:
    """One slice; whether the gateway calls because somebody waits there now."""
    if tenant.state in ("waking", "loading") and until >= tenant.serves_at:
        tenant.state = "awake"
    tenant.engine.hardware = replace(tenant.hardware, cost=_slower(tenant.hardware.cost, busy))
    called = False
    while tenant.position < len(tenant.requests) and tenant.requests[tenant.position].at < until:
        request = tenant.requests[tenant.position]
        tenant.position += 1
        if tenant.state == "awake":
            _advance(tenant, max(request.at, tenant.engine.now))
            _submit(tenant, request)
        else:
            tenant.gateway.append(request)
            called = True
    _advance(tenant, until)
    while tenant.state == "awake" and tenant.gateway:
        _submit(tenant, tenant.gateway.popleft())
    own = tenant.policy.gpu_group.share_ratio or 0.0
    card = tenant.memory.card
    part = own if card is None or tenant.preallocates else card.memory
    tenant.memory_share_seconds += tenant.holds * part * SLICE_SECONDS
    return called


def _advance(tenant: Tenant, to: float) -> None:
    tenant.meters.book(tenant.engine.advance(to))


def _submit(tenant: Tenant, request: Request) -> None:
    at = max(request.at, tenant.engine.now)
    tenant.served.append((request, tenant.engine.submit(request.prompt_tokens, request.output_tokens, at)))


def _slower(cost: StepCost, times: int) -> StepCost:
    return StepCost(
        cost.base_ms * times,
        cost.per_sequence_ms * times,
        cost.per_context_token_ms * times,
        cost.per_prefill_token_ms * times,
    )


def _decided(tenant: Tenant, tenants: ListOf[Tenant], at: float, ways: Ways) -> None:
    """One tick of one tenant, as the server has it: who has to give something up is told first."""
    mono, group = BEGIN_MONO + at, tenant.policy.gpu_group
    tenant.history, tenant.signals = fold(
        tenant.history,
        _observed(tenant, mono),
        mono,
        tenant.policy,
        interval_seconds=TICK_SECONDS,
        now_unix=BEGIN_UTC.timestamp() + at,
    )
    now = Now(BEGIN_UTC + timedelta(seconds=at), mono)
    decision = decide(tenant.policy, tenant.memory, tenant.signals, now)
    tenant.memory, tenant.decision = decision.next_memory, decision
    if ways.lends and group.declared:
        for _ in range(2):
            members = [_member(each) for each in tenants]
            parts = share_out(members)
            for other in tenants:
                card = other.memory.card
                lower = card is None or parts[other.name].time < card.time or parts[other.name].memory < card.memory
                if other is tenant or lower:
                    other.memory = replace(other.memory, card=parts[other.name])
                    _tell(other)
        decision = on_card(decision, parts[tenant.name], tenant.policy, members)
    tenant.decision = decision
    _tell(tenant)
    _climb(tenant, decision, at, ways)


def _member(tenant: Tenant) -> Member:
    return member_of(
        tenant.name,
        tenant.policy,
        tenant.decision,
        tenant.signals,
        preallocates=tenant.preallocates,
        held=tenant.memory.card,
        ours=True,
    )


def _tell(tenant: Tenant) -> None:
    """The engine follows at once: who runs finishes."""
    own = tenant.policy.gpu_group.batch
    batch = own
    if tenant.decision is not None and tenant.memory.card is not None:
        batch = bounded(tenant.decision.targets, tenant.memory.card, tenant.policy).batch
    tenant.engine.max_num_seqs = max(1, batch or own or 1)
    tenant.batches.append(tenant.engine.max_num_seqs)


def _climb(tenant: Tenant, decision: Decision, at: float, ways: Ways) -> None:
    """Up and down the rungs, as the decision says and the engine can."""
    targets = decision.targets
    if not targets.active:
        if tenant.engine.idle:
            tenant.state = "zero"
    elif tenant.state == "zero":
        tenant.state, tenant.serves_at = "loading", at + ways.cold_start_seconds
    elif targets.rung is Rung.ASLEEP and tenant.state == "awake" and tenant.engine.idle:
        tenant.state = "asleep"
    elif targets.rung is Rung.AWAKE and tenant.state == "asleep":
        tenant.state, tenant.serves_at = "waking", at + ways.wake_seconds


def _observed(tenant: Tenant, mono: float) -> Observation:
    there = tenant.state not in ("zero", "loading")
    endpoints: dict[str, EngineSample] = {}
    if there:
        sample = tenant.meters.sample(mono, BEGIN_UTC.timestamp())
        awake = float(tenant.state == "awake")
        endpoints["engine"] = replace(sample, gauges={**sample.gauges, "awake_engines": awake})
    asked = int(tenant.state != "zero")
    counts = ReplicaCounts(mono, ready=int(there), asked=asked, pending=asked - int(there), unschedulable=0)
    demand = Demand(mono, float(len(tenant.gateway)), wake_requested=False)
    absent = None if there else "no replica is ready"
    return Observation(mono, endpoints, demand, absent=absent, replicas=counts)


def _judged(tenant: Tenant, seconds: float, promise: Promise) -> Outcome:
    due = seconds - promise.patience_seconds
    judged = [kept(promise, request, sequence) for request, sequence in tenant.served if request.at <= due]
    missed = sum(request.at <= due for request in tenant.gateway)
    total = len(judged) + missed
    return Outcome(
        tenant.name,
        total,
        sum(judged) / total if total else 1.0,
        tenant.memory_share_seconds / seconds,
        max(tenant.batches, default=0),
    )
