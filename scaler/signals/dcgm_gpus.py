"""The GPUs that exporters showed, to be found by the pod that holds them or by their series' labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scaler.signals.dcgm import DcgmGpu, PodName
from scaler.signals.gpu import GpuReading


class DcgmGpus:
    """GPUs of one or several exporters, in the order found. The first question of a kind puts all of them in order,
    every further one is a look-up: thousands of replicas ask.
    """

    def __init__(self, gpus: Iterable[DcgmGpu] = ()) -> None:
        self._gpus = tuple(gpus)
        self._by_pod: dict[str, list[tuple[str, DcgmGpu]]] | None = None
        self._by_labels: dict[tuple[str, ...], dict[tuple[str | None, ...], list[DcgmGpu]]] = {}

    def __iter__(self) -> Iterator[DcgmGpu]:
        return iter(self._gpus)

    def __len__(self) -> int:
        return len(self._gpus)

    def held_by(self, pod: PodName) -> tuple[GpuReading, ...]:
        """The GPUs that ``pod`` holds, whole: a GPU shared with another pod is as busy as both make it."""
        if self._by_pod is None:
            self._by_pod = {}
            for gpu in self._gpus:
                for namespace, name in sorted(gpu.pods):
                    self._by_pod.setdefault(name, []).append((namespace, gpu))
        found = {
            id(gpu): gpu.reading
            for namespace, gpu in self._by_pod.get(pod.name, ())
            if namespace == pod.namespace or "" in (namespace, pod.namespace)
        }
        return tuple(found.values())

    def matching(self, match: Mapping[str, str]) -> tuple[GpuReading, ...]:
        """The GPUs of which one series has every label of ``match`` with exactly that value. No label, no GPU."""
        names = tuple(sorted(match))
        by_values = self._by_labels.get(names)
        if by_values is None:
            by_values = self._by_labels[names] = {}
            for gpu in self._gpus:
                for values in dict.fromkeys(tuple(map(labels.get, names)) for labels in gpu.series):
                    by_values.setdefault(values, []).append(gpu)
        wanted = by_values.get(tuple(match[name] for name in names), ()) if names else ()
        return tuple(gpu.reading for gpu in wanted)
