"""One workload's replicas found in a round: the engine samples of its pods, and what is to be said of those missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from scaler.policy.prometheus import Prometheus
from scaler.policy.promql import quoted
from scaler.signals.coverage import FRESH_INTERVALS
from scaler.signals.exposition import Sample
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import PROCESS_START, Preset
from scaler.signals.prometheus.rounds import Failed, Round
from scaler.signals.prometheus.targets import Place, Target
from scaler.signals.reading import engine_sample
from scaler.value import frozen

#: So many values of a label are told to a person who wrote another.
_VALUES_TOLD = 5


@frozen
class Bound:
    """What binds a workload to its series: its engine's preset, its policy's ``prometheus`` group, the source's name.

    ``model_name`` is the policy's own filter. ``hold_seconds``: for how long a replica that falls silent is waited for.
    """

    source: str
    preset: Preset
    prometheus: Prometheus
    model_name: str | None
    hold_seconds: float

    @property
    def fresh_seconds(self) -> float:
        """A sample older than this does not show the present."""
        return FRESH_INTERVALS * self.prometheus.scrape_interval_seconds


@frozen
class Replica:
    """A replica that was found: the targets that are it (several where its pod has several engine processes).

    ``unread`` are those of its processes, by instance, that it had and that cannot be read now: each one's place, and
    when it was scraped last (monotonic seconds).
    """

    places: tuple[Place, ...]
    targets: tuple[Target, ...]
    sample: EngineSample
    unread: Mapping[str, tuple[Place, float]] = field(default_factory=dict)


@frozen
class Found:
    """A workload's part of a round. ``endpoints``, ``lost`` and ``absent`` are as in an observation; ``replicas`` is
    what the next round is compared with. ``answered``: whether the source said anything at all, if only that it has
    none of the workload's series. ``dropped_series``: how many series were left out, of replicas that are gone.
    """

    endpoints: Mapping[str, EngineSample | ReadFailure] = field(default_factory=dict)
    lost: str | None = None
    absent: str | None = None
    replicas: Mapping[str, Replica] = field(default_factory=dict)
    answered: bool = True
    dropped_series: int = 0


def find(
    said: Round | Failed,
    bound: Bound,
    before: Mapping[str, Replica],
    now: float,
    existing: frozenset[str] | None = None,
) -> Found:
    """The workload's replicas as of ``now`` (monotonic seconds). ``before`` are those found last; ``existing`` the pods
    that the target has, where that is known.

    A replica that is missing is not simply gone, for a hanging engine looks the same. It is gone if the server no
    longer knows its target, or where that cannot be told when its last sample has ceased to be fresh. One that the
    server fails to scrape stays, unread: the sum without it is not smaller, it is incomplete. So is that of a replica
    of which one process cannot be scraped: its others may raise what is known, and not lower it. Where the pods that
    exist are known a replica that is none of them is gone, whatever the server still holds of it.
    """
    if isinstance(said, Failed):
        silent = {name: ReadFailure(said.at, said.reason, said.seconds) for name in before}
        return Found(silent, lost=said.reason, replicas=before, answered=False)
    present = _present(said, bound, before, now)
    no_pods = _no_pods(present, before, existing)
    gone = [name for name in no_pods if name in present]
    ghosts = [present.pop(name) for name in gone]
    before = {name: replica for name, replica in before.items() if name not in no_pods}
    fresh = {
        name: replace(replica, unread=_unread(said, bound, replica, before[name], now)) if name in before else replica
        for name, replica in present.items()
        if now - replica.sample.at <= bound.fresh_seconds
    }
    endpoints: dict[str, EngineSample | ReadFailure] = {name: replica.sample for name, replica in fresh.items()}
    replicas = dict(fresh)
    too_old = []
    for name in sorted({*present, *before} - {*fresh}):
        replica = present.get(name) or before[name]
        reason = _missing(said, bound, name, replica, present, now, any_fresh=bool(fresh), seen=name in before)
        if reason is None:
            if name in present:
                too_old.append(name)
                ghosts.append(present[name])
            continue
        endpoints[name] = ReadFailure(now, reason, said.seconds)
        replicas[name] = replica
    told = []
    if too_old:
        told.append(
            f"series older than {bound.fresh_seconds:g} s left out, of pods that are gone: {', '.join(too_old)}"
        )
    if gone:
        told.append(f"series left out, of pods that the target no longer has: {', '.join(gone)}")
    if told and fresh:
        first = next(iter(fresh))
        endpoints[first] = replace(fresh[first].sample, warnings=(*fresh[first].sample.warnings, *told))
    found = Found(endpoints, replicas=replicas, dropped_series=sum(map(_series, ghosts)))
    if said.partial:
        return replace(found, lost=f"source {bound.source}: partial data: {said.partial}")
    if halves := [
        f"{', '.join(sorted(replica.unread))} of {name}" for name, replica in fresh.items() if replica.unread
    ]:
        return replace(found, lost=f"source {bound.source}: cannot scrape {'; '.join(halves)}")
    if present or any(_fails(said, replica) for replica in replicas.values()):
        return found
    if bound.prometheus.empty_means == "zero":
        return Found(absent="no series, and prometheus.empty_means is zero")
    return replace(found, lost=_nothing_bound(said, bound))


def _no_pods(
    present: Mapping[str, Replica], before: Mapping[str, Replica], existing: frozenset[str] | None
) -> tuple[str, ...]:
    """The replicas that are no pods. Where nothing found now is one, pods are called otherwise: nothing is told."""
    if existing is None or existing.isdisjoint(present):
        return ()
    return tuple(sorted({*present, *before} - existing))


def _series(replica: Replica) -> int:
    return sum(len(samples) for target in replica.targets for samples in target.samples.values())


def _fails(said: Round, replica: Replica) -> bool:
    """Whether the server knows a target of the replica and cannot scrape it."""
    return any(place in said.failing for place in replica.places)


def _unread(
    said: Round, bound: Bound, replica: Replica, known: Replica, now: float
) -> Mapping[str, tuple[Place, float]]:
    """The processes of ``known`` that ``replica``, the same one now, lacks, and that are not simply gone: as a whole
    replica is judged. By instance, for of two copies of one target now this and now that is the newer.
    """
    here = {target.labels.get("instance", "") for target in replica.targets}
    then = {target.labels.get("instance", ""): (place, target.at) for place, target in _scraped(known)}
    return {
        instance: (place, at)
        for instance, (place, at) in {**known.unread, **then}.items()
        if instance not in here
        and (
            place in said.failing
            or (place in said.targets and now - at <= bound.hold_seconds)
            or (not said.tells_failing and now - at <= bound.fresh_seconds)
        )
    }


def _scraped(replica: Replica) -> Iterable[tuple[Place, Target]]:
    return zip(replica.places, replica.targets, strict=True)


def _missing(
    said: Round,
    bound: Bound,
    name: str,
    replica: Replica,
    present: Mapping[str, Replica],
    now: float,
    *,
    any_fresh: bool,
    seen: bool,
) -> str | None:
    """Why a replica without a fresh sample is still waited for; None where it is gone."""
    age = now - replica.sample.at
    if _fails(said, replica):
        return f"source {bound.source}: cannot scrape it (up is 0)"
    if name in present:
        waited_for = not any_fresh or (seen and age <= bound.hold_seconds)
        return f"source {bound.source}: its last sample is {age:.0f} s old" if waited_for else None
    if not present:
        waited_for = age <= bound.hold_seconds
    else:
        waited_for = bool(said.partial) or (not said.tells_failing and age <= bound.fresh_seconds)
    return f"source {bound.source}: has no series of it any more" if waited_for else None


def _present(said: Round, bound: Bound, before: Mapping[str, Replica], now: float) -> dict[str, Replica]:
    """The replicas with a series in the answer, by endpoint name; of copies the one that was scraped last."""
    newest: dict[tuple[str, str], tuple[float, Place]] = {}
    for place in said.bound(bound.prometheus.match):
        target = said.targets[place]
        process = (_endpoint(target, bound.prometheus), target.labels.get("instance", ""))
        if process not in newest or newest[process][0] < target.unix:
            newest[process] = (target.unix, place)
    by_endpoint: dict[str, list[Place]] = {}
    for (endpoint, _), (_, place) in sorted(newest.items()):
        by_endpoint.setdefault(endpoint, []).append(place)

    found = {}
    for endpoint, places in by_endpoint.items():
        targets = [said.targets[place] for place in places]
        if any(now - target.at <= bound.fresh_seconds for target in targets):  # a process that ended leaves its series
            kept = [pair for pair in zip(places, targets, strict=True) if now - pair[1].at <= bound.fresh_seconds]
            places, targets = [place for place, _ in kept], [target for _, target in kept]
        known = before.get(endpoint)
        if known is not None and known.targets == tuple(targets):
            found[endpoint] = known
        elif (sample := _sample(targets, bound, said.seconds)) is not None:
            found[endpoint] = Replica(tuple(places), tuple(targets), sample)
    return found


def _endpoint(target: Target, prometheus: Prometheus) -> str:
    """The replica's name: its pod's, and where the workload is not bound to one namespace or cluster, theirs too."""
    labels = target.labels
    replica = next((labels[key] for key in (prometheus.replica_label, "exported_pod", "instance") if key in labels), "")
    where = [labels[key] for key in ("cluster", "namespace") if key in labels and key not in prometheus.match]
    return "/".join([*where, replica])


def _sample(targets: Sequence[Target], bound: Bound, seconds: float) -> EngineSample | None:
    """One replica's targets as one sample; None where nothing of the preset's engine is among their series."""
    match = bound.prometheus.match
    samples: dict[str, list[Sample]] = {}
    spellings: dict[str, str] = {}
    for target in targets:
        # The target's own labels are bound already; the engine's (the model) tell whose each series is. One that has
        # no such label is about the whole process, and belongs to everybody.
        own = {label: value for label, value in match.items() if label not in target.labels}
        for name, group in target.samples.items():
            chosen = _theirs(group, own) if own else group
            if chosen and (name in bound.preset.wanted):
                samples.setdefault(name, []).extend(chosen)
                spellings.setdefault(name, target.spellings[name])
    starts = {sample.value for sample in samples.get(PROCESS_START, ())}
    if samples.keys() <= {PROCESS_START}:
        return None
    if len(starts) > 1:
        # Of several processes one may restart alone; a single start time would make all of them look restarted.
        del samples[PROCESS_START]
    return engine_sample(
        samples,
        spellings,
        bound.preset,
        min(target.at for target in targets),
        model_name=bound.model_name,
        seconds=seconds,
    )


def _theirs(group: Iterable[Sample], own: Mapping[str, str]) -> list[Sample]:
    return [
        sample
        for sample in group
        if all(sample.labels.values.get(label, value) == value for label, value in own.items())
    ]


def _nothing_bound(said: Round, bound: Bound) -> str:
    """Why the workload has no series, with what a person may write instead."""
    match = bound.prometheus.match
    wanted = ", ".join(f"{label}={quoted(value)}" for label, value in match.items())
    told = f"source {bound.source}: no series with {wanted}"
    if not said.present:
        return f"{told}; it has none of engine {bound.preset.name} at all"
    for label, value in match.items():
        if not said.bound({label: value}):
            values = said.values_of(label)
            there = ", ".join(map(quoted, values[:_VALUES_TOLD])) + (", ..." if len(values) > _VALUES_TOLD else "")
            return f"{told}; values of {label} that are there: {there or 'none'}"
    return f"{told}; each of these values is there, but not together"
