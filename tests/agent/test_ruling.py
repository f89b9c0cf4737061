"""Whose batch rules: the lower of the scaler's and the guard's, and without either the engine's own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.agent.local_guard import LocalGuard
from scaler.agent.ruling import Ruling, rule
from scaler.consume.contract import ADMISSIONS, Admission, ServedTarget


def target(batch: int | None = 32, *, admission: Admission = "open", generation: int = 7, **more: Any) -> ServedTarget:
    return ServedTarget("chat/m", batch, 2048, admission, generation, datetime(2026, 6, 3, tzinfo=UTC), 30.0, **more)


def test_the_target_rules() -> None:
    ruling = rule(target(), LocalGuard())
    assert ruling == Ruling(32, 2048, "open", 7, "target")


def test_without_a_target_the_engines_own_setting_does() -> None:
    assert rule(None, LocalGuard()) == Ruling(ruler="own")


def test_a_target_may_say_so_too() -> None:
    assert rule(target(None), LocalGuard()).ruler == "own"


def test_the_guards_limit_rules_where_it_is_the_lower_one() -> None:
    ruling = rule(target(), LocalGuard(limit=8, pressed=True))
    assert (ruling.batch_size, ruling.ruler, ruling.admission, ruling.may_reload) == (8, "guard", "hold", False)


def test_the_guard_needs_no_scaler() -> None:
    ruling = rule(None, LocalGuard(limit=8))
    assert (ruling.batch_size, ruling.ruler, ruling.generation) == (8, "guard", None)


@pytest.mark.parametrize(("admission", "expected"), [("open", "hold"), ("hold", "hold"), ("shed", "shed")])
def test_the_stricter_admission_rules(admission: Admission, expected: Admission) -> None:
    assert rule(target(admission=admission), LocalGuard(pressed=True)).admission == expected


_BATCHES = st.none() | st.integers(1, 1000)
_GUARDS = st.builds(LocalGuard, limit=_BATCHES, pressed=st.booleans())
_TARGETS = st.none() | st.builds(target, _BATCHES, admission=st.sampled_from(ADMISSIONS), generation=st.integers(0, 9))


@settings(deadline=None)
@given(_TARGETS, _GUARDS)
def test_it_never_exceeds_either(told: ServedTarget | None, guard: LocalGuard) -> None:
    ruling = rule(told, guard)
    bounds = [bound for bound in (told.batch_size if told else None, guard.limit) if bound is not None]
    assert ruling.batch_size == (min(bounds) if bounds else None)
    assert (ruling.ruler == "own") == (not bounds)
    assert not (guard.pressed and ruling.admission == "open")


@settings(deadline=None)
@given(_TARGETS, _GUARDS, _TARGETS, _GUARDS)
def test_two_tags_are_equal_exactly_where_the_engine_has_nothing_to_do(
    one: ServedTarget | None, guard: LocalGuard, other: ServedTarget | None, other_guard: LocalGuard
) -> None:
    first, second = rule(one, guard), rule(other, other_guard)

    def asked(ruling: Ruling) -> tuple[object, ...]:
        return (ruling.batch_size, ruling.token_budget, ruling.admission, ruling.generation)

    assert (first.tag == second.tag) == (asked(first) == asked(second))
