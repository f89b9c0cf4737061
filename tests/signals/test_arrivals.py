"""Arrivals of an engine that counts only what it finished, against a made engine whose arrivals are known."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from scaler.signals.arrivals import arrived


@dataclass(frozen=True)
class Request:
    """Times at which one request comes, starts, has its first token, and leaves; ``hung_up``: it is not "finished"."""

    came: float
    started: float
    answered: float
    left: float
    hung_up: bool = False

    @staticmethod
    def of(came: float, wait: float = 0.0, prefill: float = 0.5, decode: float = 1.0, patience: float = inf) -> Request:
        """A request whose client hangs up ``patience`` seconds after it came, if it is not finished by then."""
        answered = came + wait + prefill
        if patience >= wait + prefill + decode:
            return Request(came, came + wait, answered, answered + decode)
        left = came + patience
        return Request(came, min(came + wait, left), answered if answered <= left else inf, left, hung_up=True)


WAIT, PREFILL, DECODE = st.floats(0.0, 20.0), st.floats(0.0, 15.0), st.floats(0.0, 40.0)
PATIENT = st.builds(Request.of, st.floats(0.1, 100.0), WAIT, PREFILL, DECODE)
ANYONE = st.builds(Request.of, st.floats(0.1, 100.0), WAIT, PREFILL, DECODE, st.floats(0.0, 80.0))


def read(requests: list[Request], at: float) -> tuple[dict[str, float], float, float]:
    """(gauges, finished, first tokens) as the engine shows them at ``at``."""
    gauges = {
        "waiting": float(sum(each.came <= at < each.started for each in requests)),
        "running": float(sum(each.started <= at < each.left for each in requests)),
    }
    finished = float(sum(each.left <= at and not each.hung_up for each in requests))
    return gauges, finished, float(sum(each.answered <= at for each in requests))


def counted(requests: list[Request], every: float, *, finished: bool = True, first_tokens: bool = True) -> float:
    """All arrivals that are told when the engine is read every so many seconds from before the first request."""
    reads = [read(requests, step * every) for step in range(int(220 / every) + 2)]
    total = unanswered = 0.0
    for before, now in pairwise(reads):
        count, unanswered = arrived(
            before[0],
            now[0],
            now[1] - before[1] if finished else None,
            now[2] - before[2] if first_tokens else None,
            unanswered,
        )
        assert count >= 0
        assert unanswered >= 0
        total += count
    return total


@given(st.lists(PATIENT, max_size=30), st.sampled_from([1.0, 5.0, 15.0]))
def test_where_nobody_hangs_up_the_count_is_exact(requests: list[Request], every: float) -> None:
    assert counted(requests, every) == len(requests)
    assert counted(requests, every, first_tokens=False) == len(requests)


@given(st.lists(ANYONE, max_size=30), st.sampled_from([1.0, 5.0, 15.0]))
def test_who_hangs_up_is_at_worst_not_counted_and_never_counted_twice(requests: list[Request], every: float) -> None:
    hung_up = sum(each.hung_up for each in requests)

    assert len(requests) - hung_up <= counted(requests, every) <= len(requests)


def test_a_prefill_across_a_read_is_one_arrival() -> None:
    # Running without a first token at the read at 5 s; the first token falls into the next interval.
    requests = [Request.of(came=3.0, prefill=4.0, decode=20.0)]

    assert counted(requests, every=5.0) == 1


def test_who_hangs_up_after_the_first_token_is_counted_by_it() -> None:
    # Comes, is answered and hangs up between two reads: in no gauge and in no counter of finished requests.
    requests = [Request.of(came=1.0 + n * 0.1, prefill=0.5, decode=9.0, patience=1.0) for n in range(10)]

    assert counted(requests, every=5.0) == 10
    assert counted(requests, every=5.0, first_tokens=False) == 0


def test_who_hung_up_in_prefill_is_not_set_off_against_later_arrivals() -> None:
    gone = [Request.of(came=4.0, prefill=9.0, patience=3.0) for _ in range(10)]
    later = [Request.of(came=11.0, prefill=0.5, decode=9.0, patience=1.0) for _ in range(10)]

    assert counted(gone + later, every=5.0) == 20


def test_more_hung_up_than_came_is_no_negative_arrival() -> None:
    assert arrived({"running": 106.0, "waiting": 15.0}, {"running": 0.0, "waiting": 0.0}, 2.0, 0.0, 0.0)[0] == 0.0


def test_without_a_running_gauge_first_tokens_alone_are_counted() -> None:
    count, unanswered = arrived({"waiting": 0.0}, {"waiting": 2.0}, 5.0, 3.0, 0.0)
    assert (count, unanswered) == (5.0, 0.0)


def test_an_engine_without_a_queue_gauge_is_counted_by_what_it_finished() -> None:
    assert arrived({}, {}, 30.0, None, 0.0) == (30.0, 0.0)
