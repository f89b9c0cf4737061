"""How many requests arrived at an engine that counts only what it finished.

Engines count a request when it ends, and their gauges say how many are inside. Two balances follow, for one interval:

* by outcome:      arrived = finished + Δ(running + waiting) + hung up
* by first token:  arrived = first tokens + Δwaiting + Δ(in prefill)

A client that hangs up leaves no counter anywhere, so the first balance, without its last term, misses arrivals (a
negative one means that more hung up than came). A request in prefill is already running and has no first token yet, so
the second, without its last term, is late. Neither ever counts too many; the larger of both is the better bound. But
the two see the same request in *different* intervals when its prefill lies across a read, and a plain maximum would
count it twice: so what the first balance counted ahead of the second is remembered (``unanswered``) and set off.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite


def arrived(
    before: Mapping[str, float],
    now: Mapping[str, float],
    finished: float | None,
    first_tokens: float | None,
    unanswered: float,
) -> tuple[float, float]:
    """(requests arrived, requests counted but without first token now) between two reads of one endpoint.

    ``before`` and ``now`` are its gauges; ``finished`` and ``first_tokens`` what it counted in between, None where the
    engine has no such counter. ``unanswered`` is the second result of the read before. At least one of the counters
    must be there. A gauge missing from either read is taken not to have moved.
    """
    waiting = _change(before, now, "waiting")
    if first_tokens is None:
        return max(0.0, (finished or 0.0) + _change(before, now, "running") + waiting), 0.0
    answered = first_tokens + waiting
    running = now.get("running")
    # Without the running gauge a request would be counted at its first token and again at its end.
    by_outcome = 0.0 if finished is None or running is None else finished + _change(before, now, "running") + waiting
    count = max(0.0, by_outcome, answered - unanswered)
    ahead = max(0.0, unanswered + count - answered)
    # A request whose client hung up in prefill never gets its first token: no more can be unanswered than are running.
    return count, ahead if running is None else min(ahead, running)


def _change(before: Mapping[str, float], now: Mapping[str, float], gauge: str) -> float:
    change = now[gauge] - before[gauge] if gauge in before and gauge in now else 0.0
    return change if isfinite(change) else 0.0
