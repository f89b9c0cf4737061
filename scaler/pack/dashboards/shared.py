"""Cards that several workloads share (``gpu_group``): who has what of each, what is lent, and what nobody has."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row
from scaler.pack.dashboards.queries import each, signal
from scaler.pack.promql import by

_PART = "namespace, workload, card"
_LEGEND = "{{card}} {{namespace}}/{{workload}}"
_NONE = "No workload shares a card (gpu_group)"


def shared_row() -> Row:
    """One row of GPU."""
    return Row(
        "Shared cards",
        (
            Panel(
                "Time of each shared card, by workload",
                "timeseries",
                "percentunit",
                "The part of the card's time that each workload has now, and, dashed, what is its own. The parts of "
                "one card never exceed it.",
                (Query(_part("time"), _LEGEND), Query(_part("own"), f"{_LEGEND} own", dashed=True)),
                nothing=_NONE,
                maximum=1.0,
                stairs=True,
            ),
            Panel(
                "Memory of each shared card, by workload",
                "timeseries",
                "percentunit",
                "The part of the card's memory that each workload has now: an engine that preallocates lends none of "
                "it while it is awake. Beside it the share of the GPU's memory that is measured free, where it is.",
                (
                    Query(_part("memory"), _LEGEND),
                    Query(
                        f"{signal('gpu_memory_free_ratio')}\nand on (namespace, workload)\n{each('card_batch_size')}",
                        "{{namespace}}/{{workload}} measured free",
                        dashed=True,
                        optional=True,
                    ),
                ),
                nothing=_NONE,
                maximum=1.0,
                stairs=True,
            ),
            Panel(
                "Lent and borrowed time",
                "timeseries",
                "percentunit",
                "Above 0: borrowed from idle ones on the card. Below: lent, and given back in the tick that shows "
                "demand.",
                (Query(f"{_part('time')}\n- on ({_PART})\n{_part('own')}", _LEGEND),),
                nothing=_NONE,
                width=8,
                minimum=None,
                stairs=True,
            ),
            Panel(
                "What nobody has of each shared card",
                "timeseries",
                "percentunit",
                "What is left of the card by all workloads on it, chosen or not. What is nobody's own is lent to "
                "nobody.",
                (Query(_left("time"), "{{card}} time"), Query(_left("memory"), "{{card}} memory")),
                nothing=_NONE,
                width=8,
                maximum=1.0,
                stairs=True,
            ),
            Panel(
                "Batch that the part bears",
                "timeseries",
                "short",
                "The largest batch that a workload's part of its card bears, and the target that is published: where "
                "they are one, the card is what bounds it.",
                (
                    Query(each("card_batch_size", labels=_PART), f"{_LEGEND} at most"),
                    Query(
                        f"{each('target_batch_size')}\nand on (namespace, workload)\n{each('card_batch_size')}",
                        "{{namespace}}/{{workload}} target",
                        dashed=True,
                        optional=True,
                    ),
                ),
                nothing=_NONE,
                width=8,
                decimals=0,
                stairs=True,
            ),
        ),
    )


def _part(kind: str) -> str:
    return each("card_ratio", f'kind="{kind}"', labels=_PART)


def _left(kind: str) -> str:
    """Of the cards that a chosen workload is on."""
    parts = by("max", _PART, f'loadtide_card_ratio{{kind="{kind}"}}')
    return f"(1 - {by('sum', 'card', parts)})\nand on (card)\n{_part(kind)}"
