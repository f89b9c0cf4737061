"""What is remembered of one target's going to and fro (:mod:`scaler.control.oscillation`)."""

from __future__ import annotations

from scaler.value import frozen


@frozen
class Swing:
    """How one target goes to and fro: the ``direction`` of its last change (1 up, -1 down, 0 none yet), the ages in
    seconds of its recent turns, how many times as wide as declared its dead band is, and for how long all was calm.
    """

    direction: int = 0
    turns: tuple[float, ...] = ()
    widening: float = 1.0
    calm_seconds: float = 0.0
