"""The past replayed: at each tick what a scaler that reads this Prometheus would have read, by the code of ``serve``.

Nothing later than the tick is looked at. A round of production is put together from each target's newest scrape so far;
which replicas are found in it, which are waited for and which are gone is :func:`scaler.signals.prometheus.replicas
.find`, and what that means :func:`scaler.signals.window.fold`.

Three things a live server tells by its staleness marks are told here by ages: a target that failed its last scrape has
an ``up`` of 0, one that is gone has no sample in the last intervals, and where nothing of anybody was recorded for as
long the server itself was away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Final

from scaler.lab.backtest.columns import Columns, columns_of
from scaler.lab.backtest.matrix import RawSeries
from scaler.lab.backtest.reading import Part
from scaler.policy.model import ScaleTarget
from scaler.signals.coverage import FRESH_INTERVALS
from scaler.signals.kube_state import read_rows, replica_counts
from scaler.signals.model import Known
from scaler.signals.observation import Observation, Queried, ReplicaCounts
from scaler.signals.prometheus.answer import Answer, Row
from scaler.signals.prometheus.plan import Wanted, presence_names, want
from scaler.signals.prometheus.queried import judge
from scaler.signals.prometheus.replicas import Bound, Replica, find
from scaler.signals.prometheus.rounds import Failed, Round
from scaler.signals.prometheus.targets import Place, Places, Target
from scaler.value import frozen

#: A target without a sample for so many intervals is gone. Where it has an ``up``, which is written whether the scrape
#: succeeded or not, the next one being late is enough.
GONE_INTERVALS, GONE_INTERVALS_WITH_UP = 2.5, 1.5
#: A load that took longer is no load but a replica that hung.
LONGEST_LOAD_SECONDS: Final = 7200.0
#: A target that has been silent for so long is forgotten.
FORGET_SECONDS: Final = 900.0
_NOBODY: Final = "the server recorded nothing of anybody"


@frozen
class Seen:
    """One tick of the past. ``recorded``: whether the server was there; ``replicas``: those that held GPUs as far as
    engines tell (read, or known and not to be scraped); ``observation``: what a tick of ``serve`` would have had.
    """

    unix: float
    observation: Observation
    recorded: bool
    replicas: int


@dataclass(slots=True)
class _Newest:
    """The newest sample so far of one series of numbers, over the parts."""

    labels: Mapping[str, str]
    at: float = float("-inf")
    value: float = 0.0


@dataclass(slots=True)
class _Cursor:
    columns: Columns
    index: int = -1


@dataclass(slots=True)
class Replay:
    """Keeps what one part hands to the next. ``interval_seconds`` is how often the server scraped the engines.

    ``loads``: seconds from a replica's creation (where kube-state-metrics tells it; else its process' start) to its
    first sample, of those that came up in the span; ``created_told`` whether any was told by its creation.
    """

    bound: Bound
    target: ScaleTarget | None
    namespace: str
    interval_seconds: float
    begin: float
    loads: list[float] = field(default_factory=list)
    created_told: bool = False
    _wanted: Wanted = field(init=False)
    _places: Places = field(init=False)
    _targets: dict[Place, Target] = field(default_factory=dict)
    _present: dict[Place, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    _found: Mapping[str, Replica] = field(default_factory=dict)
    _met: set[str] = field(default_factory=set)
    _up: dict[Place, _Newest] = field(default_factory=dict)
    _counts: dict[tuple[tuple[str, str], ...], _Newest] = field(default_factory=dict)
    _pulse_at: float = float("-inf")
    _recorded: bool = False
    _queried: dict[str, Known[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanted = want([(self.bound.preset, self.bound.prometheus)])
        self._places = Places(self._wanted)

    def ticks(self, part: Part, tick_seconds: float) -> Iterator[Seen]:
        """The ticks of the next part."""
        oldest = part.span.since - FORGET_SECONDS
        self._up = {place: newest for place, newest in self._up.items() if newest.at >= oldest}
        self._counts = {labels: newest for labels, newest in self._counts.items() if newest.at >= oldest}
        columns = columns_of(part.engines, self._places, presence_names(self.bound.preset))
        cursors = {place: _Cursor(found) for place, found in columns.items()}
        ups = [(self._up.setdefault(self._places.place(each.labels), _Newest(each.labels)), _Walk(each))
               for each in part.up]  # fmt: skip
        counts = [
            (self._counts.setdefault(tuple(sorted(each.labels.items())), _Newest(each.labels)), _Walk(each))
            for each in part.counts
        ]
        pulses = [(_Newest(each.labels, self._pulse_at), _Walk(each)) for each in part.pulse]
        queried = {signal: _by_tick(series, tick_seconds) for signal, series in part.queried.items()}
        for now in part.span.ticks(tick_seconds):
            for place, cursor in cursors.items():
                self._advance(place, cursor, now)
            for newest, walk in (*ups, *counts, *pulses):
                walk.advance(newest, now)
            self._pulse_at = max([self._pulse_at, *(newest.at for newest, _ in pulses)])
            yield self._seen(now, part, queried)

    def _advance(self, place: Place, cursor: _Cursor, now: float) -> None:
        times, index = cursor.columns.times, cursor.index
        while index + 1 < len(times) and times[index + 1] <= now:
            index += 1
        if index != cursor.index:
            cursor.index = index
            self._targets[place] = cursor.columns.target(index)
            self._present[place] = cursor.columns.present

    def _seen(self, now: float, part: Part, queried: Mapping[str, Mapping[float, list[Row]]]) -> Seen:
        gone, gone_with_up = (each * self.interval_seconds for each in (GONE_INTERVALS, GONE_INTERVALS_WITH_UP))
        for place in [place for place, target in self._targets.items() if now - target.unix > FORGET_SECONDS]:
            del self._targets[place], self._present[place]
        ups = {place: up for place, up in self._up.items() if now - up.at <= gone_with_up}
        failing = frozenset(place for place, up in ups.items() if up.value == 0)
        targets = {
            place: target
            for place, target in self._targets.items()
            if now - target.unix <= (gone_with_up if place in self._up else gone)
            and not (place in failing and ups[place].at > target.unix)
        }
        last = max([self._pulse_at, *(up.at for up in ups.values()), *(each.unix for each in targets.values())])
        counts = self._replica_counts(now)
        fresh = FRESH_INTERVALS * self.interval_seconds
        recorded = now - last <= fresh or (counts is not None and counts.asked is not None and now - counts.at <= fresh)
        said: Round | Failed = Failed(now, now, 0.0, _NOBODY)
        if recorded:
            present = tuple((labels, place) for place in targets for labels in self._present[place])
            told = bool(ups) or now - self._pulse_at <= fresh
            said = Round(self._wanted, now, 0.0, 0, targets, present, failing, told, part.partial)
        found = find(said, self.bound, self._found, now)
        self._found = found.replicas
        self._meet(now, part, told=self._recorded)
        self._recorded = recorded
        observation = Observation(
            now,
            found.endpoints,
            absent=found.absent,
            lost=found.lost,
            replicas=counts,
            source=f"prometheus {self.bound.source}",
            answered=found.answered,
            interval_seconds=self.interval_seconds,
            queried=self._answers(now, queried),
        )
        return Seen(now, observation, recorded, len(found.endpoints))

    def _meet(self, now: float, part: Part, *, told: bool) -> None:
        """Learn how long replicas take that come up under our eyes; after a gap (``told`` False) nobody saw when."""
        for name, replica in self._found.items():
            if name in self._met:
                continue
            self._met.add(name)
            pod = replica.targets[0].labels.get("pod", "")
            created, started = part.created.get(pod), replica.sample.process_start_seconds
            since = created if created is not None else started
            if told and since is not None and since > self.begin and 0 < now - since < LONGEST_LOAD_SECONDS:
                self.loads.append(replica.sample.at - since)
                self.created_told = self.created_told or created is not None

    def _replica_counts(self, now: float) -> ReplicaCounts | None:
        if self.target is None:
            return None
        alive = [newest for newest in self._counts.values() if now - newest.at <= GONE_INTERVALS * 60.0]
        state = read_rows((newest.labels, newest.value) for newest in alive)
        asked = [newest.at for newest in alive if "unschedulable" not in newest.labels.get("__name__", "")]
        return replica_counts(state, self.namespace, self.target, max(asked, default=now))

    def _answers(self, now: float, queried: Mapping[str, Mapping[float, list[Row]]]) -> dict[str, Queried]:
        answers = {}
        for signal, by_time in queried.items():
            answer = Answer(by_time.get(now, []))
            if not answer.rows and signal not in self.bound.prometheus.queries:
                continue  # nobody promised that there is one
            held = self._queried.get(signal)
            answers[signal] = judge(answer, self.bound.prometheus, held, now, self.bound.hold_seconds)
            if isinstance(good := answers[signal].signal, Known):
                self._queried[signal] = good
        return answers


class _Walk:
    """Moves along one series."""

    def __init__(self, series: RawSeries) -> None:
        self._series = series
        self._next = 0

    def advance(self, newest: _Newest, now: float) -> None:
        """Take over the newest sample up to ``now``."""
        times, at = self._series.times, self._next
        while at < len(times) and times[at] <= now:
            at += 1
        if at != self._next:
            self._next, newest.at, newest.value = at, times[at - 1], self._series.values[at - 1]


def _by_tick(series: Sequence[RawSeries], tick_seconds: float) -> dict[float, list[Row]]:
    """The rows of each tick: of each series what was evaluated last at it or since the one before."""
    rows: dict[float, list[Row]] = {}
    for each in series:
        last = {ceil(time / tick_seconds) * tick_seconds: index for index, time in enumerate(each.times)}
        for tick, index in last.items():
            rows.setdefault(tick, []).append(Row(each.labels, each.values[index]))
    return rows


def scrape_interval_seconds(part: Part, presence: Sequence[str]) -> float | None:
    """How often the engines were scraped in a part: the median distance of samples; None without two of one series."""
    names = frozenset(presence)
    gaps = [
        later - earlier
        for each in part.engines
        if each.labels.get("__name__", "").replace(":", "_") in names
        for earlier, later in zip(each.times, each.times[1:], strict=False)
    ]
    return median(gaps) if gaps else None
