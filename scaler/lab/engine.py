"""A continuous-batching engine as a pure model: no clock, no I/O, no randomness. Time is the model's own, in seconds.

One step of the engine runs every decoding sequence by one token and prefills prompts with what is left of the token
budget; :mod:`scaler.lab.hardware` says how long that takes. What happens around the step follows vLLM's V1 scheduler:
first come, first served; at most ``max_num_seqs`` run; long prompts are prefilled in chunks; when the KV cache is full
the sequence admitted last is preempted, goes back to the head of the queue and later computes its tokens again.
Simplified: KV is counted in tokens, not in blocks, a prompt is admitted only when all of it fits, and there is no
prefix cache.

A step costs O(1), whatever the batch: of a sequence that only decodes, the step at which it finishes is known. Steps in
which nothing begins or ends are taken many at once (``coast``), so that a simulated request costs a handful of events.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from math import inf

from scaler.lab.hardware import Hardware
from scaler.lab.sequence import Sequence, Step, refuse_impossible

#: Steps taken at once differ in length by at most this share, and are at most so many.
COAST_SPREAD, LONGEST_COAST = 0.05, 1000
#: A token budget that was lowered below what decodes leaves prompts so much (a block), or they would wait for ever.
LEAST_PREFILL = 16


@dataclass(slots=True)
class Engine:
    """One replica. Feed it with :meth:`submit`, move it with :meth:`step` or :meth:`advance`; read it at any time.

    The same submissions give the same steps, however finely :meth:`advance` is sliced: a step once begun is kept until
    its end (times agree but for rounding where ``coast`` sums many steps at once). ``now`` is the end of the last step,
    or the time an idle engine was advanced to; ``worked_until`` is the end of the last step that began or ended
    something. ``quiet_until``: until then, if nothing is submitted, ``outstanding`` stays what it is, so that whoever
    asks only for that need not advance the engine. ``generated_tokens``: of all answers so far. ``max_num_seqs`` and
    ``max_num_batched_tokens`` may be changed at any time: what runs beyond the former finishes. While not ``admitting``
    nobody is taken in; who runs finishes.
    """

    hardware: Hardware
    max_num_seqs: int
    max_num_batched_tokens: int = 8192
    coast: bool = False
    admitting: bool = True
    now: float = 0.0
    waiting: deque[Sequence] = field(default_factory=deque)
    kv_used_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    worked_until: float = 0.0
    quiet_until: float = inf
    _prefilling: deque[Sequence] = field(default_factory=deque)
    _decoding: dict[int, Sequence] = field(default_factory=dict)
    _finishes: list[tuple[int, int, Sequence]] = field(default_factory=list)
    _entries: int = 0
    _under_way: Step | None = None

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_seqs ({self.max_num_seqs}) must be at least 1 and at most max_num_batched_tokens "
                f"({self.max_num_batched_tokens}): each running sequence takes one token of every step"
            )

    @property
    def running(self) -> int:
        """Sequences in the batch, prefilling or decoding."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def outstanding(self) -> int:
        """Requests it has: running and waiting."""
        return len(self._prefilling) + len(self._decoding) + len(self.waiting)

    @property
    def kv_use_ratio(self) -> float:
        """Share of the KV cache in use, 0..1."""
        return self.kv_used_tokens / self.hardware.kv_tokens

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.running and not self.waiting

    def generated(self, sequence: Sequence) -> int:
        """Output tokens the sequence has so far."""
        since = sequence.decoding_since
        return sequence.generated + (0 if since is None else self.steps - since)

    def submit(self, prompt_tokens: int, output_tokens: int, arrived_at: float) -> Sequence:
        """Queue one request. Advance the engine to ``arrived_at`` first. Raises ``ValueError`` as
        :func:`~scaler.lab.sequence.refuse_impossible` says.
        """
        refuse_impossible(self.hardware, prompt_tokens, output_tokens, arrived_at, self.now)
        if self._under_way is None:
            if arrived_at > self.now and self.running:
                self._begin()  # the step under way began before this request came
            else:
                self.now = arrived_at
        sequence = Sequence(prompt_tokens, output_tokens, arrived_at, prefill_left=prompt_tokens)
        self.waiting.append(sequence)
        self.quiet_until = arrived_at if self._under_way is None else self._under_way.ended_at
        return sequence

    def advance(self, until: float, *, every: bool = True) -> list[Step]:
        """Complete every step that ends by ``until``; the next one may then be under way. Returns what was done: every
        step, or only those in which something began, ended or was preempted.
        """
        done: list[Step] = []
        while True:
            step = self._under_way
            if step is None:
                if self.coast and self._decoding and not self._prefilling:
                    self._coast(until, done if every else None)
                    if until < self.quiet_until and not self.waiting:
                        return done  # the step under way only decodes: it can wait to be booked
                elif not (self._decoding or self._prefilling or (self.waiting and self.admitting)):
                    self.now = max(self.now, until)
                    self.quiet_until = inf
                    return done
                step = self._begin()
            if step.ended_at > until:
                self.quiet_until = step.ended_at
                return done
            self._complete(step)
            if every or step.started or step.finished or step.preempted:
                done.append(step)

    def step(self) -> Step | None:
        """Complete the next step, however long it takes; None when there is nothing to do, or nobody is admitted."""
        if self._under_way is None and (self.running or (self.waiting and self.admitting)):
            self._begin()
        step = self._under_way
        if step is not None:
            self._complete(step)
        return step

    def _coast(self, until: float, done: list[Step] | None) -> None:
        """Somebody decoding and nobody prefilling, take every step up to ``until`` in which nothing can begin, end or
        be preempted, many as one. Their times form an arithmetic series: each adds the same context.
        """
        sequences = len(self._decoding)
        if self.waiting and sequences < self.max_num_seqs and self.admitting:
            return
        cost, used, now = self.hardware.cost, self.kv_used_tokens, self.now
        # The step after these may end a sequence, or find the cache full. Steps only get longer until then.
        unchanged = min(self._finishes[0][0] - self.steps, (self.hardware.kv_tokens - used) // sequences) - 1
        first = cost.seconds(sequences, used, 0)
        while unchanged >= 1 and first <= until - now and now + first <= until:
            growth = cost.per_context_token_ms * sequences / 1000.0
            # Within these the intervals differ too little to be told apart in a histogram.
            alike = int(COAST_SPREAD * first / growth) + 1 if growth > 0 else LONGEST_COAST
            most = min(unchanged, int((until - now) / first), alike)
            while now + most * first + growth * most * (most - 1) / 2 > until:
                most -= 1
            seconds = first + growth * (most - 1) / 2
            now += most * seconds
            used += most * sequences
            unchanged -= most
            self.steps += most
            if done is not None:
                done.append(Step(now, seconds, 0, most * sequences, steps=most))
            first = cost.seconds(sequences, used, 0)
        self.generated_tokens += used - self.kv_used_tokens
        self.now, self.kv_used_tokens = now, used
        self.quiet_until = now + (unchanged + 1) * first

    def _begin(self) -> Step:
        """The next step, scheduled now; there is work."""
        preempted = tokens = 0
        if self.kv_used_tokens + len(self._decoding) > self.hardware.kv_tokens:
            preempted = self._make_room()
        decoding = len(self._decoding)
        if self._prefilling or self.waiting:
            tokens = self._scheduled_prefill(admit=preempted == 0)
        seconds = self.hardware.cost.seconds(decoding + len(self._prefilling), self.kv_used_tokens, tokens)
        self._under_way = Step(self.now + seconds, seconds, tokens, decoding, preempted)
        return self._under_way

    def _make_room(self) -> int:
        """Preempt from the last admitted until every decoding sequence can take one more token; how many it took.

        Whoever still prefills was admitted after all who decode, so the last of the prefilling goes first. The oldest
        sequence always fits alone (``submit`` saw to it), so somebody always makes progress.
        """
        preempted = 0
        while self.kv_used_tokens + len(self._decoding) > self.hardware.kv_tokens:
            if self._prefilling:
                victim = self._prefilling.pop()
                held = victim.prompt_tokens + victim.generated - victim.prefill_left
            else:
                _, victim = self._decoding.popitem()
                victim.generated, victim.decoding_since = self.generated(victim), None
                victim.last_token_at = self.now
                # The newest token has no KV yet: it is computed when it is fed in for the next one.
                held = victim.prompt_tokens + victim.generated - 1
            self.kv_used_tokens -= held
            victim.prefill_left = victim.prompt_tokens + victim.generated
            victim.preemptions += 1
            preempted += 1
            self.waiting.appendleft(victim)
        return preempted

    def _scheduled_prefill(self, *, admit: bool) -> int:
        """The tokens of prompts in this step: of those begun before, then of new admissions, as the budget allows.

        It is spent in this order, so that all who get any of it but the last have their whole prompt computed.
        """
        prefilling, decoding = self._prefilling, len(self._decoding)
        budget = max(LEAST_PREFILL, self.max_num_batched_tokens - decoding)
        room = self.hardware.kv_tokens - self.kv_used_tokens - decoding
        begun = sum([sequence.prefill_left for sequence in prefilling]) if prefilling else 0
        tokens = min(begun, budget, room)
        room -= begun
        if not (admit and self.admitting):
            return tokens
        while self.waiting and tokens < budget and decoding + len(prefilling) < self.max_num_seqs:
            sequence = self.waiting[0]
            if sequence.prefill_left > room:
                break  # first come, first served: nobody overtakes
            prefilling.append(self.waiting.popleft())
            if sequence.admitted_at is None:
                sequence.admitted_at = self.now
            tokens = min(tokens + sequence.prefill_left, budget)
            room -= sequence.prefill_left
        return tokens

    def _complete(self, step: Step) -> None:
        """Book the step under way: every scheduled token now exists."""
        self._under_way = None
        self.now = self.worked_until = step.ended_at
        self.steps += 1
        self.kv_used_tokens += step.following + step.prefill_tokens
        self.generated_tokens += step.following
        if self._finishes and self._finishes[0][0] <= self.steps:
            step.finished = self._decoded_to_the_end()
        if step.prefill_tokens:
            self._prefill(step)

    def _prefill(self, step: Step) -> None:
        """Compute the step's part of the prompts; whose prompt is whole now gets a token."""
        tokens = step.prefill_tokens
        started, finished, resumed = [], list(step.finished), []
        while tokens:
            sequence = self._prefilling[0]
            if sequence.prefill_left > tokens:
                sequence.prefill_left -= tokens
                break
            tokens -= sequence.prefill_left
            sequence.prefill_left = 0
            self._prefilling.popleft()
            sequence.generated += 1
            self.generated_tokens += 1
            if sequence.first_token_at is None:
                sequence.first_token_at = self.now
                started.append(sequence)
            else:  # preempted in between: its next token kept the reader waiting all that time
                assert sequence.last_token_at is not None
                resumed.append(self.now - sequence.last_token_at)
            sequence.last_token_at = self.now
            if sequence.generated == sequence.output_tokens:
                finished.append(self._finish(sequence))
            else:
                self._start_decoding(sequence)
        step.started, step.finished, step.resumed = started, finished, resumed

    def _start_decoding(self, sequence: Sequence) -> None:
        """From the next step on it gets one token per step, and so its last step is known already."""
        sequence.decoding_since = self.steps
        last_step = self.steps + sequence.output_tokens - sequence.generated
        self._entries += 1
        self._decoding[self._entries] = sequence
        heapq.heappush(self._finishes, (last_step, self._entries, sequence))

    def _decoded_to_the_end(self) -> list[Sequence]:
        """The decoding sequences whose last token came with this step."""
        finished = []
        while self._finishes and self._finishes[0][0] <= self.steps:
            _, entry, sequence = heapq.heappop(self._finishes)
            # An entry outlives a preemption; one that decodes again does so under a new entry.
            if self._decoding.pop(entry, None) is not None:
                sequence.generated, sequence.decoding_since = sequence.output_tokens, None
                finished.append(self._finish(sequence))
        return finished

    def _finish(self, sequence: Sequence) -> Sequence:
        sequence.finished_at = sequence.last_token_at = self.now
        self.kv_used_tokens -= sequence.prompt_tokens + sequence.output_tokens - 1
        return sequence
