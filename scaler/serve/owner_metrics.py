"""Who owns what, and whether what must survive is being stored, for ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from scaler.serve.ownership import Ownership
from scaler.serve.published import PublishedWorkloads


class OwnerCollector:
    """A ``prometheus_client`` collector. ``trouble`` says what is wrong with the store, None while all is well.

    Every scaler tells every workload's series; ``loadtide_owner`` is 1 at the one that decides, so that a sum over
    scalers can be taken of that one's alone.
    """

    def __init__(self, workloads: PublishedWorkloads, ownership: Ownership, trouble: Callable[[], str | None]) -> None:
        self._workloads = workloads
        self._ownership = ownership
        self._trouble = trouble

    def collect(self) -> Iterator[Metric]:
        """Both families, as things stand now."""
        owner = GaugeMetricFamily(
            "loadtide_owner",
            "1 where this scaler reads and judges the workload, 0 where another one does.",
            labels=("namespace", "workload"),
        )
        for name in list(self._workloads.names()):
            namespace, _, workload = name.partition("/")
            owner.add_metric((namespace, workload), float(self._ownership.owns(name)))
        yield owner
        help_text = "0 while what must survive a restart, or be shared with other scalers, cannot be stored."
        yield GaugeMetricFamily("loadtide_store_up", help_text, value=float(self._trouble() is None))
