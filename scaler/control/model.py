"""The values ``decide`` takes and gives: the time, the memory, the targets, the reasons, the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from scaler.control.budget import NO_BILL, Bill, Room
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.card_part import CardPart
from scaler.control.cold_start import ColdStarts
from scaler.control.feasible import EmptyReplicas
from scaler.control.learned import Learned
from scaler.control.season import NO_SEASON, Expected, Season
from scaler.control.swing import Swing
from scaler.signals.model import Verdict
from scaler.value import frozen


@frozen
class Now:
    """The time as an argument: ``utc`` (timezone-aware) for windows of the day, ``mono`` (seconds) for timers."""

    utc: datetime
    mono: float


class LoadState(StrEnum):
    """How loaded a workload is; in the order of priority in which they are judged."""

    STALLED = "stalled"
    CRITICAL = "critical"
    UNKNOWN = "unknown"
    IDLE = "idle"
    HIGH = "high"
    LOW = "low"
    NORMAL = "normal"


class Cause(StrEnum):
    """To what a breached (or nearing) objective is attributed; each asks for another cure."""

    MEMORY = "memory"
    PREFILL = "prefill"
    STEP = "step"
    QUEUEING = "queueing"
    INHERENT = "inherent"
    UNATTRIBUTED = "unattributed"


class Admission(StrEnum):
    """What the engine should do with new requests."""

    OPEN = "open"
    HOLD = "hold"
    SHED = "shed"


class Rung(StrEnum):
    """How warm the replicas are that there are: ``asleep`` is a process that lives, its model off the GPU."""

    AWAKE = "awake"
    ASLEEP = "asleep"


class Target(StrEnum):
    """What a decision can move."""

    REPLICAS = "replicas"
    ACTIVE = "active"
    BATCH = "batch"
    TOKEN_BUDGET = "token_budget"
    ADMISSION = "admission"
    RUNG = "rung"


class Mode(StrEnum):
    """Who rules the targets: the laws, what is there already, what stood last, or an operator's override."""

    ACTIVE = "active"
    ADVISORY = "advisory"
    PAUSED = "paused"
    OVERRIDE = "override"


class Code(StrEnum):
    """Why something was decided or held back. Codes are data; :mod:`scaler.serve.words` gives each its sentence."""

    # replicas
    ARRIVALS = "arrivals"  # the flow needs this many
    BACKLOG = "backlog"  # the flow plus draining the queue
    RUNNING = "running"  # the sequences running now
    SCALE_IN = "scale_in"  # after a long low load without room for chance
    IN_FLIGHT = "in_flight"  # running + waiting, before any rate is known
    SEASON = "season"  # what usually comes at this time, a cold start ahead
    LATENCY_STEP = "latency_step"  # one more, for a breached objective that queueing or step time explains
    FLOOR = "floor"
    CEILING = "ceiling"
    BUDGET = "budget"  # what is left of the GPU-hours allows no more
    BUDGET_SPENT = "budget_spent"  # and nobody is held back for it
    BUDGET_FLOOR = "budget_floor"  # the floor stands although the budget is spent
    DOWN_WINDOW = "down_window"  # held at the highest need of the last minutes
    TRIFLE = "trifle"  # so little of a replica buys none
    UNPROVEN = "unproven"  # no fewer on the strength of a capacity that is a guess
    DOWN_STEP = "down_step"  # at most half per step
    JUMP = "jump"
    JUMP_HOLD = "jump_hold"
    UNSCHEDULABLE = "unschedulable"  # replicas that no node has room for are not loading
    OVERDUE = "overdue"  # replicas that have not come in twice a cold start are not loading
    DEMAND_FROM_ZERO = "demand_from_zero"
    # activity
    IDLE_PROVEN = "idle_proven"
    IDLE_UNPROVEN = "idle_unproven"  # a signal is missing: the idle timer stands still
    LOADING = "loading"
    LOAD_FAILED = "load_failed"  # a woken replica did not load in time
    WAKE_BACKOFF = "wake_backoff"
    TRAFFIC = "traffic"
    # the rung between warm and zero
    NO_WAKE_SOURCE = "no_wake_source"  # nothing would wake it from its sleep
    WAKE_SOURCE_LOST = "wake_source_lost"  # what would wake it is not heard any more
    CANNOT_SLEEP = "cannot_sleep"  # the engine has no sleep
    SLEEP_UNDECLARED = "sleep_undeclared"  # the policy no longer wants any
    WAKING = "waking"
    WAKE_FAILED = "wake_failed"  # called long ago, and asleep still
    # batch
    BATCH_START = "batch_start"
    HIGH_LOAD = "high_load"
    LOW_LOAD = "low_load"
    QUEUE_LONG = "queue_long"
    QUEUE_SHORT = "queue_short"
    QUEUE_HOPELESS = "queue_hopeless"  # it cannot be served within the critical bound
    SLOW_STEPS = "slow_steps"  # a larger batch would make them slower
    LATENCY_RISES = "latency_rises"  # towards its bound
    LATENCY_ROOM = "latency_room"  # it is far from its bound
    MEMORY_PRESSURE = "memory_pressure"
    LATENCY_CRITICAL = "latency_critical"
    LATENCY_WARNING = "latency_warning"
    PREFILL_SHARE = "prefill_share"
    RECOVERY = "recovery"
    COOLDOWN = "cooldown"
    SETTLING = "settling"  # the last protective shrink has not shown its effect yet
    NOT_APPLIED = "not_applied"  # engines do not run with the last smaller one: a still smaller one says no more
    NOT_BINDING = "not_binding"  # a limit that is not in use says nothing
    KV_ROOM = "kv_room"  # KV use forbids growth
    QUEUEING_KEEPS_BATCH = "queueing_keeps_batch"
    # a card shared with others
    CARD_OWN = "card_own"  # the batch that its own part of the card bears
    CARD_LENT = "card_lent"
    CARD_BORROWED = "card_borrowed"
    CARD_MEMORY_KEPT = "card_memory_kept"  # wanted by another, and not let go: preallocated
    # judgement
    SIGNAL_LOST = "signal_lost"  # held on doubt
    SIGNAL_LOST_TOO_LONG = "signal_lost_too_long"  # UNAVAILABLE
    NEVER_READ = "never_read"  # UNAVAILABLE: nothing was ever known that could be held
    STALLED = "stalled"
    STALLED_TRIAL = "stalled_trial"  # whether an engine works that lets nobody in, only letting in shows
    OBJECTIVE_UNREACHABLE = "objective_unreachable"
    INFEASIBLE = "infeasible"  # no replica keeps the objective, however empty it is
    UNATTRIBUTED = "unattributed"
    OSCILLATION = "oscillation"  # a target went to and fro: its dead band is wider for a while
    # who rules
    ADVISORY = "advisory"  # what is there stays
    ASKED_UNKNOWN = "asked_unknown"  # UNAVAILABLE: nobody tells the count that is to stay
    PAUSED = "paused"
    OVERRIDE = "override"  # the signal is who, the value when it ends (Unix seconds)
    OVERRIDE_ENDED = "override_ended"
    RESUMED = "resumed"  # the mode is active again


@frozen
class Reason:
    """Why: the signal that caused it, its value and the threshold it was held against (None where there is none)."""

    code: Code
    target: Target
    signal: str | None = None
    value: float | None = None
    threshold: float | None = None


@frozen
class Suppressed:
    """What was wanted and held back. ``remaining_seconds`` says for how much longer, where a timer holds it."""

    code: Code
    target: Target
    wanted: float | None
    kept: float | None
    signal: str | None = None
    value: float | None = None
    threshold: float | None = None
    remaining_seconds: float | None = None


@frozen
class Targets:
    """What the workload should be: replicas and activity for KEDA, the rest for the engine.

    ``batch`` and ``token_budget`` are None where the engine should keep its own setting; ``queue_limit`` (requests
    waiting in one replica) and ``workers`` go with the batch, None where there is nothing to say. ``rung`` is that of
    every replica; at zero, that of those which end.
    """

    replicas: int
    active: bool
    batch: int | None
    token_budget: int | None = None
    admission: Admission = Admission.OPEN
    queue_limit: int | None = None
    workers: int | None = None
    rung: Rung = Rung.AWAKE


@frozen
class Override:
    """An operator's word on ``replicas``, ``batch`` or both (None: left to whoever rules without it), until ``until``
    (timezone-aware). ``by`` is who said so. A time of day and no duration: that is what was agreed between people, and
    a scaler that is away for a while does not prolong it.
    """

    replicas: int | None
    batch: int | None
    until: datetime
    by: str = ""


@frozen
class Memory:
    """Everything ``decide`` remembers, as plain values: what makes a restart harmless and a backtest honest.

    Times are elapsed durations in seconds, never clock readings; None means "never". ``tick_mono`` is the one
    exception, the monotonic time of the last tick: the store drops it, so that the first tick after a restart counts no
    time. ``batch_before_protection`` is where a shrunk batch goes back to, ``batch_was_engines_own`` that it was the
    engine's own setting (nothing published) and returns to that. ``targets`` are those published, whoever rules
    (``mode``); ``set_aside`` what an override took the place of, ``advised_replicas`` the last advice in advisory mode.
    """

    tick_mono: float | None = None
    targets: Targets | None = None
    state: LoadState = LoadState.UNKNOWN
    state_seconds: float = 0.0
    below_low_seconds: float | None = None
    #: For how long replicas have had less than their ordinary room, after a long low load; None: they have it.
    scale_in_seconds: float | None = None
    idle_seconds: float = 0.0
    doubt_seconds: float = 0.0
    loading_seconds: float | None = None
    failed_loads: int = 0
    since_failed_load_seconds: float | None = None
    since_batch_change_seconds: float | None = None
    since_protection_seconds: float | None = None
    batch_before_protection: int | None = None
    batch_was_engines_own: bool = False
    #: For how long memory has been under pressure without a break, as of the last tick; None: it is not.
    pressure_seconds: float | None = None
    #: Whether KV use has been below the growth mark since the last protective shrink.
    relieved: bool = True
    #: (age in seconds, mean in seconds) of the window that a law that goes by a gradient compares the next one with.
    latency_mark: tuple[float, float] | None = None
    #: For how long the batch has been below what protection took it from, and admission not open; None: it is not so.
    shrunk_seconds: float | None = None
    admission_seconds: float | None = None
    since_replicas_down_seconds: float | None = None
    #: (age in seconds, replicas needed): the needs of the down window that no later, higher one covers.
    needs: tuple[tuple[float, int], ...] = ()
    jump_seconds: float | None = None
    jump_replicas: int = 0
    latency_step_seconds: float | None = None
    latency_replicas: int = 0
    latency_p95_seconds: float | None = None
    waiting: float | None = None
    saturated_sequences: float | None = None
    mode: Mode = Mode.ACTIVE
    override: Override | None = None
    override_seconds: float | None = None
    set_aside: Targets | None = None
    advised_replicas: int | None = None
    replicas_swing: Swing = field(default_factory=Swing)
    batch_swing: Swing = field(default_factory=Swing)
    token_budget_swing: Swing = field(default_factory=Swing)
    running_mean: float | None = None
    unevenness: float | None = None
    overload_seconds: float | None = None
    #: For how long the replicas have been asked to sleep, and to wake while one of them sleeps still.
    asleep_seconds: float | None = None
    waking_seconds: float | None = None
    #: How long the last wake from sleep took, and the last load of a replica from zero, from the decision on.
    woken_seconds: float | None = None
    loaded_seconds: float | None = None
    #: Its part of a shared card, as published last; None: it shares none, or nothing was published yet.
    card: CardPart | None = None
    #: What is known of a replica's capacity, the present kind of replica first.
    learned: tuple[Learned, ...] = ()
    cold_starts: ColdStarts = field(default_factory=ColdStarts)
    empty: EmptyReplicas = field(default_factory=EmptyReplicas)
    #: What usually comes at each time of the week.
    season: Season = NO_SEASON
    #: What has been spent.
    bill: Bill = NO_BILL


@frozen
class Decision:
    """The result of one tick. ``available`` False: KEDA must be told UNAVAILABLE, never a number.

    ``need`` is the replicas the load asks for before floor, ceiling and holds; ``ready`` the replicas counted on, and
    ``asleep`` those that serve once they are woken.
    ``utilisation`` is load over capacity within objectives, None where it cannot be told. ``verdicts`` holds, per
    objective bound (``ttft``, ``ttft_critical``, ...), what the window's P95 says of it. ``targets`` are what the world
    is told under ``mode``; ``advised`` what the laws would have told, None where they rule and the two are one.
    ``season`` is what usually comes a cold start ahead; None: there is no season, or it brings nothing. ``budget`` is
    what is left of the GPU-hours; None: there is none.
    """

    targets: Targets
    available: bool
    state: LoadState
    cause: Cause | None
    reasons: tuple[Reason, ...]
    suppressed: tuple[Suppressed, ...]
    floor: int
    ceiling: int | None
    need: int | None
    ready: int | None
    utilisation: float | None
    capacity: CapacityEstimate
    verdicts: Mapping[str, Verdict]
    next_memory: Memory
    mode: Mode = Mode.ACTIVE
    advised: Targets | None = None
    #: What the next replica is expected to take from being asked for to being ready, P95.
    cold_start_seconds: float | None = None
    season: Expected | None = None
    budget: Room | None = None
    asleep: int = 0
    #: How far a replica is loaded now, of the concurrency at which the objective just holds.
    load_share: float = 0.75
