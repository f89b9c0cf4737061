"""A vLLM scheduler made to follow: what each generation admits, what it never does, and the way back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import loadtide_vllm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loadtide_vllm import Applied, Follower, Knobs, Target

from tests.plugins.fake_scheduler import GENERATIONS, Request, Scheduler, Scheduler032

each_generation = pytest.mark.parametrize("generation", GENERATIONS)


class FakeLink:
    """Holds what a test says; None: expired, or never fetched."""

    def __init__(self) -> None:
        self.held: Target | None = None

    def target(self) -> Target | None:
        return self.held

    def publish(self, batch: int | None, budget: int | None = None, admission: str = "open") -> None:
        generation = self.held.generation + 1 if self.held else 1
        self.held = Target(batch, budget, admission, generation)


class Engine:
    """A scheduler that follows, and its steps."""

    def __init__(self, generation: Callable[..., Scheduler], **config: Any) -> None:
        self.scheduler = generation(**config)
        self.link = FakeLink()
        self.follower = Follower(self.scheduler, self.link)
        #: Requests in the last step.
        self.running = 0

    def load(self, requests: int, **request: int) -> None:
        self.scheduler.waiting.extend(Request(**request) for _ in range(requests))

    def step(self, steps: int = 1) -> list[int]:
        """The tokens of each step."""
        computed = []
        for _ in range(steps):
            self.follower.step()
            computed.append(self.scheduler.schedule())
            self.running = len(self.scheduler.running)
            self.scheduler.update()
        return computed


@each_generation
def test_running_follows_the_target_down_and_up_and_nothing_is_dropped(generation: Callable[..., Scheduler]) -> None:
    engine = Engine(generation)
    engine.load(60, answer=5)
    engine.step()
    assert engine.running == 8
    engine.link.publish(3)
    engine.step()
    assert engine.running == 8  # who runs goes on; no assertion ended the engine
    engine.step(10)
    assert engine.running == 3
    assert engine.follower.applied() == Applied(3, 64, "open", 1)
    engine.link.publish(6)
    engine.step()
    assert engine.running == 6
    engine.step(200)
    assert engine.scheduler.finished == 60
    assert not engine.follower.broken


@each_generation
def test_a_target_outside_what_was_booted_is_brought_inside(generation: Callable[..., Scheduler]) -> None:
    engine = Engine(generation)
    engine.load(60, answer=50)
    engine.link.publish(1000, budget=100_000)
    engine.step()
    assert (engine.running, engine.follower.applied()) == (8, Applied(8, 64, "open", 1))


@each_generation
def test_without_a_target_the_boot_values_come_back(generation: Callable[..., Scheduler]) -> None:
    engine = Engine(generation)
    engine.load(60, answer=5)
    engine.link.publish(2, budget=12)
    engine.step(10)
    assert engine.running == 2
    engine.link.held = None  # expired
    engine.step(2)
    assert engine.running == 8
    assert engine.scheduler.max_num_scheduled_tokens == 64
    assert engine.follower.applied() == Applied(8, 64, "open", None)


@each_generation
def test_hold_admits_nobody_and_lets_who_runs_finish(generation: Callable[..., Scheduler]) -> None:
    engine = Engine(generation)
    engine.load(20, answer=5)
    engine.step()
    engine.link.publish(8, admission="hold")
    seen = [engine.running]
    for _ in range(12):
        engine.step()
        seen.append(engine.running)
    assert seen == sorted(seen, reverse=True)
    assert (engine.running, engine.scheduler.finished, len(engine.scheduler.waiting)) == (0, 8, 12)
    assert engine.follower.applied().admission == "hold"
    engine.link.publish(8, admission="shed")  # a scheduler cannot refuse: it keeps them waiting
    engine.step()
    assert (engine.running, engine.follower.applied().admission) == (0, "hold")
    engine.link.publish(8)
    engine.step()
    assert engine.running == 8


@each_generation
def test_the_token_budget_moves_live_and_never_below_what_runs_needs(generation: Callable[..., Scheduler]) -> None:
    engine = Engine(generation, max_num_batched_tokens=256)
    engine.load(40, prompt=100, answer=4)
    assert engine.step() == [256]
    engine.link.publish(None, budget=40)
    assert engine.step() == [40]
    engine.link.publish(None, budget=1)
    [computed] = engine.step()
    assert computed == engine.running + engine.scheduler.block_size  # a token for each, and a block for a prompt
    engine.step(1500)
    assert engine.scheduler.finished == 40  # nobody starved


def test_what_speculates_needs_more_tokens_each() -> None:
    knobs = Knobs(Scheduler032(num_spec_tokens=3))
    knobs._scheduler.running = [Request()] * 5
    assert knobs.wanted(Target(8, 1, "open", 1)).token_budget == 5 * 4 + 4


@pytest.mark.parametrize(
    "config",
    [
        {"scheduler": {"enable_chunked_prefill": False}},
        {"scheduler": {"disable_chunked_mm_input": True}},
    ],
)
def test_where_a_prompt_must_fit_one_step_the_budget_is_left_alone(config: dict[str, Any]) -> None:
    engine = Engine(Scheduler032, **config)
    engine.load(3, prompt=60)
    engine.link.publish(2, budget=8)
    assert engine.step() == [64]
    assert engine.follower.applied() == Applied(2, 64, "open", 1)


@each_generation
@settings(max_examples=60)
@given(
    script=st.lists(
        st.tuples(
            st.none() | st.tuples(st.none() | st.integers(1, 20), st.none() | st.integers(1, 100)),
            st.sampled_from(["open", "open", "hold", "shed"]),
            st.integers(0, 6),
            st.integers(1, 5),
        ),
        max_size=30,
    )
)
def test_no_sequence_of_targets_ends_an_engine_or_loses_a_request(
    generation: Callable[..., Scheduler],
    script: list[tuple[tuple[int | None, int | None] | None, str, int, int]],
) -> None:
    engine, sent = Engine(generation), 0
    for sizes, admission, arriving, steps in script:
        if sizes is None:
            engine.link.held = None
        else:
            engine.link.publish(*sizes, admission)
        engine.load(arriving, prompt=9, answer=4)
        sent += arriving
        before = engine.running
        engine.step(steps)  # the scheduler's own assertions hold
        most = 8 if sizes is None or sizes[0] is None else min(8, sizes[0])
        assert engine.running <= max(before, most)
        if sizes is not None and admission != "open":
            assert engine.running <= before
    engine.link.held = None
    engine.step(600)
    assert (engine.scheduler.finished, engine.follower.broken) == (sent, False)


def test_the_engines_of_one_replica_share_its_target() -> None:
    def knobs(**parallel: Any) -> Knobs:
        return Knobs(Scheduler032(max_num_seqs=64, parallel=parallel))

    target = Target(100, None, "open", 1)
    assert knobs(data_parallel_size=4).wanted(target).batch_size == 25
    assert knobs(data_parallel_size=3).wanted(target).batch_size == 34
    # Behind a balancer of one's own each engine has its /metrics, and is a replica to loadtide.
    apart = {"data_parallel_size": 4, "data_parallel_size_local": 1, "data_parallel_external_lb": True}
    assert knobs(**apart).wanted(target).batch_size == 64


def test_each_of_them_reports_the_replica_s_batch_under_a_name_of_its_own() -> None:
    link = FakeLink()
    link.publish(100)
    follower = Follower(
        Scheduler032(max_num_seqs=64, parallel={"data_parallel_size": 3, "data_parallel_index": 2}), link
    )
    assert follower.report("chat-0") == {
        "replica": "chat-0/2",
        "batch_size": 100,  # 3 × 34 is what comes of rounding, not another batch
        "token_budget": 64,
        "admission": "open",
        "running": 0,
        "generation": 1,
    }
    link.held = None
    assert follower.report("chat-0")["batch_size"] == 3 * 64


def test_an_empty_engine_makes_no_steps_and_reports_what_its_next_will_run_with() -> None:
    engine = Engine(Scheduler032)
    engine.link.publish(3)
    assert engine.scheduler.max_num_active_reqs == 8
    assert engine.follower.applied() == Applied(3, 64, "open", 1)
    engine.load(5, answer=9)
    engine.step()
    assert engine.running == 3


def test_a_busy_engine_reports_what_was_set_not_what_was_published() -> None:
    engine = Engine(Scheduler032)
    engine.load(5, answer=9)
    engine.step()
    engine.link.publish(3)
    assert engine.follower.applied() == Applied(8, 64, "open", None)
    engine.step()
    assert engine.follower.applied() == Applied(3, 64, "open", 1)


def test_only_a_change_of_what_is_applied_is_worth_a_report() -> None:
    engine = Engine(Scheduler032)
    engine.load(40, prompt=30, answer=30)
    engine.link.publish(8, budget=6)
    engine.step()
    assert engine.follower.changed.is_set()
    engine.follower.changed.clear()
    engine.step(20)  # the budget follows what runs, at every step
    assert not engine.follower.changed.is_set()


class Brittle(Scheduler032):
    """A scheduler of a future version, whose limit can no longer be set."""

    @property
    def max_num_active_reqs(self) -> int:
        return 8

    @max_num_active_reqs.setter
    def max_num_active_reqs(self, value: int) -> None:
        if getattr(self, "frozen", False):
            raise AttributeError("no longer settable")


def test_a_scheduler_that_cannot_be_set_is_left_alone_and_the_engine_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(Brittle)
    engine.scheduler.frozen = True
    engine.load(20)
    engine.link.publish(2)
    with caplog.at_level(logging.ERROR, "vllm.loadtide"):
        engine.step(100)
    assert engine.scheduler.finished == 20
    assert engine.follower.broken
    assert engine.follower.report("chat-0")["generation"] is None
    assert len(caplog.records) == 1  # once, not at every step


class Jammed(Scheduler032):
    """One whose budget can no longer be set, once it is jammed."""

    jammed = False

    @property
    def max_num_scheduled_tokens(self) -> int:
        return 64

    @max_num_scheduled_tokens.setter
    def max_num_scheduled_tokens(self, value: int) -> None:
        if self.jammed:
            raise AttributeError("no longer settable")


def test_what_was_set_before_something_went_wrong_is_put_back() -> None:
    engine = Engine(Jammed)
    engine.load(60, answer=9)
    engine.link.publish(2)
    engine.step(20)
    assert engine.running == 2
    engine.scheduler.jammed = True
    engine.link.publish(3)
    engine.step(20)
    assert engine.follower.broken
    assert engine.running == 8
    assert engine.follower.report("chat-0")["generation"] is None


def test_until_there_is_a_target_the_knobs_are_whoever_s_they_are() -> None:
    engine = Engine(Scheduler032)
    engine.load(60, answer=9)
    engine.scheduler.max_num_active_reqs = 5  # by somebody else
    engine.step(3)
    assert engine.running == 5


# -- ways in


@pytest.fixture
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOADTIDE_URL": "http://127.0.0.1:9", "LOADTIDE_WORKLOAD": "chat/m"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(loadtide_vllm.Link, "start", lambda self, follower: None)


@pytest.mark.usefixtures("_environment")
def test_a_scheduler_follows_whichever_class_defines_its_steps() -> None:
    class Later(Scheduler032):
        def schedule(self, throttle_prefills: bool = False) -> int:
            return 1000 + super().schedule(throttle_prefills)

    made = loadtide_vllm.following(Later, "FollowingScheduler")(max_num_seqs=4)
    follower = made._loadtide
    loadtide_vllm.attach(made)
    assert made._loadtide is follower  # twice is once
    follower._link._held = loadtide_vllm.Held(Target(2, None, "open", 1), "", float("inf"))
    made.waiting.extend([Request(), Request(), Request()])
    assert made.schedule(throttle_prefills=True) == 1000 + 8
    assert len(made.running) == 2


def test_without_settings_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADTIDE_URL", raising=False)
    scheduler = Scheduler032()
    loadtide_vllm.attach(scheduler)
    loadtide_vllm.register()
    assert "schedule" not in vars(scheduler)


def test_bad_settings_leave_the_engine_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOADTIDE_URL", "http://loadtide:8080")
    monkeypatch.setenv("LOADTIDE_WORKLOAD", "llama-8b")
    scheduler = Scheduler032()
    with caplog.at_level(logging.ERROR, "vllm.loadtide"):
        loadtide_vllm.attach(scheduler)
    assert "schedule" not in vars(scheduler)
    assert "must be the ScaledObject's namespace/name" in str(caplog.records[0].exc_info)


def test_a_scheduler_without_the_knobs_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTIDE_URL", "http://loadtide:8080")
    monkeypatch.setenv("LOADTIDE_WORKLOAD", "chat/m")
    other = type("Other", (), {"schedule": lambda self: 0})()
    loadtide_vllm.attach(other)
    assert vars(other) == {}
