"""An engine that batches statically, as a pure model: a batch waits to fill, runs to its end, and lets nobody in.

Servers without continuous batching work so: a request joins the queue; a batch begins when ``max_num_seqs`` wait, or
when the first of them has waited ``fill_seconds`` (Triton's ``max_queue_delay``, Ray Serve's ``batch_wait_timeout_s``).
All its prompts are prefilled in one step; then every step brings one token to each, until the longest answer is
complete. Shorter prompts and answers are padded to the longest, which costs like the real thing, and all answers are
handed over together at the end (Yu et al., Orca, OSDI 2022, calls it request-level scheduling).

Here the size of the batch matters at low load as well: a large one is waited for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf, sqrt

from scaler.lab.engine import Engine
from scaler.lab.hardware import Hardware
from scaler.lab.sequence import Sequence, Step, refuse_impossible

#: What is due within so many seconds is due: sums of floats differ in their last digits.
ROUNDING = 1e-9


@dataclass(slots=True)
class _Batch:
    """What runs, padded to its longest prompt and answer. ``tokens``: how many each has got, padding included."""

    members: list[Sequence]
    prompt_tokens: int
    output_tokens: int
    tokens: int = 0


@dataclass(slots=True, eq=False)
class StaticEngine:
    """One replica. It is fed, moved and read as :class:`~scaler.lab.engine.Engine` is.

    A change of ``max_num_seqs`` counts from the next batch on; while not ``admitting`` none begins. It has no token
    budget: ``max_num_batched_tokens`` changes nothing. ``busy_seconds``: how long it has computed in all.
    """

    hardware: Hardware
    max_num_seqs: int
    fill_seconds: float
    max_num_batched_tokens: int = 0
    admitting: bool = True
    now: float = 0.0
    waiting: deque[Sequence] = field(default_factory=deque)
    generated_tokens: int = 0
    steps: int = 0
    worked_until: float = 0.0
    quiet_until: float = inf
    busy_seconds: float = 0.0
    _batch: _Batch | None = None

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.fill_seconds < 0:
            raise ValueError(
                f"max_num_seqs ({self.max_num_seqs}) must be at least 1 and fill_seconds ({self.fill_seconds:g}) not "
                "below 0"
            )

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._batch.members) if self._batch else 0

    @property
    def outstanding(self) -> int:
        """Requests it has: running and waiting."""
        return self.running + len(self.waiting)

    @property
    def kv_used_tokens(self) -> int:
        """Tokens that the batch holds in the KV cache: as many for each as the longest may come to need."""
        batch = self._batch
        return len(batch.members) * (batch.prompt_tokens + batch.output_tokens) if batch else 0

    @property
    def kv_use_ratio(self) -> float:
        """Share of the KV cache in use, 0..1."""
        return self.kv_used_tokens / self.hardware.kv_tokens

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._batch is None and not self.waiting

    def submit(self, prompt_tokens: int, output_tokens: int, arrived_at: float) -> Sequence:
        """Queue one request. Advance the engine to ``arrived_at`` first. Raises ``ValueError`` as
        :func:`~scaler.lab.sequence.refuse_impossible` says.
        """
        refuse_impossible(self.hardware, prompt_tokens, output_tokens, arrived_at, self.now)
        sequence = Sequence(prompt_tokens, output_tokens, arrived_at)
        self.waiting.append(sequence)
        if self._batch is None:
            self.now = arrived_at
            self.quiet_until = self._due_at()
        return sequence

    def advance(self, until: float, *, every: bool = True) -> list[Step]:
        """Complete every step that ends by ``until``. Returns what was done: every step, or only those in which
        something began or ended.
        """
        done: list[Step] = []
        while True:
            if self._batch is None:
                due = self._due_at()
                if due > until:
                    self.now, self.quiet_until = max(self.now, until), due
                    return done
                self.now = max(self.now, due)
                self._begin()
            step = self._taken(until)
            if step is None:
                self.quiet_until = self.now + self._seconds_left()
                return done
            if every or step.started or step.finished:
                done.append(step)

    def step(self) -> Step | None:
        """Complete the steps until something ends, however long it takes; None when there is nothing to do."""
        if self._batch is None:
            due = self._due_at()
            if due == inf:
                return None
            self.now = max(self.now, due)
            self._begin()
        return self._taken(inf)

    def _due_at(self) -> float:
        """When the next batch begins if nobody else comes: now if it is full, never if nobody waits."""
        if not self.waiting or not self.admitting:
            return inf
        if len(self.waiting) >= self.max_num_seqs:
            return self.now
        return max(self.now, self.waiting[0].arrived_at + self.fill_seconds)

    def _begin(self) -> None:
        """Take from the head of the queue as many as the batch and, each as long as the longest, the cache hold."""
        members: list[Sequence] = []
        prompt = output = 0
        while self.waiting and len(members) < self.max_num_seqs:
            head = self.waiting[0]
            longest_prompt, longest_output = max(prompt, head.prompt_tokens), max(output, head.output_tokens)
            if (len(members) + 1) * (longest_prompt + longest_output) > self.hardware.kv_tokens:
                break
            prompt, output = longest_prompt, longest_output
            head.admitted_at = self.now
            members.append(self.waiting.popleft())
        self._batch = _Batch(members, prompt, output)

    def _seconds(self, tokens: int, steps: int) -> float:
        """How long so many steps take after each member was given ``tokens``: each adds the same context."""
        batch = self._batch
        assert batch is not None
        count, cost = len(batch.members), self.hardware.cost
        if tokens == 0:
            return cost.seconds(count, 0, count * batch.prompt_tokens) + (
                self._seconds(1, steps - 1) if steps > 1 else 0.0
            )
        first = cost.seconds(count, count * (batch.prompt_tokens + tokens - 1), 0)
        return steps * first + cost.per_context_token_ms * count / 1000.0 * steps * (steps - 1) / 2

    def _seconds_left(self) -> float:
        batch = self._batch
        assert batch is not None
        return self._seconds(batch.tokens, batch.output_tokens - batch.tokens)

    def _taken(self, until: float) -> Step | None:
        """The prefill, or as many decoding steps as end by ``until``, as one; None if there is none."""
        batch = self._batch
        assert batch is not None
        steps = 1 if batch.tokens == 0 else self._steps_within(until - self.now)
        seconds = self._seconds(batch.tokens, steps)
        if steps < 1 or self.now + seconds > until + ROUNDING:
            return None
        before, prefilled = batch.tokens, batch.tokens == 0
        batch.tokens += steps
        self.steps += steps
        self.busy_seconds += seconds
        self.now = self.worked_until = self.now + seconds
        for member in batch.members:
            if prefilled:
                member.first_token_at = self.now
            member.generated = min(batch.tokens, member.output_tokens)
            if member.generated > before:
                member.last_token_at = self.now
        brought = sum(max(0, min(batch.tokens, member.output_tokens) - before) for member in batch.members)
        self.generated_tokens += brought
        finished = batch.members if batch.tokens == batch.output_tokens else ()
        for member in finished:
            member.finished_at = self.now
        if finished:
            self._batch = None
        return Step(
            self.now,
            seconds / steps,
            sum(member.prompt_tokens for member in batch.members) if prefilled else 0,
            0 if prefilled else brought,
            steps=steps,
            started=batch.members if prefilled else (),
            finished=finished,
        )

    def _steps_within(self, seconds: float) -> int:
        """How many decoding steps end within so long, of those that are left: the larger root of a quadratic."""
        batch = self._batch
        assert batch is not None
        left = batch.output_tokens - batch.tokens
        if self._seconds(batch.tokens, left) <= seconds + ROUNDING:
            return left
        first = self._seconds(batch.tokens, 1)
        half = self.hardware.cost.per_context_token_ms * len(batch.members) / 2000.0
        wanted = seconds + ROUNDING
        most = (
            wanted / first
            if half == 0
            else (sqrt((first - half) ** 2 + 4 * half * wanted) - (first - half)) / (2 * half)
        )
        return min(left, int(most))


#: Either way of batching; both are fed, moved and read in the same way.
AnyEngine = Engine | StaticEngine
