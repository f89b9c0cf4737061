"""The objectives a workload gets when its operator promised none: they depend on what its engine serves."""

from __future__ import annotations

from collections.abc import Mapping

from scaler.policy.model import Objectives
from scaler.value import frozen

#: Engines whose requests stream tokens: what a user feels is the first token and the pace, not the whole answer.
LANGUAGE_MODEL_ENGINES = frozenset({"vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm"})

_LONGEST_SECONDS = 31_536_000.0


@frozen
class DefaultBound:
    """One default objective: its warning bound in seconds, and its critical bound as a multiple of that."""

    seconds: float
    critical_ratio: float


#: What holds where nothing is declared: TTFT 1 s (critical 5 s), TPOT 50 ms (100 ms), e2e 2 s (5 s).
DEFAULT_BOUNDS: Mapping[str, DefaultBound] = {
    "ttft": DefaultBound(seconds=1.0, critical_ratio=5.0),
    "tpot": DefaultBound(seconds=0.05, critical_ratio=2.0),
    "e2e": DefaultBound(seconds=2.0, critical_ratio=2.5),
}


def promised_by_default(engine: str) -> tuple[str, ...]:
    """Which objectives workloads of this engine have unless told otherwise."""
    return ("ttft", "tpot") if engine in LANGUAGE_MODEL_ENGINES else ("e2e",)


def fill(objectives: Objectives, engine: str) -> Objectives:
    """The objectives with the engine class's defaults where the operator (or a null) said nothing.

    A pair of which one half is said gets the other at the default ratio: ``ttft_seconds: 8`` has its critical bound
    at 40, and ``ttft_critical_seconds: 0.5``, below the default warning of 1, has its warning at 0.1. A warning that
    was unset by null has no critical bound unless one is said.
    """
    said = objectives.model_fields_set
    filled = {name: getattr(objectives, name) for name in said}
    for name, bound in DEFAULT_BOUNDS.items():
        warning_key, critical_key = f"{name}_seconds", f"{name}_critical_seconds"
        if warning_key not in said and name in promised_by_default(engine):
            critical = filled.get(critical_key)
            if critical is not None and critical < bound.seconds:
                filled[warning_key] = critical / bound.critical_ratio or critical  # the smallest floats divide to 0
            else:
                filled[warning_key] = bound.seconds
        warning = filled.get(warning_key)
        if critical_key not in said and warning is not None:
            filled[critical_key] = min(warning * bound.critical_ratio, _LONGEST_SECONDS)
    return Objectives(**filled)
