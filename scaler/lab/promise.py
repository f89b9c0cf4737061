"""What was promised to each request, and whether it was kept."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.lab.fleet import Request
from scaler.lab.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Promise:
    """The objectives, seconds: time to first token, from the request's arrival at the gateway, and the mean time per
    output token after it. ``patience_seconds``: no request is judged that came later than this before the end, so that
    each has time to finish; whoever has not by then has missed.
    """

    ttft_seconds: float = 1.0
    tpot_seconds: float = 0.05
    patience_seconds: float = 120.0


def kept(promise: Promise, request: Request, sequence: Sequence) -> bool:
    """Whether the request got its first token and then its whole answer in time. Unfinished is missed."""
    if sequence.first_token_at is None or sequence.finished_at is None:
        return False
    following = sequence.output_tokens - 1
    in_time = sequence.first_token_at - request.at <= promise.ttft_seconds
    return in_time and sequence.finished_at - sequence.first_token_at <= promise.tpot_seconds * following
