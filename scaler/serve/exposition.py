"""``/metrics`` as text, for the hundreds of thousands of lines that thousands of workloads make.

``prometheus_client`` makes an object of each sample and sorts and escapes the labels of each: some 3 µs a line. Here a
family is written as text at once; what the library's own encoders add to that (other families, the end of the format)
they still do. A gauge's lines are the same in both formats, so one text serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

Encoder = Callable[[CollectorRegistry], bytes]

#: Stands for the labels of a workload in the lines that many of them share. No label can hold it: it is escaped.
_LABELS = "\n\n"


class GaugeText(Metric):
    """A family of gauges whose samples are lines of text already: ``lines`` holds whole ones, each with its end.

    For whoever asks as the library's protocol says, ``samples`` reads them back.
    """

    def __init__(self, name: str, documentation: str) -> None:
        self.lines: list[str] = []
        super().__init__(name, documentation, "gauge")

    def add(self, labels: str, value: float) -> None:
        """One sample; ``labels`` as :func:`labels_text` writes them."""
        self.lines.append(f"{self.name}{{{labels}}} {floatToGoString(value)}\n")  # type: ignore[no-untyped-call]

    def add_words(self, labels: str, rows: tuple[tuple[str, str, tuple[str, ...], str], ...]) -> None:
        """One sample per word of each row: 1 for the one that holds, 0 for the others. A row is: further labels (or
        nothing), the label of the word, the words, the one that holds.
        """
        self.lines.append(_words_text(self.name, rows).replace(_LABELS, labels))

    def text(self) -> str:
        """The family as both formats write it."""
        told = self.documentation.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {self.name} {told}\n# TYPE {self.name} gauge\n{''.join(self.lines)}"

    @property
    def samples(self) -> list[Sample]:
        """The lines, read by the library."""
        return [sample for family in text_string_to_metric_families(self.text()) for sample in family.samples]

    @samples.setter
    def samples(self, _none: Iterable[Sample]) -> None:
        """The library's own constructor sets an empty list."""


@lru_cache(maxsize=4096)
def labels_text(**labels: str) -> str:
    """Labels as they stand between the braces, escaped. Remembered: there are far fewer of them than samples."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def encoded(encode: Encoder, registry: CollectorRegistry) -> bytes:
    """What ``encode``, one of the library's, makes of the registry; the text families go first."""
    families = list(registry.collect())
    texts = [family.text() for family in families if isinstance(family, GaugeText)]
    rest = _Collected([family for family in families if not isinstance(family, GaugeText)])
    return "".join(texts).encode() + encode(rest)  # type: ignore[arg-type]


class _Collected:
    """What has been collected already, as an encoder asks for it."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


@lru_cache(maxsize=1024)
def _words_text(name: str, rows: tuple[tuple[str, str, tuple[str, ...], str], ...]) -> str:
    """The lines of a one-hot family but for the workload's labels. Most workloads have the same words most of the time:
    this is made once for all of them.
    """
    return "".join(
        f'{name}{{{_LABELS}{further and ","}{further},{label}="{word}"}} {1.0 if word == held else 0.0}\n'
        for further, label, words, held in rows
        for word in words
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
