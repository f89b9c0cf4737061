"""A vLLM scheduler class that plays a CPU engine in slow motion, so that its measurements hold on a shared machine.

Each engine step takes ``SLOW_MOTION`` times as long as it takes on a quiet core: it is computed, and then waits until
its time is over. Who else computes meanwhile changes nothing, as long as the step gets one part in so many of the
core. What is queued, admitted, computed and answered is the engine's own; only the length of a step is a law,
measured on this engine. (Stretching the CPU time that a step took does not do: beside other work that was seen to be
2 to 3 times as much at one batch, from one minute to the next.) Rates and latencies of two runs compare; they are not
this machine's.

Loaded by the engine core alone (``--scheduler-cls slow_motion.SlowMotionScheduler``, this folder on PYTHONPATH), beside
the plugin's entry point, and so without the rest of this package. It leaves (seconds of steps, seconds by which
each ended late all the same, summed) in the file that ``SLOW_MOTION_FILE`` names.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

FACTOR = float(os.environ.get("SLOW_MOTION", "1"))
FILE = os.environ.get("SLOW_MOTION_FILE", "")
#: Time per output token of 1 to 64 streams on one quiet core (R² 0.9994), and the prompts' share of a step.
BASE_MS, PER_SEQUENCE_MS, PER_PROMPT_TOKEN_MS = 5.06, 0.384, 0.20


def step_seconds(scheduled: dict[str, int]) -> float:
    """How long a step with so many tokens per request takes; a request with one is past its prompt."""
    prompts = sum(tokens for tokens in scheduled.values() if tokens > 1)
    return FACTOR * (BASE_MS + PER_SEQUENCE_MS * len(scheduled) + PER_PROMPT_TOKEN_MS * prompts) / 1000.0


class SlowMotionScheduler(Scheduler):  # type: ignore[misc]
    """Steps end when their time is over. While there is work a step begins when the last one should have ended: what
    came late is made good by the next steps, and does not add up to a queue.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._workers: list[int] = []
        self._due: float | None = None
        self._began = self._stepped_seconds = self._late_seconds = self._written = 0.0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self._began = time.monotonic() if self._due is None else self._due
        return super().schedule(*args, **kwargs)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        if scheduler_output.num_scheduled_tokens:
            self._end_step(self._began + step_seconds(scheduler_output.num_scheduled_tokens))
        told = super().update_from_output(scheduler_output, model_runner_output)
        if not self.has_unfinished_requests():
            self._due = None
        return told

    def _end_step(self, due: float) -> None:
        now = time.monotonic()
        if due > now:
            with self._stopped_workers():
                time.sleep(due - now)
        self._due = due
        self._stepped_seconds += due - self._began
        self._late_seconds += max(0.0, now - due)
        if FILE and now - self._written > 1.0:
            self._written = now
            with open(FILE, "w", encoding="utf-8") as file:
                file.write(f"{self._stepped_seconds} {self._late_seconds}")

    @contextmanager
    def _stopped_workers(self) -> Iterator[None]:
        """Without them meanwhile: they wait for the next step in a loop, and would take the core from others."""
        if not self._workers:
            self._workers = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_worker(pid)]
        for worker in self._workers:
            os.kill(worker, signal.SIGSTOP)
        try:
            yield
        finally:
            for worker in self._workers:
                os.kill(worker, signal.SIGCONT)


def _is_worker(pid: str) -> bool:
    """Whether it is a worker of this engine core."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            _, name, rest = file.read().replace(")", "(").split("(", 2)
    except (OSError, ValueError):  # it has ended
        return False
    return "Worker" in name and rest.split()[1] == str(os.getpid())
