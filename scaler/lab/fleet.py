"""The replicas of one workload in the lab: they load, serve, drain, and are paid for; a gateway stands before them.

Requests go to the less busy of two replicas drawn by seed (as Envoy's least-request balancing does), and wait at the
gateway while there is none. A replica costs from the moment it is asked for until its last request is done.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from scaler.lab.engine import Engine
from scaler.lab.hardware import Hardware
from scaler.lab.meters import Meters
from scaler.lab.sequence import Sequence
from scaler.lab.static_batching import AnyEngine, StaticEngine
from scaler.signals.observation import EngineSample
from scaler.value import frozen

#: An engine's own token budget, where nobody tells it another (vLLM: ``--max-num-batched-tokens``).
TOKENS_PER_STEP = 8192


@frozen
class Request:
    """One request of a trace: when it arrives (seconds) and its lengths (tokens)."""

    at: float
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True, eq=False)
class Replica:
    """One replica. ``ready_at`` is when it has loaded; ``leaves_at`` is when it was told to go, None while it stays."""

    name: str
    asked_at: float
    ready_at: float
    engine: AnyEngine
    meters: Meters
    leaves_at: float | None = None
    _run_to: float = field(init=False)

    def __post_init__(self) -> None:
        self._run_to = self.ready_at

    def advance(self, to: float) -> None:
        """Run the engine up to ``to``, booking what it did. Both routing and the tick may ask for the same moment."""
        if to > self._run_to:
            self._run_to = to
            self.meters.book(self.engine.advance(to, every=self.meters.has_page))

    def outstanding(self, at: float) -> int:
        """Requests it has at ``at``. The engine is run only if that may have changed."""
        engine = self.engine
        if at >= engine.quiet_until:
            self.advance(at)
        return engine.outstanding


@dataclass(slots=True)
class Fleet:
    """All replicas of a workload, and the requests that wait for the first of them.

    ``batch``, ``token_budget`` and ``hold`` are what a new replica is started with and what all were told last.
    ``fill_seconds``: how long a batch waits to fill, of engines that batch statically; None: they batch continuously.
    ``read``: the families of the engines that somebody reads, None for all: see :class:`~scaler.lab.meters.Meters`.
    """

    hardware: Hardware
    batch: int
    cold_start_seconds: float
    max_model_len: int
    chance: Random
    fill_seconds: float | None = None
    read: frozenset[str] | None = None
    token_budget: int = TOKENS_PER_STEP
    hold: bool = False
    now: float = 0.0
    ready: list[Replica] = field(default_factory=list)
    loading: deque[Replica] = field(default_factory=deque)
    draining: list[Replica] = field(default_factory=list)
    gateway: deque[Request] = field(default_factory=deque)
    served: list[tuple[Request, Sequence]] = field(default_factory=list)
    gpu_seconds: float = 0.0
    changes: int = 0
    _started: int = 0

    @property
    def asked(self) -> int:
        """Replicas asked for: ready and loading."""
        return len(self.ready) + len(self.loading)

    def start(self, replicas: int) -> None:
        """Replicas that are there from the beginning, already loaded."""
        for _ in range(replicas):
            self.ready.append(self._new(self.now, self.now))

    def scale(self, replicas: int) -> None:
        """Ask for ``replicas`` now. Those that still load go first; then the least busy are told to drain."""
        if replicas != self.asked:
            self.changes += 1
        while self.asked < replicas:
            self.loading.append(self._new(self.now, self.now + self.cold_start_seconds))
        while self.asked > replicas and self.loading:
            self._pay(self.loading.pop())
        if self.asked > replicas:
            for replica in self.ready:
                replica.advance(self.now)
            self.ready.sort(key=lambda replica: replica.engine.outstanding)
        while self.asked > replicas:
            leaving = self.ready.pop(0)
            leaving.leaves_at = self.now
            self.draining.append(leaving)

    def tell(self, *, batch: int | None, token_budget: int | None, hold: bool) -> None:
        """Tell every replica what to run with: what runs above the batch finishes, and while ``hold`` nobody is
        admitted. None leaves the batch as it is, and the token budget at the engines' own.
        """
        before = (self.batch, self.token_budget, self.hold)
        self.batch = self.batch if batch is None else batch
        self.token_budget, self.hold = token_budget or TOKENS_PER_STEP, hold
        if before != (self.batch, self.token_budget, self.hold):
            for replica in (*self.ready, *self.loading, *self.draining):
                self._set(replica.engine)

    def submit(self, request: Request) -> None:
        """Take one request at its time; times must not go back."""
        self.move(request.at)
        if not self.ready:
            self.gateway.append(request)
            return
        self._route(request, request.at)

    def move(self, to: float) -> None:
        """Let time pass: replicas become ready and take what the gateway holds. Engines are run when they are used."""
        while self.loading and self.loading[0].ready_at <= to:
            ready_at = self.loading[0].ready_at
            while self.loading and self.loading[0].ready_at == ready_at:
                self.ready.append(self.loading.popleft())
            while self.gateway:
                self._route(self.gateway.popleft(), max(ready_at, self.now))
        self.now = max(self.now, to)

    def settle(self) -> None:
        """Run every engine to the present; pay for what has drained."""
        for replica in (*self.ready, *self.draining):
            replica.advance(self.now)
        drained = [replica for replica in self.draining if replica.engine.idle]
        for replica in drained:
            self._pay(replica)
        self.draining = [replica for replica in self.draining if not replica.engine.idle]

    def close(self) -> None:
        """The end of the simulation: pay for what still stands."""
        self.settle()
        for replica in (*self.ready, *self.loading, *self.draining):
            self._pay(replica)

    def scrape(self) -> dict[str, EngineSample]:
        """Every ready replica's metrics, as of the present. Call :meth:`settle` first."""
        return {replica.name: replica.meters.sample(self.now, replica.ready_at) for replica in self.ready}

    def _set(self, engine: AnyEngine) -> None:
        engine.max_num_seqs, engine.max_num_batched_tokens = self.batch, self.token_budget
        engine.admitting = not self.hold
        engine.quiet_until = min(engine.quiet_until, self.now)  # what it will be busy with is not what it was

    def _new(self, asked_at: float, ready_at: float) -> Replica:
        self._started += 1
        engine: AnyEngine
        if self.fill_seconds is None:
            engine = Engine(self.hardware, self.batch, coast=True, now=ready_at)
        else:
            engine = StaticEngine(self.hardware, self.batch, self.fill_seconds, now=ready_at)
        if self.hold or self.token_budget != TOKENS_PER_STEP:
            self._set(engine)
        meters = Meters(engine, max_model_len=self.max_model_len, read=self.read)
        return Replica(f"replica-{self._started}", asked_at, ready_at, engine, meters)

    def _route(self, request: Request, at: float) -> None:
        count = len(self.ready)
        chosen = self.ready[int(self.chance.random() * count)]
        if count > 1:
            other = self.ready[int(self.chance.random() * count)]
            if other.outstanding(at) < chosen.outstanding(at):
                chosen = other
        chosen.advance(at)
        sequence = chosen.engine.submit(request.prompt_tokens, request.output_tokens, max(at, chosen.engine.now))
        # The engine's own clock for it starts here; what it waited at the gateway the engine never sees.
        self.served.append((request, sequence))

    def _pay(self, replica: Replica) -> None:
        done = self.now
        if replica.leaves_at is not None and replica.engine.idle:
            done = max(replica.leaves_at, replica.engine.worked_until)  # its last answer ended a step
        self.gpu_seconds += done - replica.asked_at
