"""Schedulers as vLLM's generations have them, reduced to what a change of the batch touches: who is admitted, how many
tokens a step computes, and what is asserted at its end. Read in the sources of 0.32, 0.30 and 0.22.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any


class Request:
    """One request: tokens of its prompt still to be computed, then one token per step until ``answer`` are written."""

    def __init__(self, prompt: int = 4, answer: int = 3) -> None:
        self.prompt, self.answer = prompt, answer

    @property
    def wants(self) -> int:
        return self.prompt or 1


class Scheduler:
    """0.22 and older: one number is slots and admission, and is compared with ``==``."""

    def __init__(self, *, max_num_seqs: int = 8, max_num_batched_tokens: int = 64, **config: Any) -> None:
        self.scheduler_config = SimpleNamespace(**{"enable_chunked_prefill": True, **config.pop("scheduler", {})})
        self.parallel_config = SimpleNamespace(**config.pop("parallel", {}))
        self.max_num_running_reqs = max_num_seqs
        self.max_num_scheduled_tokens = max_num_batched_tokens
        self.block_size = 4
        self.num_spec_tokens = config.pop("num_spec_tokens", 0)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.finished = 0

    def admits(self) -> bool:
        return len(self.running) != self.max_num_running_reqs

    def schedule(self, throttle_prefills: bool = False) -> int:
        """One step; the tokens it computed."""
        budget, scheduled = self.max_num_scheduled_tokens, 0
        for request in self.running:
            scheduled += self._compute(request, budget - scheduled)
        while self.waiting and scheduled < budget and self.admits():
            request = self.waiting.popleft()
            self.running.append(request)
            scheduled += self._compute(request, budget - scheduled)
        assert scheduled <= self.max_num_scheduled_tokens
        assert len(self.running) <= self.max_num_running_reqs, "the engine core would have died"
        return scheduled

    def _compute(self, request: Request, left: int) -> int:
        if request.prompt:
            tokens = min(request.prompt, left)
            request.prompt -= tokens
            return tokens
        tokens = min(1 + self.num_spec_tokens, left)
        request.answer -= bool(tokens)
        return tokens

    def update(self) -> None:
        """After a step: who has its answer leaves."""
        still = [request for request in self.running if request.answer > 0]
        self.finished += len(self.running) - len(still)
        self.running = still


class Scheduler030(Scheduler):
    """0.23 to 0.30: the same number, compared with ``>=``."""

    def admits(self) -> bool:
        return len(self.running) < self.max_num_running_reqs


class Scheduler032(Scheduler):
    """0.31 and newer: admission has a number of its own."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.max_num_active_reqs = self.max_num_running_reqs

    def admits(self) -> bool:
        return len(self.running) < self.max_num_active_reqs


GENERATIONS = (Scheduler, Scheduler030, Scheduler032)
