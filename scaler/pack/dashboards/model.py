"""What a dashboard is: plain values, in the words of Grafana where it has one. :mod:`.grafana` writes them as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from scaler.value import frozen

Kind = Literal["timeseries", "stat", "state-timeline", "table"]
#: Who must be scraped for a panel to show anything. ``rules`` are the recorded series of our own rule pack.
Source = Literal["loadtide", "rules", "dcgm", "kube-state-metrics", "keda"]
#: Grafana's names of its colours; they follow the light and the dark theme.
Color = Literal["green", "yellow", "orange", "red", "dark-red", "blue", "purple", "text"]


@frozen
class Step:
    """From ``value`` upwards the panel has ``color``; the first step of a panel has None, "from the bottom"."""

    value: float | None
    color: Color


@frozen
class Word:
    """What a number is shown as."""

    text: str
    color: Color


@frozen
class Query:
    """One PromQL expression and how its series are called. ``dashed``: a bound to be compared with, not a reading.
    ``optional``: empty where nobody tells it (an undeclared ceiling, a gateway that reports nothing).

    ``title`` is the column's in a table; ``unit`` and ``words`` are that column's too (elsewhere the panel's count).
    """

    expr: str
    legend: str = "{{namespace}}/{{workload}}"
    dashed: bool = False
    optional: bool = False
    title: str = ""
    unit: str = "short"
    words: Mapping[float, Word] = field(default_factory=dict)


@frozen
class Panel:
    """One panel. ``meaning`` is its description: what it shows and how to read it.

    ``nothing`` is shown where there is no value (never a bare "No data" or NaN). ``empty_when_well`` marks panels that
    are rightly empty as long as nothing is wrong, or held back, or has changed; ``needs_traffic`` those that are empty
    without requests. ``labels`` are a table's label columns.
    """

    title: str
    kind: Kind
    unit: str
    meaning: str
    queries: tuple[Query, ...]
    nothing: str = "No traffic"
    width: int = 12
    height: int = 8
    steps: tuple[Step, ...] = (Step(None, "green"),)
    words: Mapping[float, Word] = field(default_factory=dict)
    minimum: float | None = 0.0
    maximum: float | None = None
    decimals: int | None = None
    stairs: bool = False
    """Drawn as stairs: for what jumps from one whole number to the next."""
    bars: bool = False
    needs: Source = "loadtide"
    needs_traffic: bool = False
    empty_when_well: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    newest_first: str = ""
    """The column by which a table is sorted, greatest first."""


@frozen
class Row:
    """Panels under one heading. A ``folded`` row asks nothing until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    folded: bool = False


@frozen
class Variable:
    """A choice at the top of the dashboard: the values of ``label`` in the series of ``series``, or of the label
    ``before`` in older ones.
    """

    name: str
    label: str
    series: str
    title: str
    before: str = ""


@frozen
class Annotation:
    """Marks over every graph, where ``expr`` has a value."""

    name: str
    expr: str
    title: str
    text: str
    tags: tuple[str, ...]
    color: Color


@frozen
class Dashboard:
    """A whole dashboard. ``uid`` is for ever: links and alerts name it."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel, in reading order."""
        return tuple(panel for row in self.rows for panel in row.panels)
