"""The cards one by one, whoever holds them, and their MIG instances; and how DCGM's fields are selected at all."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row, Word
from scaler.pack.promql import by, replaced

ABSENT = "The DCGM exporter is not scraped"
#: MiB. Exporters before 2024 wrote fields that a card lacks as huge numbers.
_LARGEST_MEMORY = 100_000_000

#: The node's label, and how exporters spelt it before May 2026 (NVIDIA/dcgm-exporter#655).
NODE, NODE_BEFORE = "hostname", "Hostname"
_CARD = f"{NODE}, gpu, UUID, modelName"
_CARD_LEGEND = "{{hostname}} GPU {{gpu}} ({{modelName}})"
_SLICE = f"{_CARD}, GPU_I_ID, GPU_I_PROFILE"
_SLICE_LEGEND = "{{hostname}} GPU {{gpu}} instance {{GPU_I_ID}} ({{GPU_I_PROFILE}})"


def card_rows() -> tuple[Row, ...]:
    """Two rows of GPU."""
    return Row("The cards themselves", _cards()), Row("MIG instances", _instances(), folded=True)


def field(name: str, matchers: str = "") -> str:
    """A field's series on the chosen nodes, by whichever label says the node: the other one is absent, so empty."""
    return f'{name}{{{NODE}=~"$node|",{NODE_BEFORE}=~"$node|"{"," if matchers else ""}{matchers}}}'


def memory(name: str, matchers: str = "") -> str:
    """A field that counts MiB, without what cannot be a measurement."""
    return f"{field(name, matchers)} < {_LARGEST_MEMORY}"


def _by_card(vector: str) -> str:
    return by("max", _CARD, _on_node(vector))


def _on_node(vector: str) -> str:
    return replaced(vector, NODE, "$1", NODE_BEFORE, "(.+)")


def _cards() -> tuple[Panel, ...]:
    whole = 'GPU_I_ID=""'
    return (
        Panel(
            "Utilisation of each card",
            "timeseries",
            "percent",
            "Every card of the chosen nodes, held by a workload or not. One line for each card, whoever holds it.",
            (Query(_by_card(field("DCGM_FI_DEV_GPU_UTIL", whole)), _CARD_LEGEND),),
            nothing=ABSENT,
            maximum=100.0,
            needs="dcgm",
        ),
        Panel(
            "Framebuffer of each card",
            "timeseries",
            "mbytes",
            "Used and reserved, of every card of the chosen nodes that is not split into MIG instances.",
            (
                Query(_by_card(memory("DCGM_FI_DEV_FB_USED", whole)), f"{_CARD_LEGEND} used"),
                Query(_by_card(memory("DCGM_FI_DEV_FB_RESERVED", whole)), f"{_CARD_LEGEND} reserved"),
            ),
            nothing=ABSENT,
            needs="dcgm",
        ),
        Panel(
            "Power",
            "timeseries",
            "watt",
            "Power draw of each card.",
            (Query(_by_card(field("DCGM_FI_DEV_POWER_USAGE")), _CARD_LEGEND),),
            nothing=ABSENT,
            width=8,
            needs="dcgm",
        ),
        Panel(
            "Temperature",
            "timeseries",
            "celsius",
            "Temperature of each card.",
            (Query(_by_card(field("DCGM_FI_DEV_GPU_TEMP")), _CARD_LEGEND),),
            nothing=ABSENT,
            width=8,
            needs="dcgm",
        ),
        Panel(
            "XID errors: changes",
            "timeseries",
            "short",
            "How often the last XID error of each card changed: one has just happened, and GpuXid warns. The field "
            "keeps the last error for ever, so its value, below, says nothing of now.",
            (Query(f"changes({_by_card(field('DCGM_FI_DEV_XID_ERRORS'))}[$__rate_interval:])", _CARD_LEGEND),),
            nothing=ABSENT,
            width=8,
            decimals=0,
            needs="dcgm",
        ),
        Panel(
            "Last XID error of each card",
            "table",
            "none",
            "The last error that the driver reported of each card, however long ago.",
            (
                Query(
                    _by_card(field("DCGM_FI_DEV_XID_ERRORS")),
                    title="XID",
                    unit="none",
                    words={0.0: Word("none", "green")},
                ),
            ),
            nothing=ABSENT,
            width=24,
            height=6,
            labels={NODE: "Node", "gpu": "GPU", "modelName": "Model", "UUID": "UUID"},
            needs="dcgm",
        ),
    )


def _instances() -> tuple[Panel, ...]:
    split = 'GPU_I_ID!=""'
    return (
        Panel(
            "Framebuffer of each instance",
            "timeseries",
            "mbytes",
            "Device memory that each MIG instance uses and has free.",
            (
                Query(by("max", _SLICE, _on_node(memory("DCGM_FI_DEV_FB_USED", split))), f"{_SLICE_LEGEND} used"),
                Query(by("min", _SLICE, _on_node(memory("DCGM_FI_DEV_FB_FREE", split))), f"{_SLICE_LEGEND} free"),
            ),
            nothing="No MIG instances",
            needs="dcgm",
        ),
        Panel(
            "Activity of each instance",
            "timeseries",
            "percentunit",
            "Share of the time the instance's engine was active: the one utilisation that an instance has.",
            (Query(by("max", _SLICE, _on_node(field("DCGM_FI_PROF_GR_ENGINE_ACTIVE", split))), _SLICE_LEGEND),),
            nothing="No MIG instances",
            maximum=1.0,
            needs="dcgm",
        ),
    )
