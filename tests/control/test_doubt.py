"""Absent is never zero; doubt holds, and then says that it does not know."""

from scaler.control.model import Code, LoadState
from scaler.policy.model import Batch, Capacity, Policy, Push, ReplicaRange
from scaler.signals.model import Known, Stale, Unknown
from tests.control.timeline import Timeline, gone

POLICY = Policy(
    capacity=Capacity(requests_per_second=7, sequences=16),
    batch=Batch(max=32),
    push=Push(enabled=True),
    replicas=ReplicaRange(max=20),
)


def busy(**more: object) -> dict[str, object]:
    """41 requests a second: six replicas."""
    return (
        dict(arrivals=41, recent=41, last=41, running=60, waiting=0, ready=6, pending=0, wake_demand=0, kv=0.3) | more
    )


def test_metrics_lost_for_ten_minutes_at_six_replicas_hold_and_then_are_unavailable() -> None:
    timeline = Timeline(POLICY).at("0s", **busy()).expect(replicas=6, available=True)
    timeline.at("5s", **busy() | gone()).expect(replicas=6, active=True, available=True).because(Code.SIGNAL_LOST)
    timeline.at("2m").expect(replicas=6, active=True, available=True)
    timeline.at("2m5s").expect(available=False, state=LoadState.UNKNOWN).because(Code.SIGNAL_LOST_TOO_LONG)
    timeline.at("10m").expect(available=False, replicas=6, active=True)
    assert all(decision.targets.replicas == 6 and decision.targets.active for decision in timeline.history)
    timeline.at("10m5s", **busy()).expect(available=True, replicas=6, state=LoadState.NORMAL)


def test_stale_values_hold_and_never_lower() -> None:
    timeline = Timeline(POLICY).at("0s", **busy()).at("1m")
    stale = {name: Stale(0.0, timeline.mono) for name in ("arrivals", "running", "waiting")}
    timeline.at("1m5s", **busy() | stale).at("2m55s").expect(replicas=6, active=True, state=LoadState.NORMAL)


def test_what_part_of_the_pods_still_shows_may_raise() -> None:
    timeline = Timeline(POLICY).at("0s", **busy())
    partial = {
        "running": Stale(60.0, timeline.mono, at_least=200.0),
        "arrivals": Stale(41.0, timeline.mono, at_least=100),
    }
    timeline.at("5s", **busy() | partial).expect(available=True)
    assert timeline.decision.targets.replicas == 15  # type: ignore[union-attr]  # ceil(100/7)


def test_a_lost_signal_never_grows_the_batch() -> None:
    policy = POLICY.model_copy(update={"batch": Batch(start=8, max=32)})
    timeline = Timeline(policy).at("0s", **busy(running=48))
    timeline.at("5s", **busy(running=48, kv=Unknown("gone"))).at("10m").expect(batch=8).held_back(Code.KV_ROOM)


def test_arrivals_alone_lost_blocks_the_way_down_but_not_the_answer() -> None:
    timeline = Timeline(POLICY).at("0s", **busy()).at("1m")
    partly = busy(arrivals=Unknown("no interval"), recent=Unknown(""), last=Unknown(""), running=2)
    timeline.at("1m5s", **partly).at("30m").expect(replicas=6, available=True).held_back(Code.SIGNAL_LOST)
    assert timeline.decision is not None
    held = next(each for each in timeline.decision.suppressed if each.code is Code.SIGNAL_LOST)
    assert held.signal == "arrivals_per_second", "who wonders why nothing goes down is told by what"


def test_the_first_reading_has_no_rates_and_is_answered_all_the_same() -> None:
    first = busy(arrivals=Unknown("first read"), recent=Unknown(""), last=Unknown(""))
    Timeline(POLICY).at("0s", **first).expect(available=True, replicas=6)


def test_taking_over_a_running_workload_gives_up_nothing_for_a_whole_window() -> None:
    timeline = Timeline(POLICY).at("0s", **busy(arrivals=7, recent=7, last=7, running=4)).expect(replicas=6)
    timeline.at("5m").expect(replicas=6).at("5m5s").expect(replicas=3).at("7m").expect(replicas=3)
    timeline.at("7m5s").expect(replicas=2)


def test_g3_02_a_stalled_engine_is_held_and_its_frozen_queue_buys_nothing() -> None:
    timeline = Timeline(POLICY).at("0s", **busy(ready=1, running=16, arrivals=6, recent=6, last=6)).at("6m")
    before = timeline.decision.targets.replicas  # type: ignore[union-attr]
    frozen = busy(ready=0, stalled=1, arrivals=0, recent=0, last=0, running=0, waiting=0)
    timeline.at("6m5s", **frozen).expect(state=LoadState.STALLED, replicas=before, available=True)
    timeline.because(Code.STALLED).at("3h").expect(replicas=before, active=True)


def test_a_stalled_replica_beside_a_good_one_gives_no_capacity() -> None:
    timeline = Timeline(POLICY).at("0s", **busy(ready=1, stalled=1, arrivals=14, recent=14, last=14, running=16))
    timeline.expect(replicas=2).expect(ready=1)


def test_state_is_held_on_stale_and_unknown_only_without_any_reading() -> None:
    timeline = Timeline(POLICY).at("0s", **busy(running=96)).expect(state=LoadState.HIGH)
    timeline.at("5s", **busy(running=Stale(96.0, timeline.mono))).expect(state=LoadState.HIGH)
    timeline.at("10s", **busy(running=Unknown("gone"))).expect(state=LoadState.UNKNOWN)


def test_a_known_rise_answers_even_after_the_hold_is_over() -> None:
    timeline = Timeline(POLICY).at("0s", **busy()).at("5s", **busy() | gone()).at("5m").expect(available=False)
    risen = busy() | gone() | {"recent": Known(100.0, timeline.mono + 305)}
    timeline.at("5m5s", **risen).expect(available=True, replicas=15)


def test_a_workload_never_read_claims_nothing_and_says_why() -> None:
    timeline = Timeline(POLICY).at("0s", **gone(), pending=0, wake_demand=0).at("10m").expect(available=False)
    timeline.because(Code.NEVER_READ)
    assert timeline.memory.targets is None
