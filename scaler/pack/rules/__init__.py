"""The rules themselves, one file per source, and the alerts that compare them. Plain data, made by plain functions."""

from __future__ import annotations

from scaler.pack.model import Group, Options
from scaler.pack.rules.burn import burn_groups
from scaler.pack.rules.cost import cost_group
from scaler.pack.rules.dcgm import dcgm_group
from scaler.pack.rules.engines import ENGINES, engine_group
from scaler.pack.rules.kube_state import kube_state_group
from scaler.pack.rules.latency import latency_group
from scaler.pack.rules.memory import memory_group
from scaler.pack.rules.replicas import replicas_group
from scaler.pack.rules.scaler import scaler_group
from scaler.pack.rules.stalls import stalls_group

#: What can be left out where it is not scraped. loadtide's own metrics cannot: every threshold comes from them.
SOURCES = (*ENGINES, "dcgm", "kube-state-metrics")


def groups(options: Options) -> tuple[Group, ...]:
    """Every group for these options: first what normalises, then what compares.

    Raises ValueError for a source in ``without`` that there is not.
    """
    if unknown := sorted(options.without - set(SOURCES)):
        raise ValueError(f"no such source: {', '.join(unknown)}; the sources are {', '.join(SOURCES)}")
    every = (
        scaler_group(options),
        *(engine_group(engine) for engine in ENGINES),
        dcgm_group(),
        kube_state_group(options),
        latency_group(),
        *burn_groups(),
        memory_group(),
        stalls_group(),
        replicas_group(),
        cost_group(),
    )
    return tuple(group for group in every if group.source not in options.without)
