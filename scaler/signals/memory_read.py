"""The light read for the memory guard: of an engine's page only what tells of memory, and nothing that is remembered.

The window fold never sees it: counters are compared with the light read before, gauges are taken as they stand. It can
only say that memory *is* under pressure somewhere. An endpoint that was not read says nothing, and takes nothing away
from what the others say.

Free device memory is not on an engine's page: it comes from DCGM exporters, which collect every 30 s unless told
otherwise, so the ordinary tick is fast enough for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scaler.signals import counters
from scaler.signals.family import sample_names
from scaler.signals.model import Known, Signals, Unknown
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import Preset

#: What tells of pressure, and what the batch is judged by then.
PRESSURE = ("kv_use", "preemptions")
FAMILIES = ("running", *PRESSURE)

Read = Mapping[str, EngineSample | ReadFailure]


def memory_preset(preset: Preset) -> Preset | None:
    """The preset that reads so much and no more; None where the engine tells nothing of memory."""
    families = {key: preset.families[key] for key in FAMILIES if key in preset.families}
    if not any(key in families for key in PRESSURE):
        return None
    names = (name for family in families.values() for name in sample_names(family))
    return replace(preset, families=families, wanted=frozenset(names))


def memory_signals(before: Read, now: Read) -> Signals:
    """What the endpoints of ``now`` say of memory; preemptions are those since ``before``. All else stays unknown."""
    samples = {endpoint: read for endpoint, read in now.items() if isinstance(read, EngineSample)}
    if not samples:
        return Signals()
    at = min(sample.at for sample in samples.values())

    def greatest(family: str) -> Known[float] | Unknown:
        values = [sample.gauges[family] for sample in samples.values() if family in sample.gauges]
        return Known(max(values), at) if values else Unknown("the light read does not tell")

    preempted = [
        counters.increase(earlier.counters["preemptions"], sample.counters["preemptions"])[0]
        for endpoint, sample in samples.items()
        if isinstance(earlier := before.get(endpoint), EngineSample)
        and "preemptions" in earlier.counters
        and "preemptions" in sample.counters
    ]
    return Signals(
        busiest_running=greatest("running"),
        kv_use_ratio=greatest("kv_use"),
        preemptions_recent=Known(sum(preempted), at) if preempted else Unknown("the light read does not tell"),
    )


def with_memory(signals: Signals, read: Signals) -> Signals:
    """``signals`` with what a light read has found since."""
    found: dict[str, Any] = {
        name: signal
        for name in ("busiest_running", "kv_use_ratio", "preemptions_recent")
        if isinstance(signal := getattr(read, name), Known)
    }
    return replace(signals, **found)
