"""The memory: a tick decides or keeps every field of it, and none falls back to what it was before the first tick."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from datetime import timedelta

from scaler.control import decide
from scaler.control.card_part import CardPart
from scaler.control.model import Memory, Mode, Now, Override, Targets
from scaler.policy.model import Policy
from tests.control.timeline import MIDNIGHT, signals

BUSY = dict(arrivals=20, running=60, waiting=0, ready=2, kv=0.5, asked_replicas=2)


def test_a_tick_names_every_field() -> None:
    made = [
        call
        for call in ast.walk(ast.parse(inspect.getsource(decide._remember)))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Memory"
    ]
    assert [{keyword.arg for keyword in call.keywords} for call in made] == [{field.name for field in fields(Memory)}]


def test_who_rules_and_the_part_of_a_card_outlast_the_laws() -> None:
    held = Override(3, 8, MIDNIGHT + timedelta(hours=9), by="ana")
    memory = Memory(
        tick_mono=0.0,
        targets=Targets(3, True, 8),
        mode=Mode.OVERRIDE,
        override=held,
        override_seconds=7.0,
        set_aside=Targets(1, True, 4),
        advised_replicas=5,
        card=CardPart(0.5, 0.4, 0.3, 16),
    )
    after = decide.judge(Policy(), memory, signals(5.0, **BUSY), Now(MIDNIGHT, 5.0)).next_memory
    assert (after.mode, after.override, after.override_seconds) == (Mode.OVERRIDE, held, 7.0)
    assert (after.set_aside, after.advised_replicas, after.card) == (memory.set_aside, 5, memory.card)
