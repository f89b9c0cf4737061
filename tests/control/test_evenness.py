"""Several replicas share one margin for chance, as far as their load is seen to be even."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.evenness import LARGEST_OF, pooled, unevenness
from scaler.control.model import Code
from scaler.policy.model import Batch, Capacity, Policy, ReplicaRange
from tests.control.timeline import Timeline, signals

POLICY = Policy(
    capacity=Capacity(requests_per_second=1, sequences=12, learn=False),
    batch=Batch(max=64),
    replicas=ReplicaRange(max=50, cold_start_seconds=120),
)
SHARES = st.floats(0.1, 1.5)


def load(rate: float, ready: int, busiest: float, **more: Any) -> dict[str, Any]:
    running = {"running": rate * 10, "busiest_running": busiest}
    return dict(arrivals=rate, recent=rate, last=rate, waiting=0, ready=ready, kv=0.3) | running | more


def seen(ready: int, running: float, busiest: float, *, before: float | None = None, seconds: float = 1e6) -> Any:
    return unevenness(before, signals(0.0, running=running, busiest_running=busiest, ready=ready), seconds)


def test_one_pool_of_nine_takes_the_load_of_eleven() -> None:
    """Nine at L° are twelve at L* (0.75); a third of a replica's room times √9 stays free: eleven."""
    assert pooled(11.0, 0.4, 0.75) == pytest.approx(9.0)
    assert pooled(11.0, 0.75, 0.75) == pytest.approx(9.878, abs=0.001)  # half of it certain
    assert pooled(11.0, 1.0, 0.75) == pooled(11.0, None, 0.75) == 11.0


@given(st.floats(0, 1000), st.none() | st.floats(0, 3), SHARES)
def test_pooling_only_ever_saves_and_never_more_than_all_the_room(
    load: float, uneven: float | None, share: float
) -> None:
    replicas = pooled(load, uneven, share)
    assert replicas <= load * (1 + 1e-9)
    assert replicas >= min(share, 1.0) * load * (1 - 1e-9)
    if load <= 1.0:
        assert replicas == load


@given(st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 3), SHARES)
def test_more_load_never_needs_fewer(one: float, other: float, uneven: float, share: float) -> None:
    less, more = sorted((one, other))
    assert pooled(less, uneven, share) <= pooled(more, uneven, share) * (1 + 1e-9)


def test_how_far_the_busiest_stands_out_is_held_against_chance() -> None:
    by_chance = 25 + LARGEST_OF[2] * math.sqrt(25)  # four replicas of 25 each
    assert seen(4, 100, by_chance) == pytest.approx(1.0)
    assert seen(4, 100, 25) == pytest.approx(0.0)
    assert seen(4, 100, 100) > 10


def test_it_is_believed_slowly_and_held_where_it_cannot_be_told() -> None:
    assert seen(4, 100, 25, seconds=60) == pytest.approx(0.905, abs=0.001)  # from 1, a minute of ten
    assert seen(1, 10, 10, before=0.3) == 0.3  # one alone
    assert seen(4, 7, 4, before=0.3) == 0.3  # too few to tell
    assert unevenness(0.3, signals(0.0, running=100, ready=4), 60.0) == 0.3
    assert unevenness(None, signals(0.0), 60.0) is None


def test_replicas_whose_load_is_seen_to_be_even_are_loaded_further() -> None:
    even = Timeline(POLICY).at("0s", **load(10.5, 11, 12)).expect(need=11).at("15m").expect(need=9)
    even.at("25m").expect(replicas=9).because(Code.ARRIVALS)
    reason = next(reason for reason in even.decision.reasons if reason.code is Code.ARRIVALS)  # type: ignore[union-attr]
    assert reason.threshold == pytest.approx(10.5 / 8.7, rel=0.03)  # what one of them serves
    Timeline(POLICY).at("0s", **load(10.5, 11, 25)).at("15m").expect(need=11)
    Timeline(POLICY).at("0s", **load(10.5, 11, 12) | {"busiest_running": None}).at("15m").expect(need=11)


def test_what_runs_is_shared_out_in_the_same_way() -> None:
    busy = load(1.0, 11, 12.5) | {"running": 126.0}  # L* is 12: as many as at 10.5/s
    Timeline(POLICY).at("0s", **busy).expect(need=11).because(Code.RUNNING).at("15m").expect(need=9)
