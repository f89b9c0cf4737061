"""One card shared: who is idle lends, who is wanted has its own back, and the parts never exceed the card."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.card import (
    ASLEEP_SHARE,
    Demand,
    Member,
    bounded,
    demand_of,
    holds_of,
    member_of,
    on_card,
    share_out,
)
from scaler.control.card_part import CardPart
from scaler.control.model import Code, LoadState, Mode, Rung, Target, Targets
from scaler.policy.model import Batch, GpuGroup, Policy, Push
from scaler.signals.model import Unknown
from tests.control.timeline import Timeline, quiet
from tests.control.timeline import signals as made

IDLE, OWN, MORE, DOUBT = Demand


def vllm(name: str, share: float, demand: Demand, batch: int = 32, most: int | None = 128, **more: object) -> Member:
    return Member(name, share, batch, 2, most, True, demand, **more)  # type: ignore[arg-type]


def triton(name: str, share: float, demand: Demand, batch: int = 32, most: int | None = 128, **more: object) -> Member:
    return replace(vllm(name, share, demand, batch, most, **more), preallocates=False)


def told(members: list[Member]) -> list[Member]:
    """The members once their parts are published."""
    parts = share_out(members)
    return [replace(member, held=parts.get(member.name, member.held)) for member in members]


def wants(members: list[Member], **demands: Demand) -> list[Member]:
    return [replace(member, demand=demands.get(member.name, member.demand)) for member in members]


def bounds(members: list[Member]) -> list[int]:
    return [member.held.bound for member in members if member.held is not None]


def settled(*members: Member) -> list[Member]:
    return told(told(told(list(members))))


def test_each_has_its_own_part_where_nobody_wants_more() -> None:
    assert bounds(settled(vllm("a", 0.5, OWN), vllm("b", 0.5, IDLE))) == [32, 32]


def test_an_idle_one_lends_all_but_its_least_batch() -> None:
    a, b = settled(vllm("a", 0.5, MORE), vllm("b", 0.5, IDLE))
    assert a.held is not None
    assert b.held is not None
    assert (a.held.bound, b.held.bound) == (62, 2)
    assert a.held.time + b.held.time == pytest.approx(1.0)


def test_the_owner_has_its_part_back_as_soon_as_the_borrower_is_told() -> None:
    members = wants(settled(vllm("a", 0.5, MORE), vllm("b", 0.5, IDLE)), b=MORE)
    members = told(members)
    assert bounds(members) == [32, 2]  # first down ...
    assert bounds(told(members)) == [32, 32]  # ... then up


def test_what_an_engines_cap_leaves_over_goes_to_the_others() -> None:
    a, b, c = settled(vllm("a", 0.25, MORE, most=40), vllm("b", 0.25, MORE), vllm("c", 0.5, IDLE))
    assert a.held is not None
    assert a.held.bound == 40
    assert bounds([b, c]) == [84, 2]


def test_without_a_declared_cap_nothing_is_borrowed() -> None:
    assert bounds(settled(vllm("a", 0.5, MORE, most=None), vllm("b", 0.5, IDLE))) == [32, 32]


def test_what_is_nobodys_is_lent_to_nobody() -> None:
    parts = settled(vllm("a", 0.3, MORE), vllm("b", 0.3, IDLE))
    assert sum(each.held.time for each in parts if each.held) == pytest.approx(0.6)


def test_shares_that_come_to_more_than_the_card_are_scaled_to_it() -> None:
    parts = settled(vllm("a", 0.8, OWN), vllm("b", 0.8, OWN))
    assert [each.held.time for each in parts if each.held] == [0.5, 0.5]


def test_a_preallocated_kv_cache_is_lent_to_nobody() -> None:
    """The borrower's memory would grow with its batch, and the lender's is still taken."""
    a, b = settled(triton("a", 0.5, MORE), vllm("b", 0.5, IDLE))
    assert a.held is not None
    assert b.held is not None
    assert (a.held.bound, a.held.memory, b.held.memory) == (32, 0.5, 0.5)


def test_an_engine_that_does_not_preallocate_lends_both() -> None:
    a, b = settled(triton("a", 0.5, MORE), triton("b", 0.5, IDLE))
    assert a.held is not None
    assert (a.held.bound, round(a.held.memory, 3)) == (62, 0.969)
    assert bounds([b]) == [2]


def test_an_engine_that_preallocates_borrows_time_and_no_memory() -> None:
    a, b = settled(vllm("a", 0.5, MORE), triton("b", 0.5, IDLE))
    assert a.held is not None
    assert (a.held.bound, a.held.memory) == (62, 0.5)
    assert bounds([b]) == [2]


def test_a_sleeping_engines_memory_is_lent_and_given_back_when_it_is_woken() -> None:
    awake = vllm("b", 0.5, IDLE)
    asleep = replace(awake, holds=ASLEEP_SHARE)
    a, b = settled(triton("a", 0.5, MORE), asleep)
    assert a.held is not None
    assert b.held is not None
    assert (a.held.bound, round(b.held.memory, 3)) == (60, 0.05)
    members = told([a, replace(b, demand=MORE, holds=1.0)])
    assert bounds(members)[0] == 32
    members = told(members)
    assert [(each.held.bound, round(each.held.memory, 9)) for each in members if each.held] == [(32, 0.5), (32, 0.5)]


def test_at_zero_all_of_it_is_free() -> None:
    a, b = settled(triton("a", 0.5, MORE), vllm("b", 0.5, IDLE, holds=0.0))
    assert a.held is not None
    assert b.held is not None
    assert (round(a.held.memory, 3), b.held.memory) == (0.969, 0.0)


def test_doubt_lends_nothing_and_takes_nothing_away() -> None:
    members = settled(vllm("a", 0.5, MORE), vllm("b", 0.5, IDLE))
    assert bounds(told(wants(members, a=DOUBT))) == [62, 2]
    assert bounds(settled(*wants(members, b=DOUBT))) == [32, 32]
    assert bounds(settled(vllm("a", 0.5, MORE), vllm("b", 0.5, DOUBT))) == [32, 32]


def test_five_on_one_card() -> None:
    names = "abcde"
    members = settled(*(vllm(name, 0.2, IDLE, batch=16, most=64) for name in names))
    assert bounds(members) == [16] * 5
    assert bounds(settled(*wants(members, a=MORE))) == [64, 2, 2, 2, 2]
    assert bounds(settled(*wants(members, a=MORE, b=MORE))) == [37, 37, 2, 2, 2]
    assert bounds(settled(*wants(members, **dict.fromkeys(names, MORE)))) == [16] * 5


def test_with_several_owners_nobody_goes_above_its_own() -> None:
    mine, theirs = vllm("a", 0.5, MORE), vllm("b", 0.5, IDLE, ours=False, held=CardPart(0.03, 0.5, 0.5, 2))
    (a, _) = settled(mine, theirs)
    assert bounds([a]) == [32]


def test_a_foreign_member_that_was_not_heard_yet_lets_nobody_rise() -> None:
    mine = vllm("a", 0.5, MORE, held=CardPart(0.03, 0.5, 0.5, 2))
    assert bounds(told([mine, vllm("b", 0.5, MORE, ours=False)])[:1]) == [2]
    heard = vllm("b", 0.5, MORE, ours=False, held=CardPart(0.97, 0.5, 0.5, 62))
    assert bounds(told([mine, heard])[:1]) == [2]  # it has borrowed, and must give back first
    heard = replace(heard, held=CardPart(0.5, 0.5, 0.5, 32))
    assert bounds(told([mine, heard])[:1]) == [32]


def a_member(chance: Random, name: str) -> Member:
    batch = chance.randint(1, 64)
    return Member(
        name,
        chance.uniform(0.02, 0.6),
        batch,
        chance.randint(1, max(1, batch // 4)),
        chance.choice((None, batch, batch * chance.randint(1, 8))),
        chance.random() < 0.5,
        chance.choice(list(Demand)),
        chance.choice((1.0, 1.0, ASLEEP_SHARE, 0.0)),
    )


@given(st.integers(0, 2**32))
def test_whatever_comes_the_parts_never_exceed_the_card_in_whatever_order_they_are_published(seed: int) -> None:
    """Demands, sleep, owners and shares change at random; parts are published one by one, some of them never."""
    chance = Random(seed)
    members = [a_member(chance, name) for name in "abcde"[: chance.randint(1, 5)]]
    published: dict[str, CardPart] = {}
    for _ in range(12):
        owner = chance.random() < 0.7
        members = [
            replace(
                member,
                demand=chance.choice(list(Demand)),
                holds=chance.choice((1.0, 1.0, ASLEEP_SHARE, 0.0)),
                ours=owner or chance.random() < 0.5,
            )
            for member in members
        ]
        seen = [
            replace(each, held=published.get(each.name) if each.ours or chance.random() < 0.5 else None)
            for each in members
        ]
        parts = share_out(seen)
        assert set(parts) == {each.name for each in seen if each.ours}
        order = list(parts)
        chance.shuffle(order)
        for name in order[: chance.randint(0, len(order))]:
            published[name] = parts[name]
            assert sum(part.time for part in published.values()) <= 1.0 + 1e-9
            assert sum(part.memory for part in published.values()) <= 1.0 + 1e-9


@given(st.integers(0, 2**32))
def test_two_scalers_at_once_each_with_an_old_view_of_the_other_never_exceed_it_either(seed: int) -> None:
    """After one had all: two go on from what it published, and hear of each other late, or not at all."""
    chance = Random(seed)
    members = settled(*(a_member(chance, name) for name in "abcde"[: chance.randint(2, 5)]))
    first = {member.name for member in members if chance.random() < 0.5}
    said = {member.name: [member.held] for member in members}
    for _ in range(16):
        mine = first if chance.random() < 0.5 else {member.name for member in members} - first
        seen = [
            replace(
                member,
                demand=chance.choice(list(Demand)),
                holds=chance.choice((1.0, 1.0, ASLEEP_SHARE, 0.0)),
                ours=member.name in mine,
                held=said[member.name][-1] if member.name in mine else chance.choice([None, *said[member.name]]),
            )
            for member in members
        ]
        if mine == {member.name for member in members}:
            continue
        for name, part in share_out(seen).items():
            said[name].append(part)
            now = [history[-1] for history in said.values()]
            assert sum(each.time for each in now if each) <= 1.0 + 1e-9
            assert sum(each.memory for each in now if each) <= 1.0 + 1e-9


@given(st.integers(0, 2**32))
def test_whoever_is_not_idle_has_its_own_part_two_publications_later(seed: int) -> None:
    chance = Random(seed)
    members = [a_member(chance, name) for name in "abcde"[: chance.randint(1, 5)]]
    for _ in range(6):
        members = [replace(member, demand=chance.choice(list(Demand)), holds=1.0) for member in members]
        members = told(told(members))
        total = sum(member.share for member in members)
        own = {member.name: member.share / max(1.0, total) for member in members}
        for member in members:
            assert member.held is not None
            if member.demand is not Demand.IDLE:
                assert member.held.time >= own[member.name] - 1e-6
            in_parts = member.held.bound * own[member.name] / member.batch
            assert in_parts <= max(member.held.time, own[member.name] * member.least / member.batch) + 1e-5


GROUPED = Policy(
    push=Push(enabled=True),
    batch=Batch(max=128, min=2),
    gpu_group=GpuGroup(name="card-0", share_ratio=0.5, batch=32),
)


def busy(running: float = 20, **more: object) -> dict[str, object]:
    return dict(arrivals=2, recent=2, last=2, running=running, waiting=0, ready=1, pending=0, wake_demand=0) | more


@pytest.mark.parametrize(
    ("signals", "demand"),
    [
        (busy(), OWN),
        (busy(26), MORE),
        (busy(waiting=1), MORE),
        (busy(pending=1), MORE),
        (quiet() | {"pending": 0, "wake_demand": 0}, IDLE),
        (busy(0) | {"recent": 0, "last": 0}, IDLE),  # 15 s without a request are enough
        (busy(0) | {"recent": 0, "last": 0, "counters_moved": True}, OWN),
        (busy(0) | {"recent": 0.1, "last": 0}, OWN),
        (busy(running=Unknown("timed out")), DOUBT),
        (quiet() | {"pending": Unknown("silent"), "wake_demand": 0}, OWN),
    ],
)
def test_what_a_decision_says_of_demand(signals: dict[str, object], demand: Demand) -> None:
    timeline = Timeline(GROUPED).at("0s", **busy()).at("5s", **signals)
    assert timeline.decision is not None
    assert demand_of(GROUPED, timeline.decision, made(1005.0, **signals)) is demand


def test_memory_is_free_only_when_it_is_seen_to_be() -> None:
    timeline = Timeline(GROUPED).at("0s", **busy())
    decision = timeline.decision
    assert decision is not None
    asked = replace(decision, targets=replace(decision.targets, rung=Rung.ASLEEP))
    assert holds_of(decision, preallocates=True) == holds_of(asked, preallocates=True) == 1.0
    seen = replace(asked, asleep=1, ready=0)
    assert holds_of(seen, preallocates=True) == ASLEEP_SHARE
    assert holds_of(replace(seen, targets=decision.targets), preallocates=True) == 1.0  # called: it comes back
    zero = replace(decision, targets=Targets(0, False, None), ready=0)
    assert holds_of(zero, preallocates=True) == 0.0
    assert holds_of(replace(zero, ready=1), preallocates=True) == 1.0  # still there


def test_the_batch_told_is_bounded_and_the_laws_go_on_from_theirs() -> None:
    timeline = Timeline(GROUPED).at("0s", **busy())
    decision = timeline.decision
    assert decision is not None
    part = CardPart(0.03, 0.5, 0.5, 2)
    told_decision = on_card(decision, part, GROUPED, ())
    assert (told_decision.targets.batch, told_decision.targets.workers) == (2, 2)
    assert told_decision.next_memory.targets == decision.targets
    assert told_decision.next_memory.card == part
    (reason,) = [each for each in told_decision.reasons if each.code is Code.CARD_LENT]
    assert (reason.target, reason.value, reason.threshold) == (Target.BATCH, 0.03, 0.5)
    timeline.memory = told_decision.next_memory
    assert timeline.at("5s").decision is not None
    assert timeline.memory.card == part  # it goes along, through a restart as well
    assert bounded(decision.targets, None, GROUPED) == decision.targets


def test_a_borrower_is_told_that_and_a_refusal_names_what_is_kept() -> None:
    timeline = Timeline(GROUPED).at("0s", **busy())
    assert timeline.decision is not None
    borrowed = on_card(timeline.decision, CardPart(0.97, 0.5, 0.5, 62), GROUPED, ())
    assert borrowed.targets.batch == 62
    assert Code.CARD_BORROWED in {reason.code for reason in borrowed.reasons}
    kept = on_card(timeline.decision, CardPart(0.03, 0.5, 0.5, 2), GROUPED, [triton("a", 0.5, MORE)])
    assert Code.CARD_MEMORY_KEPT in {held.code for held in kept.suppressed}
    freed = on_card(timeline.decision, CardPart(0.03, 0.05, 0.5, 2), GROUPED, [triton("a", 0.5, MORE)])
    assert Code.CARD_MEMORY_KEPT not in {held.code for held in freed.suppressed}
    again = on_card(kept, CardPart(0.02, 0.5, 0.5, 2), GROUPED, [triton("a", 0.5, MORE)])
    assert len([each for each in again.reasons if each.code is Code.CARD_LENT]) == 1


def test_an_override_is_bounded_too_and_advice_bounds_nothing() -> None:
    timeline = Timeline(GROUPED).at("0s", **busy())
    decision = timeline.decision
    assert decision is not None
    part = CardPart(0.5, 0.5, 0.5, 32)
    overridden = replace(decision, mode=Mode.OVERRIDE, targets=replace(decision.targets, batch=100))
    assert on_card(overridden, part, GROUPED, ()).targets.batch == 32
    advised = replace(decision, mode=Mode.ADVISORY, targets=replace(decision.targets, batch=None))
    assert on_card(advised, part, GROUPED, ()).targets.batch is None
    idle = replace(advised, state=LoadState.IDLE)
    seen = member_of("a", GROUPED, idle, made(1000.0, **busy()), preallocates=True, held=None, ours=True)
    assert seen.demand is OWN  # nobody would see to it that it gives anything up
