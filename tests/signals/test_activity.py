"""What is named as having kept a workload awake: always something that restarts the idle timer, and only then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from scaler.control.situation import Situation, wants_service
from scaler.signals.activity import Activity, activity
from scaler.signals.model import Signals
from scaler.signals.observation import Demand, EngineSample, ReadFailure
from tests.signals.timeline import Timeline, buckets, down, pod

Read = EngineSample | ReadFailure


class Watching:
    """A time line that says what showed activity at each step."""

    def __init__(self) -> None:
        self.line = Timeline(interval_seconds=5)
        self.signals = Signals()

    def at(
        self, seconds: float, demand: Demand | None = None, **endpoints: EngineSample | ReadFailure
    ) -> Activity | None:
        before = self.line.history.tracked
        self.signals = self.line.at(seconds, demand=demand, **endpoints)
        return activity(before, self.line.history.tracked, self.signals, seconds)


QUIET = {"running": 0, "waiting": 0, "finished": {'reason="stop"': 50.0, 'reason="abort"': 2.0}}


def test_a_quiet_workload_names_nobody() -> None:
    watching = Watching()
    assert [watching.at(seconds, a=pod(**QUIET), b=pod(**QUIET)) for seconds in (0, 5, 10)] == [None] * 3


def test_g2_08_the_series_that_moved_is_named_with_its_endpoint() -> None:
    """Who asks why a model does not idle finds a health checker's completions by it."""
    watching = Watching()
    watching.at(0, a=pod(**QUIET), b=pod(**QUIET))
    moved = {**QUIET, "finished": {'reason="stop"': 50.0, 'reason="abort"': 3.0}}
    assert watching.at(5, a=pod(**QUIET), b=pod(**moved)) == Activity("finished", 5, "b", 'reason="abort"')
    assert watching.at(10, a=pod(**QUIET), b=pod(**moved)) is None


def test_a_latency_that_was_observed_is_activity_of_its_family() -> None:
    watching = Watching()
    watching.at(0, a=pod(running=0, waiting=0, ttft=buckets([])))
    assert watching.at(5, a=pod(running=0, waiting=0, ttft=[0.2])) == Activity("ttft", 5, "a")


def test_what_runs_or_waits_is_named_by_its_replica() -> None:
    watching = Watching()
    assert watching.at(0, a=pod(running=0, waiting=0), b=pod(running=3, waiting=0)) == Activity("running", 0, "b")
    assert watching.at(5, a=pod(running=0, waiting=2), b=pod(running=3, waiting=0)) == Activity("waiting", 5, "a")


def test_demand_at_a_gateway_is_named_first() -> None:
    watching = Watching()
    assert watching.at(0, Demand(0, 2.0, False), a=pod(running=3)) == Activity("pending", 0)
    assert watching.at(5, Demand(5, 0.0, True), a=pod(running=0)) == Activity("wake_demand", 5)


def test_an_endpoint_seen_for_the_first_time_is_not_blamed_for_its_past() -> None:
    watching = Watching()
    watching.at(0, b=pod(**QUIET))
    moved = {**QUIET, "finished": {'reason="stop"': 51.0, 'reason="abort"': 2.0}}
    assert watching.at(5, a=pod(**QUIET), b=pod(**moved)) == Activity("finished", 5, "b", 'reason="stop"')


reads = st.one_of(
    st.just(down()),
    st.builds(
        lambda running, waiting, finished, tokens: pod(
            running=running, waiting=waiting, finished=finished, generation_tokens=tokens
        ),
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
)


@given(st.lists(st.tuples(reads, reads), min_size=1, max_size=6))
def test_something_is_named_exactly_when_the_idle_timer_is_restarted(
    ticks: list[tuple[EngineSample, EngineSample]],
) -> None:
    watching = Watching()
    for number, (a, b) in enumerate(ticks):
        named = watching.at(5.0 * number, Demand(5.0 * number, 0.0, False), a=a, b=b)
        situation = cast(Situation, SimpleNamespace(signals=watching.signals))  # nothing else of it is looked at
        assert (named is not None) is wants_service(situation)
