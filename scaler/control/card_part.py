"""What a workload has of a card that it shares with others (:mod:`scaler.control.card`)."""

from __future__ import annotations

from scaler.value import frozen


@frozen
class CardPart:
    """What a workload has of a card it shares: ``time`` and ``memory`` (0..1 of the card), of which ``own`` is its own;
    and the largest batch that this bears.
    """

    time: float
    memory: float
    own: float
    bound: int
