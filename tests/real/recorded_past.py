"""A past for a real Prometheus: what one would have scraped off a simulated workload, written into its storage.

The lab plays a workload; its replicas' pages are written as vLLM writes them, with the labels that pod discovery gives,
beside ``up`` of every target and what kube-state-metrics would tell. ``promtool`` makes the blocks of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TextIO

from prometheus_client.utils import floatToGoString

from scaler.lab.fleet import Fleet, Replica
from scaler.lab.simulate import BEGIN_UTC
from scaler.lab.vllm_page import VllmPage
from tests.real.prometheus_server import binary

#: Of a Prometheus storage; promtool reads its whole input again for each, so an input should not hold many.
BLOCK_SECONDS = 7200


def pod_name(replica: Replica, deployment: str) -> str:
    """A name such as a Deployment's pod has: NAME-HASH-RANDOM, the last two without vowels and 0, 1, 3."""
    number = int(replica.name.rpartition("-")[2])
    letters = "bcdfghjklmnpqrstvwxz"
    return f"{deployment}-7d9f8c5b6d-" + "".join(letters[number // 20**power % 20] for power in range(5))


@dataclass
class Past:
    """Writes what is shown to it. ``lost`` says which scrapes fail (pod's number, second), ``dark`` at which seconds
    the Prometheus itself was away. ``scaled_by_us``: a scaler of ours was there, and told which batch replicas applied.
    """

    folder: Path
    namespace: str = "chat"
    deployment: str = "llama"
    model: str = "meta/llama"
    scrape_seconds: int = 15
    kube_state: bool = True
    scaled_by_us: bool = False
    lost: Callable[[int, float], bool] = lambda number, at: False
    dark: Callable[[float], bool] = lambda at: False
    begin: datetime = BEGIN_UTC
    _last: float = -1.0
    _pages: dict[str, VllmPage] = field(default_factory=dict)
    _files: dict[int, TextIO] = field(default_factory=dict)

    def watch(self, at: float, fleet: Fleet) -> None:
        """One tick of the simulation: those replicas are scraped that are due."""
        if self.dark(at):
            self._last = at
            return
        unix = self.begin.timestamp() + at
        out = self._file(unix)
        if self._due(0, at):
            self._write_around(out, unix, fleet)
        for replica in fleet.ready:
            number = int(replica.name.rpartition("-")[2])
            if self._due(number, at):
                self._write_pod(out, unix, replica, number)
        self._last = at

    def _due(self, number: int, at: float) -> bool:
        """Each target has its own second of the interval."""
        before, now = ((each - 5 * number) // self.scrape_seconds for each in (self._last, at))
        return now > before

    def finish(self) -> Path:
        """Everything shown so far as OpenMetrics files of at most a block each; their folder."""
        for file in self._files.values():
            file.write("# EOF\n")
            file.close()
        return self.folder

    def blocks(self) -> Path:
        """The same as a storage folder."""
        self.finish()
        data = self.folder / "data"
        for number in sorted(self._files):
            source = self._path(number)
            run = [binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", str(source), str(data)]
            subprocess.run(run, check=True, capture_output=True)
            source.unlink()
        self._files.clear()
        return data

    def _path(self, number: int) -> Path:
        return self.folder / f"block-{number}.om"

    def _file(self, unix: float) -> TextIO:
        number = int(unix // BLOCK_SECONDS)
        if number not in self._files:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._files[number] = self._path(number).open("w")
        return self._files[number]

    def _write_around(self, out: TextIO, unix: float, fleet: Fleet) -> None:
        own = 'job="prometheus",instance="localhost:9090"'
        out.write(f"up{{{own}}} 1 {unix:.3f}\n")
        if self.kube_state:
            labels = f'job="kube-state-metrics",namespace="{self.namespace}",deployment="{self.deployment}"'
            out.write(f"kube_deployment_spec_replicas{{{labels}}} {fleet.asked} {unix:.3f}\n")
            out.write(f"kube_deployment_status_replicas_ready{{{labels}}} {len(fleet.ready)} {unix:.3f}\n")
            for replica in (*fleet.ready, *fleet.loading):
                pod = (
                    f'job="kube-state-metrics",namespace="{self.namespace}",pod="{pod_name(replica, self.deployment)}"'
                )
                created = self.begin.timestamp() + replica.asked_at
                out.write(f"kube_pod_created{{{pod}}} {created:.0f} {unix:.3f}\n")
        if self.scaled_by_us:
            for replica in fleet.ready:
                told = (
                    f'job="loadtide",namespace="{self.namespace}",workload="{self.deployment}",'
                    f'replica="{pod_name(replica, self.deployment)}"'
                )
                batch = replica.engine.max_num_seqs
                out.write(f"loadtide_applied_batch_size{{{told}}} {batch} {unix:.3f}\n")

    def _write_pod(self, out: TextIO, unix: float, replica: Replica, number: int) -> None:
        where = (
            f'namespace="{self.namespace}",pod="{pod_name(replica, self.deployment)}",'
            f'instance="10.0.{number // 250}.{number % 250}:8000",job="vllm"'
        )
        lost = self.lost(number, unix - self.begin.timestamp())
        out.write(f"up{{{where}}} {0 if lost else 1} {unix:.3f}\n")
        if lost:
            return
        for name, labels, value in self._samples(replica):
            out.write(f"{name}{{{where}{labels}}} {value} {unix:.3f}\n")

    def _samples(self, replica: Replica) -> Iterator[tuple[str, str, str]]:
        page = self._pages.get(replica.name)
        if page is None:
            started = self.begin.timestamp() + replica.ready_at
            page = VllmPage(replica.engine, model_name=self.model, max_model_len=131_072, process_start_seconds=started)
            page.meters = replica.meters
            self._pages[replica.name] = page
        for family in page.collect():
            for sample in family.samples:
                labels = "".join(f',{name}="{value}"' for name, value in sample.labels.items())
                yield sample.name, labels, floatToGoString(sample.value)
