"""Memory: the KV cache of engines that preallocate, free VRAM of those that do not, and growth past a baseline.

vLLM, SGLang and TGI take their share of the card at start and keep it: 8 % free is how they run, and no alert says so
(vllm#550). What they hold can still grow, a leak or an adapter, so it is compared with the least they have used while
serving. Loading is no baseline: only what is used while the engine's own page answers counts.
"""

from __future__ import annotations

from scaler.pack.model import Alert, Group, Recording
from scaler.pack.series import (
    ENGINE_INFO,
    GPU_FREE,
    GPU_FREE_EMERGENCY,
    GPU_USED,
    KV,
    KV_PREEMPTIONS,
    KV_USE,
    OUT_OF_MEMORY,
    PREEMPTIONS,
    RESTARTS,
    RUNNING,
    SIGNAL,
    VRAM_BASELINE,
    VRAM_FREE,
    VRAM_GROWTH,
    VRAM_SERVING,
    WAITING,
    WORKLOAD,
)

#: Free memory below the emergency line times this is the buffer's.
_BUFFER = 1.5
#: Of the card, over the least used while serving.
_GROWTH = 0.03
#: Free share of a card on which an allocation has failed.
_FULL = 0.02
_KV_LOW, _KV_FULL = 0.90, 0.98
_PREEMPTIONS_PER_SECOND = 0.1

#: The scaler counts preemptions over this long.
_RECENT_SECONDS = 15

_PREALLOCATES = f'{ENGINE_INFO}{{preallocates_gpu_memory="true"}}'


def memory_group() -> Group:
    """VramHeadroomCritical and -Low, VramGrowth, VramExhausted; KvCacheHeadroomLow, KvPreemptions, KvExhausted."""
    return Group("loadtide.memory", (*_recordings(), *_vram(), *_kv()))


def _recordings() -> tuple[Recording, ...]:
    answering = f"{RUNNING} or on (namespace, pod) {WAITING}"
    preempted = f'avg_over_time({SIGNAL}{{signal="preemptions_recent"}}[5m]) / {_RECENT_SECONDS}'
    return (
        Recording(
            VRAM_FREE,
            f"min by ({WORKLOAD}) ({GPU_FREE})\n"
            f'or on ({WORKLOAD})\nmax by ({WORKLOAD}) ({SIGNAL}{{signal="gpu_memory_free_ratio"}})',
        ),
        Recording(
            VRAM_SERVING,
            f"{GPU_USED}\nand on ({WORKLOAD}) {_PREALLOCATES}\nand on (namespace, pod) ({answering})",
        ),
        Recording(VRAM_BASELINE, f"min_over_time({VRAM_SERVING}[1d:5m])"),
        Recording(VRAM_GROWTH, f"{VRAM_SERVING} - {VRAM_BASELINE}"),
        Recording(
            KV,
            f"max without (engine) ({KV_USE})\n"
            f'or on ({WORKLOAD})\nmax by ({WORKLOAD}) ({SIGNAL}{{signal="kv_use_ratio"}})',
        ),
        Recording(
            KV_PREEMPTIONS,
            f"sum without (engine) ({PREEMPTIONS})\nor on ({WORKLOAD})\nmax by ({WORKLOAD}) ({preempted})",
        ),
    )


def _vram() -> tuple[Alert, ...]:
    restarted = f"{RESTARTS} > 0"
    killed = f"{restarted} and on (namespace, pod, container) {OUT_OF_MEMORY} == 1\nand on ({WORKLOAD}) {ENGINE_INFO}"
    grown = f"{restarted} and on (namespace, pod) max_over_time({VRAM_GROWTH}[30m]) > {_GROWTH}"
    full = (
        f"{restarted} and on (namespace, pod) min_over_time({GPU_FREE}[30m]) < {_FULL}\n"
        f'and on ({WORKLOAD}) {ENGINE_INFO}{{preallocates_gpu_memory="false"}}'
    )
    return (
        Alert(
            "VramHeadroomCritical",
            f"{VRAM_FREE} < on ({WORKLOAD}) {GPU_FREE_EMERGENCY}",
            severity="critical",
            hold="5m",
            keep="5m",
            dashboard="gpu",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} has {{ $value | humanizePercentage }} of a GPU's "
            "memory left.",
            description=(
                "The fullest GPU of {{ $labels.workload }} has {{ $value | humanizePercentage }} of its memory free, "
                "under the emergency line of its policy. loadtide shrinks the batch; if that does not help, the next "
                "large request ends the replica."
            ),
        ),
        Alert(
            "VramHeadroomLow",
            f"{VRAM_FREE} < on ({WORKLOAD}) {_BUFFER:g} * {GPU_FREE_EMERGENCY}",
            severity="warning",
            hold="10m",
            keep="10m",
            dashboard="gpu",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} has {{ $value | humanizePercentage }} of a GPU's "
            "memory left.",
            description=(
                "The fullest GPU of {{ $labels.workload }} has {{ $value | humanizePercentage }} of its memory free: "
                f"less than {_BUFFER:g} times the emergency line of its policy."
            ),
        ),
        Alert(
            "VramGrowth",
            f"{VRAM_GROWTH} > {_GROWTH}",
            severity="warning",
            hold="10m",
            keep="10m",
            dashboard="gpu",
            summary="{{ $labels.namespace }}/{{ $labels.pod }} uses {{ $value | humanizePercentage }} of its GPU more "
            "than after loading.",
            description=(
                "The engine took its memory at start; since then {{ $labels.UUID }} of {{ $labels.pod }} has filled "
                "by another {{ $value | humanizePercentage }} of the card. That is no load: it is a leak, an adapter, "
                "or a neighbour on the card."
            ),
        ),
        Alert(
            "VramExhausted",
            f"{killed}\nor\n{grown}\nor\n{full}",
            severity="critical",
            hold="0s",
            keep="30m",
            dashboard="gpu",
            summary="{{ $labels.namespace }}/{{ $labels.pod }} restarted out of memory.",
            description=(
                "Container {{ $labels.container }} of {{ $labels.workload }} restarted: killed for want of memory, or "
                "with its GPU's memory run full in the half hour before."
            ),
        ),
    )


def _kv() -> tuple[Alert, ...]:
    preempting = f"sum by ({WORKLOAD}) ({KV_PREEMPTIONS}) > 0"
    return (
        Alert(
            "KvCacheHeadroomLow",
            f"{KV} > {_KV_LOW}",
            severity="warning",
            hold="5m",
            keep="5m",
            summary="KV cache of {{ $labels.namespace }}/{{ $labels.workload }} is {{ $value | humanizePercentage }} "
            "full.",
            description=(
                "The fullest engine of {{ $labels.workload }} uses {{ $value | humanizePercentage }} of its KV cache. "
                "The batch does not grow any more; the next long requests will be preempted."
            ),
        ),
        Alert(
            "KvPreemptions",
            f"{KV_PREEMPTIONS} > {_PREEMPTIONS_PER_SECOND}",
            severity="warning",
            hold="5m",
            keep="5m",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} preempts {{ $value | humanize }} requests a "
            "second.",
            description=(
                "{{ $labels.workload }} throws {{ $value | humanize }} running requests a second out of its KV cache "
                "and computes them again: work done twice, and answers that stall."
            ),
        ),
        Alert(
            "KvExhausted",
            f"{KV} > {_KV_FULL}\nand on ({WORKLOAD}) {preempting}",
            severity="critical",
            hold="5m",
            keep="5m",
            summary="KV cache of {{ $labels.namespace }}/{{ $labels.workload }} is full and requests are preempted.",
            description=(
                "{{ $labels.workload }} uses {{ $value | humanizePercentage }} of its KV cache and preempts. What "
                "loadtide can do (a smaller batch, more replicas) has not been enough for five minutes."
            ),
        ),
    )
