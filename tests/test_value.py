"""Values: nobody assigns to one, and the type checker is who sees to it."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from pathlib import Path

from mypy import api

from scaler.value import frozen


@frozen
class Point:
    x: int
    y: float = 0.0


def test_values_compare_and_hash_by_their_fields_and_another_is_made_of_one() -> None:
    assert Point(1) == Point(1, 0.0) != Point(2)
    assert len({Point(1), Point(1), Point(2)}) == 2
    assert replace(Point(1), y=2.0) == Point(1, 2.0)
    assert [each.name for each in fields(Point)] == ["x", "y"]
    assert not hasattr(Point(1), "__dict__")


def test_they_are_pickled_without_the_names_of_their_fields() -> None:
    pickled = pickle.dumps(Point(1, 2.0))
    assert b"y" not in pickled.replace(Point.__module__.encode(), b"")
    assert pickle.loads(pickled) == Point(1, 2.0)


def test_the_type_checker_refuses_an_assignment(tmp_path: Path) -> None:
    """Nothing else does. It reads all of scaler/ whenever the tests are run (``make test``)."""
    code = "from scaler.control.model import Memory\ndef forget(memory: Memory) -> None:\n    memory.targets = None\n"
    said, _, status = api.run(["--config-file=", f"--cache-dir={tmp_path}", "--follow-imports=silent", "-c", code])
    assert (status, said.splitlines()[0]) == (
        1,
        '<string>:3: error: Property "targets" defined in "Memory" is read-only  [misc]',
    )
