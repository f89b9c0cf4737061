"""GPU: what the cards do, by the pods that hold them and one by one. Needs NVIDIA's DCGM exporter.

One GPU is many series there: repeated for each pod that shares it, under ``exported_pod`` or ``pod``, and without a
holder while no pod runs on it. Graphs by pod start from the holder; graphs by card leave holders out, or one card
would be several lines.
"""

from __future__ import annotations

from scaler.pack.dashboards.cards import ABSENT, NODE, NODE_BEFORE, card_rows, field, memory
from scaler.pack.dashboards.model import Dashboard, Panel, Query, Row, Step, Variable
from scaler.pack.dashboards.queries import VARIABLES, chosen, chosen_model, marks, signal
from scaler.pack.dashboards.resources import KV_HEADROOM_LOW, KV_HEADROOM_NONE
from scaler.pack.dashboards.shared import shared_row
from scaler.pack.promql import by, placed
from scaler.pack.series import GPU_FREE, KV, VRAM_GROWTH

#: VramGrowth warns above this share of the card.
GROWTH = 0.03
_NODE = Variable("node", NODE, "DCGM_FI_DEV_FB_USED", "Node", before=NODE_BEFORE)
_POD = "namespace, pod"
_POD_LEGEND = "{{namespace}}/{{pod}}"


def gpu(alerts: tuple[str, ...]) -> Dashboard:
    """The dashboard; ``alerts`` are the names of our alerts."""
    return Dashboard(
        "loadtide-gpu",
        "loadtide / GPU",
        "The GPUs under the workloads: memory, activity, who shares a card, power, temperature, errors, MIG instances.",
        (*VARIABLES, _NODE),
        marks(alerts),
        (
            Row("Memory", _memory()),
            Row("Activity", _activity()),
            shared_row(),
            *card_rows(),
        ),
    )


def _by_pod(operator: str, vector: str) -> str:
    """One value for each pod of the chosen workloads, over its GPUs: of each GPU the greatest copy first."""
    cards = by("max", "namespace, workload, pod, UUID, GPU_I_ID", placed(vector))
    ours = f"{cards}\nand on (namespace, workload)\n{chosen('loadtide_config_warnings')}"
    return by(operator, _POD, ours)


def _memory() -> tuple[Panel, ...]:
    return (
        Panel(
            "Framebuffer by pod",
            "timeseries",
            "mbytes",
            "Device memory used and free on the GPUs that each pod of the chosen workloads holds. Used and free miss "
            "the card's total by what is reserved.",
            (
                Query(_by_pod("sum", memory("DCGM_FI_DEV_FB_USED")), f"{_POD_LEGEND} used"),
                Query(_by_pod("sum", memory("DCGM_FI_DEV_FB_FREE")), f"{_POD_LEGEND} free"),
            ),
            nothing=ABSENT,
            needs="dcgm",
        ),
        Panel(
            "Free share of each card that a workload holds",
            "timeseries",
            "percentunit",
            "Free over used, free and reserved. 8 % is how an engine that preallocates runs; for the others "
            "VramHeadroomLow and VramHeadroomCritical compare it with the policy's emergency line (Overview draws it).",
            (Query(chosen(GPU_FREE), "{{namespace}}/{{pod}} {{UUID}} {{GPU_I_ID}}"),),
            nothing=ABSENT,
            maximum=1.0,
            needs="dcgm",
        ),
        Panel(
            "Growth since loading",
            "timeseries",
            "percentunit",
            "Device memory used over the least used while serving in the last day, as a share of the card, for engines "
            "that preallocate. Above 3 % VramGrowth warns: a leak, an adapter, a neighbour.",
            (Query(chosen(VRAM_GROWTH), "{{namespace}}/{{pod}} {{UUID}}"),),
            nothing="No engine that preallocates is serving on a GPU that is read",
            steps=(Step(None, "green"), Step(GROWTH, "orange")),
            needs="dcgm",
        ),
        Panel(
            "KV-cache use, by model",
            "timeseries",
            "percentunit",
            "What the preallocated memory is filled with: for vLLM and SGLang this, not free device memory, is the "
            "memory pressure. KvCacheHeadroomLow warns above 90 %; KvExhausted pages above 98 % with preemptions.",
            (Query(chosen_model(KV), "{{namespace}}/{{workload}} {{model_name}}"),),
            nothing="Scaled to zero",
            maximum=1.0,
            steps=(Step(None, "green"), Step(1 - KV_HEADROOM_LOW, "orange"), Step(1 - KV_HEADROOM_NONE, "red")),
            needs="rules",
        ),
    )


def _activity() -> tuple[Panel, ...]:
    return (
        Panel(
            "Utilisation by pod",
            "timeseries",
            "percent",
            "Share of the time a kernel ran on the busiest GPU of each pod. A memory-bound decode shows 100 % here "
            "with room left: compare SM activity. MIG instances have no such measure.",
            (Query(_by_pod("max", field("DCGM_FI_DEV_GPU_UTIL", 'GPU_I_ID=""')), _POD_LEGEND),),
            nothing=ABSENT,
            width=8,
            maximum=100.0,
            needs="dcgm",
        ),
        Panel(
            "Engine and SM activity by pod",
            "timeseries",
            "percentunit",
            "Share of the time the graphics or compute engine was active, and share of SM cycles with a warp. These "
            "profiling fields may be switched off in the exporter, and can stick at 0 under load.",
            (
                Query(_by_pod("max", field("DCGM_FI_PROF_GR_ENGINE_ACTIVE")), f"{_POD_LEGEND} engine"),
                Query(_by_pod("max", field("DCGM_FI_PROF_SM_ACTIVE")), f"{_POD_LEGEND} SMs"),
                Query(_by_pod("max", field("DCGM_FI_PROF_SM_OCCUPANCY")), f"{_POD_LEGEND} SM occupancy"),
            ),
            nothing="The exporter does not read profiling fields",
            width=8,
            maximum=1.0,
            needs="dcgm",
        ),
        Panel(
            "As loadtide sees it",
            "timeseries",
            "percentunit",
            "The GPU signals that loadtide judges by, where it reads GPUs: busy, SMs active, free memory of the "
            "fullest. They are never required.",
            (
                Query(signal("gpu_busy_ratio"), "{{namespace}}/{{workload}} busy"),
                Query(signal("sm_active_ratio"), "{{namespace}}/{{workload}} SMs active"),
                Query(signal("gpu_memory_free_ratio"), "{{namespace}}/{{workload}} memory free", optional=True),
            ),
            nothing="loadtide reads no GPU",
            width=8,
            maximum=1.0,
            needs="dcgm",
        ),
    )
