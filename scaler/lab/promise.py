"""What was promised to each request, and whether it was kept."""

from __future__ import annotations

from scaler.lab.fleet import Request
from scaler.lab.sequence import Sequence
from scaler.value import frozen


@frozen
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
    return _first_in_time(promise, request, sequence) and _rest_in_time(promise, sequence)


def late_first_alone(promise: Promise, request: Request, sequence: Sequence) -> bool:
    """Whether it missed, but by nothing else than a late first token: the whole answer came, and fast enough."""
    return _rest_in_time(promise, sequence) and not _first_in_time(promise, request, sequence)


def _first_in_time(promise: Promise, request: Request, sequence: Sequence) -> bool:
    first = sequence.first_token_at
    return first is not None and first - request.at <= promise.ttft_seconds


def _rest_in_time(promise: Promise, sequence: Sequence) -> bool:
    first, last = sequence.first_token_at, sequence.finished_at
    return (
        first is not None and last is not None and last - first <= promise.tpot_seconds * (sequence.output_tokens - 1)
    )
