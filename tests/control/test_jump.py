"""The jump table: batch and replicas in one tick, whatever the cooldown says."""

from scaler.control.model import Code
from scaler.policy.jump import Jump, JumpRow
from scaler.policy.model import Batch, Policy, ReplicaRange
from tests.control.timeline import Timeline, quiet

ROWS = (
    JumpRow(rate_at_least=50, batch=16, replicas=4),
    JumpRow(rate_at_least=100, batch=32, replicas=8),
    JumpRow(rate_at_least=400, batch=64, replicas=20),
)


def stepping(**batch: object) -> Policy:
    return Policy(
        strategy="stepwise",
        batch=Batch(**({"start": 2} | batch)),
        jump=Jump(rows=ROWS),
        replicas=ReplicaRange(max=12),
    )


def jump_to(rate: float, **more: float) -> dict[str, float]:
    """Signals of the first tick that sees a jump from nothing: the window is still diluted, the last read is not."""
    return {
        "arrivals": rate * 5 / 60,
        "recent": rate / 3,
        "last": rate,
        "running": 20,
        "waiting": 300,
        "ready": 1,
    } | more


def test_a_jump_gives_the_rows_batch_and_replicas_in_the_first_tick_that_sees_it() -> None:
    timeline = Timeline(stepping()).at("0s", **quiet()).at("5m", **quiet())
    timeline.at("5m5s", **jump_to(200)).expect(batch=32, replicas=8).because(Code.JUMP)


def test_a_cooldown_that_has_just_begun_does_not_delay_the_jump() -> None:
    busy = dict(arrivals=60, recent=60, last=60, running=8, waiting=0, ready=1)
    timeline = Timeline(stepping(start=8)).at("0s", **busy).at("1m", **busy).expect(batch=16)
    timeline.at("1m5s", **jump_to(200, arrivals=70, recent=120)).expect(batch=32, replicas=8)


def test_the_adaptive_strategy_reads_the_same_table() -> None:
    policy = Policy(batch=Batch(start=8, max=256), jump=Jump(rows=ROWS), replicas=ReplicaRange(max=12))
    timeline = Timeline(policy).at("0s", **quiet()).at("1m", **quiet()).expect(batch=8)
    timeline.at("1m5s", **jump_to(200)).expect(batch=32, replicas=8).because(Code.JUMP)


def test_the_highest_row_reached_counts_and_the_ceiling_still_stands() -> None:
    timeline = Timeline(stepping()).at("0s", **quiet()).at("1m", **quiet())
    timeline.at("1m5s", **jump_to(500)).expect(batch=64, replicas=12).held_back(Code.CEILING)


def test_the_peak_is_held_two_minutes_and_then_let_go_by_the_ordinary_way_down() -> None:
    timeline = Timeline(stepping()).at("0s", **quiet()).at("6m", **quiet())
    timeline.at("6m5s", **jump_to(200)).expect(replicas=8)
    timeline.at("6m10s", **quiet(8)).at("8m", **quiet(8)).expect(replicas=8)
    timeline.at("11m4s", **quiet(8)).expect(replicas=8).held_back(Code.DOWN_WINDOW)
    timeline.at("13m10s", **quiet(8)).expect(replicas=4)  # at most half per step


def test_doubling_at_a_low_rate_is_noise_and_no_jump() -> None:
    timeline = Timeline(stepping()).at("0s", arrivals=0.1, recent=0.1, last=0.1, running=0, waiting=0, ready=1)
    # two requests within five seconds: four times the rate expected, and two requests more than expected
    timeline.at("5s", arrivals=0.13, recent=0.2, last=0.4, running=2, waiting=0, ready=1).expect(replicas=1, batch=2)


def test_bursty_traffic_needs_a_steeper_rise_to_be_a_jump() -> None:
    steady = dict(arrivals=4, recent=4, last=4, running=4, waiting=0, ready=1)
    rise = dict(arrivals=7, recent=14, last=20, running=30, waiting=4, ready=1)
    rows = Jump(rows=(JumpRow(rate_at_least=10, batch=16, replicas=6),))
    policy = Policy(batch=Batch(max=64), jump=rows)
    Timeline(policy).at("0s", **steady).at("5s", **rise).expect(replicas=6)
    calm = Timeline(policy).at("0s", **steady, arrivals_dispersion=25.0)
    calm.at("5s", **rise, arrivals_dispersion=25.0)
    assert Code.JUMP not in {reason.code for reason in calm.decision.reasons}  # type: ignore[union-attr]


def test_without_a_table_the_jump_asks_for_what_its_own_rate_needs() -> None:
    from scaler.policy.model import Capacity

    policy = Policy(capacity=Capacity(requests_per_second=10), replicas=ReplicaRange(max=50))
    timeline = Timeline(policy).at("0s", **quiet()).at("1m", **quiet())
    # 200/s read over 5 s are certainly 194, twenty replicas, and the one that is there is taken up by its queue.
    timeline.at("1m5s", **jump_to(200)).expect(replicas=21).because(Code.JUMP)
    timeline.at("1m15s", **jump_to(200, recent=200, arrivals=50)).expect(replicas=21)


def test_stepwise_without_a_jump_reaches_32_from_2_four_cooldowns_later() -> None:
    policy = Policy(strategy="stepwise", batch=Batch(start=2))
    busy = dict(arrivals=60, recent=60, last=60, running=8, waiting=0, ready=1)
    timeline = Timeline(policy).at("0s", **(busy | {"arrivals": 20, "recent": 20, "last": 20})).expect(batch=2)
    timeline.memory = _cooldown_begins(timeline.memory)
    timeline.at("55s", **busy).expect(batch=2).held_back(Code.COOLDOWN)
    timeline.at("1m").expect(batch=4)
    timeline.at("1m55s").expect(batch=4)
    timeline.at("2m").expect(batch=8).at("3m").expect(batch=16)
    timeline.at("3m55s").expect(batch=16).at("4m").expect(batch=32)


def _cooldown_begins(memory):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(memory, since_batch_change_seconds=0.0)
