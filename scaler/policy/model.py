"""The policy of one workload: every knob an operator may turn, with its unit, range, default and meaning.

A policy is layered (built-in defaults < engine defaults < file ``defaults:`` < named policy < workload < ScaledObject
metadata) by :mod:`scaler.policy.layers`; this module only says what a complete policy is. Models are frozen: a policy
is a value, and ``decide`` reads it as one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from scaler.policy.admission import AdmissionControl as AdmissionControl
from scaler.policy.batch import Batch as Batch
from scaler.policy.batch import QueueTarget as QueueTarget
from scaler.policy.budget import Budget as Budget
from scaler.policy.gateway import Gateway as Gateway
from scaler.policy.gpu import Gpu as Gpu
from scaler.policy.gpu_group import GpuGroup as GpuGroup
from scaler.policy.group import Group, PositiveSeconds, Ratio, Replicas, Seconds, SomeReplicas
from scaler.policy.jump import Jump as Jump
from scaler.policy.price import Price as Price
from scaler.policy.price import PriceWindow as PriceWindow
from scaler.policy.prometheus import Prometheus as Prometheus
from scaler.policy.season import SLOT_SECONDS as SLOT_SECONDS
from scaler.policy.season import SLOTS_A_DAY as SLOTS_A_DAY
from scaler.policy.season import Seasonal as Seasonal
from scaler.policy.sources import ScaleTarget as ScaleTarget
from scaler.policy.sources import Scrape as Scrape
from scaler.policy.windows import Warm

#: A low mark at or above this share of its high mark is no hysteresis: one step would flap between the two.
LOW_TO_HIGH = 0.9
#: The least room, as a share of the KV cache, between the mark that shrinks and the one that forbids growth.
KV_BAND = 0.02


class Push(Group):
    """Demand told to us by a gateway: ``POST /v1/workloads/{ns}/{name}/demand`` and ``/wake``."""

    enabled: bool = False
    """Whether something will call us when requests arrive at zero replicas. Without it the floor is 1."""
    report_every_seconds: PositiveSeconds | None = None
    """A gateway that promises to report this often: silence longer than twice this is unknown, not zero. Unset: the
    gateway calls only when there is demand, and silence means none."""
    demand_ttl_seconds: PositiveSeconds = 60.0
    """How long one report of demand counts."""
    wake_ttl_seconds: PositiveSeconds = 3600.0
    """How long one wake counts while no replica gets ready: through loads that fail, which are tried again."""


class Objectives(Group):
    """What is promised, each as P95 over the window: a warning bound, and a critical bound that protects and pages."""

    ttft_seconds: PositiveSeconds | None = None
    """Time to first token, P95."""
    ttft_critical_seconds: PositiveSeconds | None = None
    """Time to first token, P95: the bound that pages."""
    tpot_seconds: PositiveSeconds | None = None
    """Time per output token, P95."""
    tpot_critical_seconds: PositiveSeconds | None = None
    """Time per output token, P95: the bound that pages."""
    e2e_seconds: PositiveSeconds | None = None
    """Whole request, P95. For language models leave it unset: it grows with the answer's length, not with load."""
    e2e_critical_seconds: PositiveSeconds | None = None
    """Whole request, P95: the bound that pages."""
    minimum_samples: PositiveInt = 20
    """Fewer requests than this in the window make no P95."""

    def times(self, factor: float) -> Objectives:
        """Every bound so many times as long."""
        bounds = {name: getattr(self, name) for name in Objectives.model_fields if name.endswith("_seconds")}
        return self.model_copy(update={name: seconds * factor for name, seconds in bounds.items() if seconds})

    @model_validator(mode="after")
    def _critical_is_worse(self) -> Self:
        for name in ("ttft", "tpot", "e2e"):
            warning, critical = getattr(self, f"{name}_seconds"), getattr(self, f"{name}_critical_seconds")
            if warning is not None and critical is not None and critical < warning:
                raise ValueError(
                    f"{name}_critical_seconds ({critical:g}) is below {name}_seconds ({warning:g}); "
                    "the critical bound must be the worse one"
                )
        return self


class ReplicaRange(Group):
    """How many replicas there may be, and how fast the count may move."""

    min: Replicas = 0
    """Never fewer, at any hour. 0 allows scale to zero."""
    max: SomeReplicas | None = None
    """Never more. Declare it equal to the ScaledObject's maxReplicaCount: KEDA does not tell us."""
    activation: SomeReplicas = 1
    """How many to start with when woken from zero."""
    cold_start_seconds: PositiveSeconds = 120.0
    """P95 of the time from asking for a replica to its first token."""
    load_timeout_seconds: PositiveSeconds = 900.0
    """How long a woken replica may take to load before it is called failed."""
    drain_seconds: PositiveSeconds = 60.0
    """In how long a backlog should be worked off: replicas are bought for it."""
    down_window_seconds: Seconds = 300.0
    """Replicas go down only to the highest need of this long; where the arrivals of four times as long lie on one
    line, a higher need was noise and holds nothing."""
    down_step_seconds: Seconds = 120.0
    """At most half of the replicas are given up per this long."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        return self


class Capacity(Group):
    """What one replica serves within its objectives, where the operator knows it."""

    requests_per_second: PositiveFloat | None = None
    """μ*, requests per second of one replica."""
    sequences: PositiveFloat | None = None
    """L*, sequences at once in one replica."""
    learn: bool = True
    """Whether what is measured corrects what is declared, or assumed. Off: the declared capacity stands."""
    load_share: Annotated[float, Field(ge=0.1, le=1.5)] = 0.75
    """How far a replica is loaded: L* is this share of the concurrency at which P95 of TPOT just meets its objective.
    The rest is for chance."""
    settled_load_share: Annotated[float, Field(ge=0.1, le=1.5)] = 0.9
    """The same while arrivals have settled: nothing rises, no objective is breached, the KV cache has room. At
    ``load_share`` or below it changes nothing."""


class LoadThresholds(Group):
    """Where the load states begin and end."""

    high_requests_per_second: PositiveFloat | None = None
    """Per ready replica. Unset: 50; ``adaptive`` with continuous batching judges by utilisation."""
    low_requests_per_second: PositiveFloat | None = None
    """Per ready replica. Unset: 5; ``adaptive`` with continuous batching judges by utilisation."""
    high_utilisation: PositiveFloat = 1.0
    """``high`` begins here (load over capacity within objectives)."""
    high_leave_utilisation: PositiveFloat = 0.85
    """``high`` ends below this."""
    low_utilisation: PositiveFloat = 0.55
    """``low`` begins below this, after ``low_dwell_seconds``."""
    low_leave_utilisation: PositiveFloat = 0.65
    """``low`` ends above this."""
    low_dwell_seconds: Seconds = 120.0
    """How long the load must be low before it is called low."""
    scale_in_after_seconds: PositiveSeconds | None = 1800.0
    """After so long a low load replicas are no longer held for chance alone, down to the floor. Unset (null): never."""
    minimum_dwell_seconds: Seconds = 15.0
    """``critical`` and ``high`` last at least this long before a calmer state; a more pressing one is never delayed."""
    gpu_busy_high_ratio: Ratio = 0.80
    """With a growing queue, ``high``."""
    gpu_busy_low_ratio: Ratio = 0.30
    """A GPU busier than this is not ``low``, unless its SMs are idle."""
    sm_active_low_ratio: Ratio = 0.40
    """SM activity below this is room, whatever "busy" says."""

    @model_validator(mode="after")
    def _bands(self) -> Self:
        low, low_leave = self.low_utilisation, self.low_leave_utilisation
        high_leave, high = self.high_leave_utilisation, self.high_utilisation
        if not low < low_leave <= high_leave < high:
            raise ValueError(
                "the bands must not touch: low_utilisation < low_leave_utilisation <= high_leave_utilisation < "
                f"high_utilisation, got {low:g}, {low_leave:g}, {high_leave:g}, {high:g}"
            )
        for low_name, high_name in (
            ("low_utilisation", "high_utilisation"),
            ("low_requests_per_second", "high_requests_per_second"),
            ("gpu_busy_low_ratio", "gpu_busy_high_ratio"),
        ):
            low_mark, high_mark = getattr(self, low_name), getattr(self, high_name)
            if low_mark is not None and high_mark is not None and low_mark >= LOW_TO_HIGH * high_mark:
                raise ValueError(
                    f"{low_name} ({low_mark:g}) must be below {LOW_TO_HIGH:g} × {high_name} ({high_mark:g}), "
                    "or the state flaps"
                )
        return self


class MemoryGuard(Group):
    """When memory is pressure: KV cache for engines that preallocate (vLLM, SGLang, TGI), free VRAM for the others."""

    kv_emergency_ratio: Ratio = 0.95
    """KV-cache use at or above this shrinks the batch at once."""
    kv_growth_ratio: Ratio = 0.85
    """KV-cache use at or above this forbids growth."""
    guard_seconds: Annotated[float, Field(ge=0.2, le=60.0)] | None = 1.0
    """How often the memory signals of scraped engines are read between two ticks, to shrink at once. Unset (null): only
    with each tick."""
    guard_replicas: Annotated[int, Field(ge=0, le=1000)] = 16
    """A workload of more replicas than this is guarded with each tick only: reading all of them every second costs."""
    gpu_free_emergency_ratio: Ratio = 0.10
    """Free device memory below this shrinks the batch at once (engines that do not preallocate)."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.kv_growth_ratio > self.kv_emergency_ratio - KV_BAND:
            raise ValueError(
                f"kv_growth_ratio ({self.kv_growth_ratio:g}) must be at least {KV_BAND:g} below kv_emergency_ratio "
                f"({self.kv_emergency_ratio:g}): a shrink needs room to end"
            )
        return self


class Idle(Group):
    """When a workload without traffic is put to sleep, and when it is taken to zero."""

    timeout_seconds: PositiveSeconds = 1800.0
    """Proven idleness this long ends in zero replicas."""
    sleep_after_seconds: PositiveSeconds | None = None
    """Proven idleness this long puts its engines to sleep: off the GPU, the processes alive. Needs an engine that can
    (vLLM with --enable-sleep-mode), an agent beside each, and a wake source. Unset: they stay awake until zero."""
    sleep_level: Annotated[int, Field(ge=1, le=2)] = 1
    """How deep they sleep. 1: weights in host memory, KV cache dropped. 2: both dropped, weights loaded anew at the
    wake: slower, and no host memory taken."""

    @model_validator(mode="after")
    def _sleep_before_zero(self) -> Self:
        if self.sleep_after_seconds is not None and self.sleep_after_seconds >= self.timeout_seconds:
            raise ValueError(
                f"sleep_after_seconds ({self.sleep_after_seconds:g}) is not below timeout_seconds "
                f"({self.timeout_seconds:g}): it would be at zero before it sleeps; lower the one or raise the other"
            )
        return self


Strategy = Literal["adaptive", "queue", "latency", "stepwise"]
ModeName = Literal["active", "advisory", "paused"]
Engine = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class Policy(Group):
    """The whole policy of one workload."""

    engine: Engine = "vllm"
    """The engine preset (``scaler/signals/engines``)."""
    strategy: Strategy = "adaptive"
    """How the batch moves. ``adaptive``: attribute, then act. ``queue``: in proportion to the queue. ``latency``: a
    step or two along the gradient of P95. ``stepwise``: threshold and factor, the reference."""
    mode: ModeName = "active"
    """``active``: decide and act. ``advisory``: decide and publish, change nothing: KEDA is told the replicas that are
    asked for already (needs ``target``), engines keep their own batch. ``paused``: hold the last targets."""
    window_seconds: Annotated[float, Field(ge=10.0, le=3600.0)] = 60.0
    """Over how long rates and percentiles are measured."""
    hold_seconds: Seconds = 120.0
    """How long the last answer is held when signals are lost; after it KEDA is answered UNAVAILABLE."""
    stalled_after_seconds: PositiveSeconds = 120.0
    """Work without any progress this long: the replica is stalled."""
    scrape: Scrape = Scrape()
    prometheus: Prometheus = Prometheus()
    target: ScaleTarget = ScaleTarget()
    gpu: Gpu = Gpu()
    gpu_group: GpuGroup = GpuGroup()
    push: Push = Push()
    gateway: Gateway = Gateway()
    objectives: Objectives = Objectives()
    replicas: ReplicaRange = ReplicaRange()
    capacity: Capacity = Capacity()
    batch: Batch = Batch()
    queue: QueueTarget = QueueTarget()
    admission: AdmissionControl = AdmissionControl()
    load: LoadThresholds = LoadThresholds()
    memory: MemoryGuard = MemoryGuard()
    jump: Jump = Jump()
    idle: Idle = Idle()
    warm: Warm = Warm()
    season: Seasonal = Seasonal()
    price: Price = Price()
    budget: Budget = Budget()

    @property
    def read_from_prometheus(self) -> bool:
        """Whether the engines are read out of a Prometheus. Where they can be scraped they are: both count twice."""
        return self.prometheus.source is not None and bool(self.prometheus.match) and not self.scrape.declared

    @property
    def can_wake(self) -> bool:
        """Whether anything can tell us of demand while there is no replica."""
        return self.push.enabled or bool(self.gateway.urls)

    def floor(self, utc: datetime) -> int:
        """The fewest replicas allowed at ``utc``. Without a wake source never 0: zero would be for ever."""
        priced, replicas = self.price.open(utc), self.replicas
        least = 0 if priced is None else priced.floor
        floor = max(replicas.min, self.warm.kept_at(utc), least, 0 if self.can_wake else 1)
        return floor if replicas.max is None else min(floor, replicas.max)

    def ceiling(self, utc: datetime) -> int | None:
        """The most replicas allowed at ``utc``, never below the floor; None: as many as it takes."""
        if not self.price.windows:
            return self.replicas.max
        priced = self.price.open(utc)
        window = None if priced is None else priced.ceiling
        most = min((each for each in (self.replicas.max, window) if each is not None), default=None)
        return None if most is None else max(most, self.floor(utc))

    def at(self, utc: datetime) -> Policy:
        """The policy as it stands at ``utc``: with the objectives of the price window that is open."""
        priced = self.price.open(utc)
        if priced is None or priced.objective_factor == 1.0:
            return self
        return self.model_copy(update={"objectives": self.objectives.times(priced.objective_factor)})

    @property
    def priced(self) -> bool:
        """Whether any price is declared."""
        return self.gpu.hour_price is not None or any(each.hour_price is not None for each in self.price.windows)

    def hour_price(self, utc: datetime) -> float | None:
        """What one GPU costs an hour at ``utc``, in ``gpu.currency``; None: not declared."""
        priced = self.price.open(utc)
        return self.gpu.hour_price if priced is None or priced.hour_price is None else priced.hour_price
