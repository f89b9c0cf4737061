"""One request in an engine, and what one step of an engine did: what both models of engines give and meters read."""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from dataclasses import dataclass

from scaler.lab.hardware import Hardware


@dataclass(slots=True, eq=False)
class Sequence:
    """One request and what became of it. Times are model seconds, None until they happen.

    ``admitted_at`` is the first admission, as vLLM's queue time counts; a preempted sequence keeps it.
    """

    prompt_tokens: int
    output_tokens: int
    arrived_at: float
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    finished_at: float | None = None
    preemptions: int = 0
    # Progress, kept by the engine. While it decodes, the tokens generated are counted from `decoding_since`.
    generated: int = 0
    prefill_left: int = 0
    decoding_since: int | None = None


@dataclass(slots=True)
class Step:
    """What one step does: scheduled when it begins; when it is complete, ``started`` got their first token and
    ``finished`` their last. ``following``: tokens that came ``seconds`` after their sequence's previous one.
    ``resumed``: how long each waited whose next token came after a preemption.

    ``steps`` > 1: so many equal steps in a row in which nothing but decoding happened; ``seconds`` is their mean.
    """

    ended_at: float
    seconds: float
    prefill_tokens: int
    following: int
    preempted: int = 0
    steps: int = 1
    started: ListOf[Sequence] = ()
    finished: ListOf[Sequence] = ()
    resumed: ListOf[float] = ()

    @property
    def intervals(self) -> list[tuple[float, int]]:
        """Seconds since the sequence's previous token, and how many such."""
        decoded = [(self.seconds, self.following)] if self.following else []
        return decoded + [(seconds, 1) for seconds in self.resumed]

    @property
    def generated_tokens(self) -> int:
        """Tokens this step brought: first ones and following ones."""
        return self.following + len(self.started) + len(self.resumed)


def refuse_impossible(
    hardware: Hardware, prompt_tokens: int, output_tokens: int, arrived_at: float, now: float
) -> None:
    """Raise ``ValueError`` for a request that has no tokens, can never fit the KV cache, or arrives in the past."""
    if prompt_tokens < 1 or output_tokens < 1:
        raise ValueError(f"a request needs tokens; got prompt {prompt_tokens}, output {output_tokens}")
    if prompt_tokens + output_tokens > hardware.kv_tokens:
        raise ValueError(
            f"prompt ({prompt_tokens}) and output ({output_tokens}) exceed the KV cache ({hardware.kv_tokens} tokens)"
        )
    if arrived_at < now:
        raise ValueError(f"arrived_at ({arrived_at:g}) lies before the engine's time ({now:g})")
