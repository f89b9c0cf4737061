"""The guard beside the engine as timelines of one-second looks, and what must hold whatever it sees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.agent.local_guard import LocalGuard, lower, watch
from scaler.control.model import Code, Now
from scaler.policy.model import Policy
from scaler.signals.model import Known, NotApplicable, Signals, Stale, Unknown
from tests.control.timeline import seconds, signals

POLICY = Policy()
NO_VRAM = NotApplicable("the engine pre-allocates VRAM")
NO_KV = NotApplicable("its models keep no KV cache")


class Watch:
    """One engine over time, looked at every second; ``in_force`` rules without the guard."""

    def __init__(self, in_force: int | None = 64, policy: Policy = POLICY) -> None:
        self.in_force = in_force
        self.policy = policy
        self.held = LocalGuard()
        self.elapsed = -1.0
        self.values: dict[str, Any] = {}
        self.moves: list[tuple[float, int | None]] = []

    def at(self, mark: str, **values: Any) -> Watch:
        """Look every second with what was seen last until ``mark``, then with ``values``, which go on from there."""
        end = seconds(mark)
        while self.elapsed + 1 < end:
            self._look(self.elapsed + 1)
        self.values = values or self.values
        self._look(end)
        return self

    def _look(self, at: float) -> None:
        self.elapsed = at
        mono = 1000.0 + at
        now = Now(datetime(2026, 6, 3, tzinfo=UTC) + timedelta(seconds=at), mono)
        before = self.held.limit
        self.held = watch(self.held, self.policy, seen(mono, **self.values), now, in_force=self.in_force)
        if self.held.limit != before:
            self.moves.append((at, self.held.limit))

    @property
    def ruling(self) -> int | None:
        return lower(self.in_force, self.held.limit)


def seen(mono: float, running: float = 60, **values: Any) -> Signals:
    """What an engine that preallocates says: 60 run, nothing waits, one replica."""
    plain = {"running": running, "busiest_running": running, "waiting": 0, "ready": 1, "arrivals": 5, "preempted": 0}
    return signals(mono, **{"gpu_memory_free_ratio": NO_VRAM, **plain, **values})


def test_nothing_is_limited_while_memory_has_room() -> None:
    watched = Watch().at("0s", kv=0.5).at("10m")
    assert watched.moves == []
    assert watched.held.limit is None


def test_pressure_shrinks_at_once_and_then_looks_whether_it_helped() -> None:
    """60 run of 64: what of them would stay below the growth mark (0.85/0.96), and as much of that again only after
    ``settle_seconds`` (15 s) and once no more run than it lets.
    """
    watched = Watch().at("0s", kv=0.5).at("5s", kv=0.96).at("10s", kv=0.96, running=53).at("25s", running=54, kv=0.96)
    assert watched.moves == [(5.0, 53), (20.0, 46)]
    watched.at("45s", kv=0.96, running=46).at("46s")
    assert watched.moves == [(5.0, 53), (20.0, 46), (45.0, 40)]
    assert watched.held.pressed
    assert watched.held.reasons == ()


def test_the_reason_is_the_signal() -> None:
    watched = Watch().at("0s", kv=0.97)
    (reason,) = watched.held.reasons
    assert (reason.code, reason.signal, reason.value, reason.threshold) == (
        Code.MEMORY_PRESSURE,
        "kv_use_ratio",
        0.97,
        0.95,
    )


def test_preemptions_are_pressure() -> None:
    watched = Watch().at("0s", kv=0.5).at("3s", kv=0.5, preempted=2)
    assert watched.moves == [(3.0, 54)]  # nine tenths, as there is room


def test_preemptions_that_are_over_hold_nobody_back() -> None:
    """They are remembered for 15 s, and with nobody admitted for so long a real engine ran empty. The limit stays."""
    watched = Watch().at("0s", kv=0.97, preempted=3)
    assert watched.held.pressed
    watched.at("1s", kv=0.2, preempted=3, running=2).at("14s")
    assert not watched.held.pressed
    assert watched.moves == [(0.0, 52)]


def test_the_way_back_is_measured_and_ends() -> None:
    """One step, here of a tenth, per cooldown (60 s) once KV use is below the growth line, to where it began, and then
    no limit.
    """
    tenth = Policy.model_validate({"batch": {"up_factor": 1.1}})
    watched = Watch(policy=tenth).at("0s", kv=0.96).at("1s", kv=0.4, running=20).at("10m")
    assert watched.moves == [(0.0, 53), (60.0, 59), (120.0, None)]
    assert watched.ruling == 64


def test_between_the_two_lines_it_holds() -> None:
    """KV use under the emergency line (0.95) and over the growth line (0.85) moves the limit nowhere."""
    watched = Watch().at("0s", kv=0.96).at("1s", kv=0.9, running=20).at("1h")
    assert watched.moves == [(0.0, 53)]


@pytest.mark.parametrize("kv", [Unknown("cannot connect"), Stale(0.2, 1000.0)])
def test_what_is_not_known_gives_nothing_back(kv: object) -> None:
    """An engine that stopped answering under pressure must not be given its batch back for its silence."""
    watched = Watch().at("0s", kv=0.96).at("1s", kv=kv).at("1h")
    assert watched.moves == [(0.0, 53)]


def test_an_engine_that_says_nothing_at_all_is_left_alone() -> None:
    watched = Watch()
    watched.held = watch(watched.held, POLICY, Signals(), Now(datetime(2026, 6, 3, tzinfo=UTC), 0.0), in_force=64)
    assert watched.held.limit is None
    assert not watched.held.pressed


class TestAnEngineThatDoesNotPreallocate:
    def test_a_full_card_halves(self) -> None:
        watched = Watch(16).at("0s", kv=NO_KV, gpu_memory_free_ratio=0.3, running=16)
        watched.at("2s", kv=NO_KV, gpu_memory_free_ratio=0.08, running=16)
        assert watched.moves == [(2.0, 8)]

    def test_it_is_given_back_only_with_room_to_grow_into(self) -> None:
        """12 % free is no emergency (10 %) and no room (15 %)."""
        watched = Watch(16).at("0s", kv=NO_KV, gpu_memory_free_ratio=0.05, running=16)
        watched.at("1s", kv=NO_KV, gpu_memory_free_ratio=0.12, running=4).at("30m")
        assert watched.moves == [(0.0, 8)]
        watched.at("30m1s", kv=NO_KV, gpu_memory_free_ratio=0.2, running=4)
        assert watched.moves == [(0.0, 8), (1801.0, None)]

    def test_a_gpu_that_cannot_be_read_gives_nothing_back(self) -> None:
        watched = Watch(16).at("0s", kv=NO_KV, gpu_memory_free_ratio=0.05, running=16)
        watched.at("1s", kv=NO_KV, gpu_memory_free_ratio=Unknown("NVML"), running=4).at("1h")
        assert watched.moves == [(0.0, 8)]


class TestBesideTheTarget:
    def test_a_lower_target_rules(self) -> None:
        watched = Watch().at("0s", kv=0.96)
        watched.in_force = 10
        assert watched.ruling == 10

    def test_pressure_shrinks_what_rules(self) -> None:
        """The scaler lowered it as well, so the next cut starts from there."""
        watched = Watch().at("0s", kv=0.96)
        watched.in_force = 10
        watched.at("15s", kv=0.97, running=10)
        assert watched.moves == [(0.0, 53), (15.0, 8)]

    def test_a_target_that_comes_back_up_does_not_take_the_limit_with_it(self) -> None:
        watched = Watch().at("0s", kv=0.96)
        watched.in_force = 10
        watched.at("1s", kv=0.9, running=10)
        watched.in_force = 64
        watched.at("21s")
        assert watched.ruling == 53

    def test_where_nobody_knows_what_rules_it_is_a_part_of_what_runs(self) -> None:
        """No target and an engine that does not tell its own batch: back to what ran, then to the engine's own."""
        watched = Watch(None).at("0s", kv=0.96).at("1s", kv=0.3, running=20).at("10m")
        assert watched.moves == [(0.0, 53), (60.0, 60), (120.0, None)]


def test_the_floor_of_the_range_is_kept() -> None:
    watched = Watch(8, Policy.model_validate({"batch": {"min": 7}})).at("0s", kv=0.99, running=8).at("10m")
    assert watched.moves == [(0.0, 7)]  # 8 x 0.85/0.99 is 6


_RATIOS = st.floats(0, 1).map(lambda value: round(value, 2))
_SIGNAL = st.one_of(_RATIOS, st.just(Unknown("no")), st.just(NO_KV), st.builds(Stale, _RATIOS, st.just(0.0)))
_LOOKS = st.lists(
    st.tuples(_SIGNAL, _SIGNAL, st.integers(0, 3), st.integers(0, 100), st.none() | st.integers(1, 100)),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(_LOOKS, st.integers(1, 40))
def test_it_never_raises_what_rules_and_never_moves_on_doubt(looks: list[Any], every: int) -> None:
    """Whatever is seen: a limit is set only below what ruled, goes up only while memory is known to have room, and is
    at least the floor."""
    held, at = LocalGuard(), 0.0
    for kv, free, preempted, running, in_force in looks:
        at += every
        watched = signals(
            at, kv=kv, gpu_memory_free_ratio=free, preempted=preempted, running=running, busiest_running=running,
            waiting=0, ready=1,
        )  # fmt: skip
        ruled = lower(in_force, held.limit)
        after = watch(held, POLICY, watched, Now(datetime(2026, 6, 3, tzinfo=UTC), at), in_force=in_force)
        if after.limit is not None:
            assert after.limit >= POLICY.batch.min
        if after.limit != held.limit:
            went_up = held.limit is not None and (after.limit is None or after.limit > held.limit)
            if went_up:
                assert not after.pressed
                assert preempted == 0
                ratios = (watched.kv_use_ratio, watched.gpu_memory_free_ratio)
                assert any(isinstance(ratio, Known) for ratio in ratios)
                assert not any(isinstance(ratio, Unknown | Stale) for ratio in ratios)
            else:
                assert after.reasons
                assert after.limit is not None
                assert ruled is None or after.limit < ruled
        held = after
