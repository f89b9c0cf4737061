"""What rules the engine now: the scaler's target, the guard's limit, or the engine's own setting. Pure."""

from __future__ import annotations

import hashlib
from typing import Literal

from scaler.agent.local_guard import LocalGuard, lower
from scaler.consume.contract import Admission, Rung, ServedTarget
from scaler.value import frozen

Ruler = Literal["target", "guard", "own"]
"""Whose batch it is: the scaler's, the guard's where that is the lower one, or the engine's own."""


@frozen
class Ruling:
    """What the engine should run: as in :class:`~scaler.consume.contract.ServedTarget`, and who says so.

    ``may_reload``: memory is not short, so an engine that loads its model anew for a change may do that.
    """

    batch_size: int | None = None
    token_budget: int | None = None
    admission: Admission = "open"
    generation: int | None = None
    ruler: Ruler = "own"
    may_reload: bool = True
    rung: Rung = "awake"
    sleep_level: int | None = None

    @property
    def tag(self) -> str:
        """An entity tag: another where an engine has to do something else."""
        what = f"{self.batch_size} {self.token_budget} {self.admission} {self.generation} {self.rung}"
        return f'"{hashlib.blake2s(what.encode(), digest_size=8).hexdigest()}"'


def rule(target: ServedTarget | None, guard: LocalGuard) -> Ruling:
    """The lower of the two batches, the stricter of the two admissions; without either the engine's own setting.

    ``target`` None: the scaler was never heard, or what it said has expired. Then the engine is awake, too: nobody is
    left who would wake it.
    """
    wanted = target.batch_size if target else None
    batch = lower(wanted, guard.limit)
    admission: Admission = target.admission if target else "open"
    if guard.pressed and admission == "open":
        admission = "hold"
    ruler: Ruler = "own" if batch is None else "target" if batch == wanted else "guard"
    return Ruling(
        batch_size=batch,
        token_budget=target.token_budget if target else None,
        admission=admission,
        generation=target.generation if target else None,
        ruler=ruler,
        may_reload=not guard.pressed,
        rung=target.rung if target else "awake",
        sleep_level=target.sleep_level if target else None,
    )
