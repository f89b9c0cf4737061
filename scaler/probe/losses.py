"""What cannot be done where a family of an engine is missing: by the catalog's ``required_for``, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scaler.signals.model import CATALOG

#: Family → the canonical signals that are made of it.
SIGNALS: Final[Mapping[str, tuple[str, ...]]] = {
    "running": ("running",),
    "waiting": ("waiting",),
    "kv_use": ("kv_use_ratio", "kv_use_mean_ratio"),
    "kv_capacity_tokens": ("kv_capacity_tokens",),
    "arrivals": ("arrivals_per_second", "arrivals_recent_per_second", "arrivals_last_per_second"),
    "finished": ("finished_per_second",),
    "preemptions": ("preemptions_recent",),
    "prompt_tokens": ("prompt_tokens_per_second",),
    "generation_tokens": ("generation_tokens_per_second",),
    "admission_rejections": (),
    "steps": (),
    "awake_engines": ("asleep_replicas",),
    "ttft": ("ttft_seconds",),
    "tpot": ("tpot_seconds",),
    "e2e": ("e2e_seconds",),
    "queue": ("queue_seconds",),
    "prefill": ("prefill_seconds", "prefill_share_ratio"),
    "decode": ("decode_seconds", "prefill_share_ratio"),
    "prompt_length": ("prompt_tokens_mean", "prompt_tokens_deviation"),
    "generation_length": ("generation_tokens_mean", "generation_tokens_deviation"),
}

#: What else goes with it, for a person.
_ELSE: Final[Mapping[str, str]] = {
    "kv_capacity_tokens": "how many sequences fit into the KV cache is not known",
    "finished": "arrivals cannot be derived",
    "prompt_tokens": "progress is told by fewer counters, so a stall may be seen late",
    "generation_tokens": "progress is told by fewer counters, so a stall may be seen late",
    "admission_rejections": "requests that the engine turns away are not demand",
    "steps": "progress during one long answer shows only in token counters",
    "awake_engines": "whether a replica sleeps is known from its agent only",
    "ttft": "objectives.ttft_seconds cannot be judged",
    "tpot": "objectives.tpot_seconds cannot be judged",
    "e2e": "objectives.e2e_seconds cannot be judged",
    "queue": "whether latency is queueing is judged without its own measure",
    "prefill": "a slow first token is not put down to long prompts",
    "decode": "slow answers are not put down to decoding",
    "prompt_length": "a shift to longer prompts is not seen",
    "generation_length": "a shift to longer answers is not seen",
}


def disabled_by(family: str) -> str:
    """What the absence of ``family`` disables, in one line; "" where nothing rests on it."""
    acts = dict.fromkeys(act for signal in SIGNALS[family] for act in CATALOG[signal].required_for)
    said = [f"disables {', '.join(acts)}"] if acts else []
    if family in _ELSE:
        said.append(_ELSE[family])
    return "; ".join(said)
