"""Engines' series under one set of names, whatever the engine, its version and the spelling call them.

The names come from the engines' presets (``scaler/signals/engines``), so the rules read what the scaler reads.
Counters: increase of each series first, then the sum; inside a pod the greatest of rank copies. A histogram counted in
other units than seconds, and one known by its mean only, is left to the scaler's own P95.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent

from scaler.pack.model import Alert, Group, Recording
from scaler.pack.promql import GAUGE_WINDOW, by, call, first_of, once, placed, replaced, spellings
from scaler.pack.series import (
    BUCKETS_5M,
    ENGINE_INFO,
    KV_USE,
    MODEL,
    OWN_READY,
    POD,
    PREEMPTIONS,
    PROGRESS,
    REQUESTS,
    RUNNING,
    WAITING,
    WORKLOAD,
)
from scaler.signals.preset import Family, Preset, load_preset

ENGINES = ("vllm", "sglang", "tgi", "triton")

#: Families that move while an engine makes progress. The time for which none may move is the scaler's own
#: (``stalled_after_seconds``).
_MOVING = ("finished", "prompt_tokens", "generation_tokens", "steps")


def engine_group(engine: str) -> Group:
    """The recording rules of one engine, and the alert that says when its series are missing."""
    preset = load_preset(engine)
    rules = [
        *_latencies(preset),
        *_sums(preset, "running", RUNNING, POD, f"last_over_time({{}}[{GAUGE_WINDOW}])"),
        *_sums(preset, "waiting", WAITING, POD, f"last_over_time({{}}[{GAUGE_WINDOW}])"),
        *_progress(preset),
        *_sums(preset, "finished", REQUESTS, MODEL, "rate({}[5m])"),
        *_sums(preset, "preemptions", PREEMPTIONS, MODEL, "rate({}[5m])"),
        *_kv_use(preset),
    ]
    labelled = (Recording(rule.record, rule.expr, {**rule.labels, "engine": engine}) for rule in rules)
    return Group(f"loadtide.{engine}", (*labelled, _missing(engine)), source=engine)


def _latencies(preset: Preset) -> Iterable[Recording]:
    for objective in ("ttft", "tpot", "e2e"):
        family = preset.families.get(objective)
        if family is None or not family.names or family.scale != 1.0:
            continue
        buckets = Family("counter", tuple(f"{name}_bucket" for name in family.names), where=family.where)
        each = _series(preset, buckets, "increase({}[5m])")
        yield Recording(BUCKETS_5M, by("sum", f"{MODEL}, le", each), {"objective": objective})


def _sums(preset: Preset, name: str, record: str, level: str, over: str) -> Iterable[Recording]:
    """``over`` is a range function with ``{}`` for the selector."""
    family = preset.families.get(name)
    if family is not None and family.names:
        yield Recording(record, by("sum", level, _with_plus(preset, family, over)))


def _progress(preset: Preset) -> Iterable[Recording]:
    families = [preset.families[name] for name in _MOVING if name in preset.families]
    moved = (
        replaced(_with_plus(preset, family, f"increase({{}}[{GAUGE_WINDOW}])"), "part", str(number), "", "")
        for number, family in enumerate(families)
    )
    yield Recording(PROGRESS, by("sum", POD, "\nor\n".join(moved)))


def _kv_use(preset: Preset) -> Iterable[Recording]:
    family = preset.families.get("kv_use")
    if family is not None and family.names:
        # A ratio: never summed. The fullest engine is the one that preempts.
        yield Recording(KV_USE, by("max", MODEL, _series(preset, family, f"avg_over_time({{}}[{GAUGE_WINDOW}])")))


def _with_plus(preset: Preset, family: Family, over: str) -> str:
    first = _series(preset, family, over)
    more = (
        replaced(_series(preset, Family(family.kind, (name,), where=family.where), over), "plus", name, "", "")
        for name in family.plus
    )
    return "\nor\n".join((first, *more))


def _series(preset: Preset, family: Family, over: str) -> str:
    """A family's series, one for each quantity of each pod, under the first of its names that the pod has."""
    matchers = ",".join(f'{label}=~"{"|".join(sorted(values))}"' for label, values in sorted(family.where.items()))
    names = [spelt for name in family.names for spelt in spellings(name)]
    vector = first_of([over.format(f"{name}{{{matchers}}}" if matchers else name) for name in names])
    if preset.model_label not in (None, "model_name"):
        vector = replaced(vector, "model_name", "$1", str(preset.model_label), "(.+)")
    return once(placed(vector), preset.rank_labels)


def _missing(engine: str) -> Alert:
    serving = f'{OWN_READY} > 0\nand on ({WORKLOAD}) {ENGINE_INFO}{{engine="{engine}"}}'
    # Any of them: some engines' counters appear with the first request only, and Triton has no gauge of running ones.
    seen = "\nor ".join(f'{record}{{engine="{engine}"}}' for record in (RUNNING, WAITING, REQUESTS))
    return Alert(
        "EngineMetricsMissing",
        f"{call('group by (namespace, workload) ', serving)}\nunless on ({WORKLOAD}) (\n{indent(seen, '  ')}\n)",
        severity="info",
        hold="15m",
        labels={"engine": engine},
        summary="Prometheus has no series of {{ $labels.namespace }}/{{ $labels.workload }}'s engine.",
        description=(
            f"loadtide reads replicas of {engine} for {{{{ $labels.workload }}}}, and Prometheus has none of their "
            "series under this workload. Alerts then rest on what loadtide measures itself."
        ),
    )
