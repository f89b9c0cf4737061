"""Which preset a set of metric names belongs to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Literal

from scaler.signals.dcgm import FIELDS
from scaler.signals.family import Family, sample_names
from scaler.signals.gateway_preset import known_gateways, load_gateway_preset
from scaler.signals.kube_state import METRICS
from scaler.signals.preset import known_engines, load_preset
from scaler.value import frozen


@frozen
class Fit:
    """A preset and how much of it is there: ``found`` of its families, and their normalised sample names."""

    kind: Literal["engine", "gateway"]
    name: str
    found: tuple[str, ...]
    of: int
    names: frozenset[str]

    @property
    def share(self) -> float:
        """Of the families, 0..1."""
        return len(self.found) / self.of

    def __str__(self) -> str:
        return f"{self.name} ({len(self.found)} of {self.of} families)"


def wanted_names() -> frozenset[str]:
    """Every normalised sample name that any preset, a DCGM exporter or kube-state-metrics may be told by."""
    engines = (load_preset(name).wanted for name in known_engines())
    gateways = (load_gateway_preset(name).wanted for name in known_gateways())
    return frozenset().union(*engines, *gateways, FIELDS, METRICS)


def fits(there: Set[str]) -> tuple[Fit, ...]:
    """Every preset of which some family is among the normalised sample names ``there``, the best first.

    An engine with more families found goes before one with fewer (two presets of Triton share names); a gateway goes
    before an engine only if more of *it* is there: routers repeat some of their engines' metrics.
    """
    engines = [_fit("engine", name, load_preset(name).families, there) for name in known_engines()]
    gateways = [_fit("gateway", name, load_gateway_preset(name).families, there) for name in known_gateways()]
    some_engines = sorted(filter(_some, engines), key=_amount, reverse=True)
    some_gateways = sorted(filter(_some, gateways), key=lambda fit: (fit.share, *_amount(fit)), reverse=True)
    if some_engines and some_gateways and some_gateways[0].share > some_engines[0].share:
        return (*some_gateways, *some_engines)
    return (*some_engines, *some_gateways)


def apart(found: Iterable[Fit]) -> tuple[tuple[Fit, ...], tuple[Fit, ...]]:
    """The engines of ``found``, the best first, that cannot be one another's: (those at least half there and sharing no
    name with a better one, the others).
    """
    taken: list[Fit] = []
    others: list[Fit] = []
    for fit in found:
        if fit.kind == "engine":
            shared = any(fit.names & better.names for better in taken)
            (others if shared or fit.share < 0.5 else taken).append(fit)
    return tuple(taken), tuple(others)


def _fit(kind: Literal["engine", "gateway"], name: str, families: Mapping[str, Family], there: Set[str]) -> Fit:
    names = {key: there & {*sample_names(family)} for key, family in families.items()}
    found = tuple(key for key, present in names.items() if present)
    return Fit(kind, name, found, len(families), frozenset().union(*names.values()))


def _some(fit: Fit) -> bool:
    return bool(fit.found)


def _amount(fit: Fit) -> tuple[int, float]:
    return len(fit.found), fit.share
