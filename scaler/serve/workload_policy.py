"""The policy of a workload and the preset of its engine, from its name and its ScaledObject's metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile, Resolved
from scaler.policy.metadata import parse
from scaler.policy.model import Policy
from scaler.signals.gateway_preset import load_gateway_preset
from scaler.signals.lending import unlent
from scaler.signals.preset import Preset, PresetError, load_preset

_NAME_PART = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def policy_and_preset(policies: PolicyFile, name: str, metadata: Mapping[str, str] | None) -> tuple[Resolved, Preset]:
    """The complete policy of the workload ``name`` under ``policies``, and its engine's preset.

    Raises :class:`PolicyError` for a name that is none, metadata that cannot be meant, or an engine nobody knows.
    """
    parts = name.split("/")
    if len(parts) != 2 or not all(len(part) <= 253 and _NAME_PART.fullmatch(part) for part in parts):
        raise PolicyError([f"{name!r} is no workload name; it is the ScaledObject's namespace/name"])
    resolved = policies.resolve(name, metadata)
    gateway = resolved.policy.gateway.preset
    try:
        if gateway is not None:
            load_gateway_preset(gateway)
        preset = load_preset(resolved.policy.engine)
        policy = _with_batching(resolved.policy, preset)
        return replace(resolved, policy=policy, warnings=(*resolved.warnings, *unlent(policy, preset))), preset
    except PresetError as error:
        if ("engine",) in parse(metadata or {}).secret_paths:
            raise PolicyError([f"{name}: engine: the value (withheld) is no engine"]) from None
        raise PolicyError([f"{name}: {error}"]) from error


def _with_batching(policy: Policy, preset: Preset) -> Policy:
    """The policy with what the engine's preset says of its batching, where the operator says nothing."""
    if policy.batch.batching is not None:
        return policy
    batching = "continuous" if preset.continuous_batching else "static"
    return policy.model_copy(update={"batch": policy.batch.model_copy(update={"batching": batching})})
