"""The HPA on requests in flight: the rival to beat on smooth days.

The metric is running + waiting over all replicas; the HPA's AverageValue target is ``load_target`` sequences per
replica. Everything else (tolerance 0.1, 15 s sync, doubling or four pods per 15 s up, the maximum of 300 s down) is the
HPA's own default behaviour.
"""

from __future__ import annotations

from scaler.control.model import Now
from scaler.lab.baselines.last_reading import in_flight, last_value
from scaler.lab.simulate import Wish
from scaler.signals.model import Signals
from scaler.value import frozen


@frozen
class InFlight:
    """``load_target``: sequences in flight per replica."""

    load_target: float
    name: str = "hpa-in-flight"

    @property
    def metric_target(self) -> float:
        """Sequences per replica."""
        return self.load_target

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        """What is in flight, in the engines and at the gateway; KEDA's activation is anything above 0."""
        load = in_flight(signals)
        return Wish(load, active=load > 0)


@frozen
class Waiting:
    """KEDA's Prometheus scaler on the engines' queue: waiting requests, ``load_target`` of them per replica."""

    load_target: float
    name: str = "keda-waiting"

    @property
    def metric_target(self) -> float:
        """Waiting requests per replica."""
        return self.load_target

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        """The queue, in the engines and at the gateway. Active while anything is in flight: with the queue alone KEDA
        would take busy replicas to zero, and nobody leaves it so.
        """
        return Wish(last_value(signals.waiting) + last_value(signals.pending), active=in_flight(signals) > 0)


@frozen
class Static:
    """A fixed number of replicas and a fixed batch; ``batch`` None leaves the engine's."""

    replicas: int
    batch: int | None = None
    name: str = "static"
    metric_target: float = 1.0

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002
        """Always the same."""
        return Wish(float(self.replicas), active=True, batch=self.batch)
