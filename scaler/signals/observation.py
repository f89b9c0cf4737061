"""What one read of a workload's sources gave: raw values, before any window, rate or judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from scaler.signals.model import Applied, Signal
from scaler.value import frozen


@frozen
class Buckets:
    """One histogram series as exposed: upper bounds (ascending, the last one inf), cumulative counts, sum, count.

    What was read is kept until the next read, for every series of every replica: its counts come as an ``array``, which
    takes a quarter of what a tuple of numbers does.
    """

    bounds: tuple[float, ...]
    cumulative: Sequence[float]
    sum: float
    count: float


@frozen
class EngineSample:
    """One successful read of one endpoint (one replica).

    ``at`` is the monotonic time of the read. ``gauges`` are combined inside the endpoint already (max over rank copies,
    then sum over data-parallel engines; ratios: max). Counters and histograms stay per series, keyed by the series'
    label text, because a reset shows only there. ``process_start_seconds`` is the engine's own start, Unix time.
    ``seconds`` is how long the read took. ``not_applicable`` says of families this engine does not have, why.
    ``dropped_series``: how many were left out because their own time stamps are of the past.
    ``identity`` is what it says it is: model and engine, "" where it says nothing.
    """

    at: float
    process_start_seconds: float | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, Buckets]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    dropped_series: int = 0
    identity: str = ""


#: Gauge families that may be estimated, and the counter (seconds spent so, by all requests together) they are estimated
#: from: seconds spent per second are, on average, how many were in that state (Little's law).
SECONDS_SPENT: Mapping[str, str] = {"running": "running_seconds", "waiting": "waiting_seconds"}


@frozen
class ReadFailure:
    """One endpoint that could not be read; ``reason`` is for a person and names the URL's trouble, not the URL."""

    at: float
    reason: str
    seconds: float = 0.0


@frozen
class Demand:
    """What gateways told us by ``/demand`` and ``/wake``, as it stands at ``at``.

    ``pending`` and ``arrivals_per_second`` are None where nobody reports (``reason`` says why): with a gateway that
    promised to report, silence is unknown; with one that only calls on demand, silence is 0 and comes as 0.0.
    ``in_flight``: the part of ``pending`` told by gateways that cannot tell a request that waits for a replica from one
    that a replica is working on. ``warnings``: what a person should know about how gateways were read.
    """

    at: float
    pending: float | None
    wake_requested: bool
    arrivals_per_second: float | None = None
    reason: str = ""
    in_flight: float = 0.0
    warnings: tuple[str, ...] = ()


@frozen
class ReplicaCounts:
    """How many replicas the workload's target has, as whoever keeps count of them said at ``at`` (monotonic seconds).

    ``asked`` is the number asked for, ``ready`` those that serve. ``pending`` have been started and are not ready yet;
    ``unschedulable`` have no node to run on, and are not among the pending: they are not loading. None: not told, and
    ``reason`` says why, for a person.
    """

    at: float
    ready: int | None = None
    asked: int | None = None
    pending: int | None = None
    unschedulable: int | None = None
    reason: str = ""


@frozen
class Queried:
    """What one query of the operator's own gave: the signal it stands for, and why it is not known ("" where it is)."""

    signal: Signal[float]
    reason: str = ""


@frozen
class AlsoRead:
    """How a page that is no engine's answered: a gateway's, a DCGM exporter's (``source`` says which). ``reason`` says
    why it could not be read ("" where it could), ``seconds`` how long that took.
    """

    source: str
    endpoint: str
    reason: str = ""
    seconds: float = 0.0


@frozen
class Observation:
    """Everything read for one workload in one tick. ``demand`` is None where no wake source is configured, ``replicas``
    where nobody counts the target's replicas.

    ``endpoints`` has an entry for *every* endpoint the workload should have, read or not: a missing one must be seen.
    Where they are looked up, two answers are not a list. ``absent``: there is certainly no replica, and why that is
    certain (``endpoints`` is empty then). ``lost``: the list could not be had, and why; ``endpoints`` then has those
    known before, and others may exist. Both None: the list is whole. ``pods`` has the names of the endpoints' pods, in
    the workload's namespace, as far as whoever was asked for the endpoints, or for the target's pods, told them.

    ``source`` is what the endpoints were read from, ``answered`` whether it said anything (an answer without any
    endpoint is one: at zero replicas nothing else is to be expected), and ``interval_seconds`` how often that source
    reads them itself, where this is more rarely than we ask. ``queried`` are signals that queries of the operator's
    own give.
    ``dropped_series``: how many series were left out, of replicas that are gone or with time stamps of the past.
    ``also_read`` says how the pages beside the engines' answered: what they said is in ``demand`` and the samples.
    ``applied`` is what replicas reported to run with.
    """

    at: float
    endpoints: Mapping[str, EngineSample | ReadFailure]
    demand: Demand | None = None
    absent: str | None = None
    lost: str | None = None
    pods: Mapping[str, str] = field(default_factory=dict)
    replicas: ReplicaCounts | None = None
    source: str = "scrape"
    answered: bool = True
    interval_seconds: float = 0.0
    queried: Mapping[str, Queried] = field(default_factory=dict)
    also_read: tuple[AlsoRead, ...] = ()
    dropped_series: int = 0
    applied: tuple[Applied, ...] = ()
