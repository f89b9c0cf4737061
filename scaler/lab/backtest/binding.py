"""Which series of the server are the workload's: by the policy's labels, else by the name its pods have.

A ScaledObject's name says nothing by itself about series. Where no labels are given the workload is taken to be the
pods that are named after it, ``NAME-HASH-RANDOM`` of a Deployment or ``NAME-0`` of a StatefulSet; else the series that
have its name in some label; else the namespace's only workload of that engine. What was chosen, and why, is told.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from scaler.lab.backtest.asking import Ask, vector
from scaler.lab.backtest.span import Span, shown_time
from scaler.policy.model import Policy, ScaleTarget
from scaler.policy.promql import any_of, quoted
from scaler.signals.preset import Preset, known_engines, load_preset
from scaler.signals.prometheus.plan import presence_names, spellings
from scaler.value import frozen

#: The letters of what a ReplicaSet's name and its pods' names end in (k8s.io/apimachinery ``util/rand``).
_LETTERS: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_OF_DEPLOYMENT: Final = re.compile(rf"(.+)-{_LETTERS}{{1,10}}-{_LETTERS}{{5}}", re.ASCII)
_OF_STATEFULSET: Final = re.compile(r"(.+)-\d+", re.ASCII)
#: Labels in which the series of one workload differ, or that say where it is rather than what.
_NOT_A_NAME: Final = frozenset({"__name__", "namespace", "exported_namespace", "cluster", "pod", "exported_pod",
                                "instance", "engine", "endpoint"})  # fmt: skip
#: So many names are listed to a person who wrote another.
_TOLD: Final = 5


class NoSuchWorkloadError(Exception):
    """The server has no series that could be the workload's; the text says what it has, and what to write."""


@frozen
class Binding:
    """``match``: labels that each series has. ``pods``: a pattern that the pods' names match whole, None: any.
    ``target``: whose replica counts kube-state-metrics tells, None: not known. ``said``: how it was bound, in words.
    """

    match: Mapping[str, str]
    pods: str | None
    target: ScaleTarget | None
    said: str

    @property
    def narrow(self) -> str:
        """As matchers to go on a selector with: ``,namespace="chat",pod=~"..."``."""
        return _matchers(self.match) + ("" if self.pods is None else f",pod=~{quoted(self.pods)}")


def owner_of(pod: str) -> ScaleTarget | None:
    """The Deployment or StatefulSet that names its pods like this one."""
    for pattern, kind in ((_OF_DEPLOYMENT, "deployment"), (_OF_STATEFULSET, "statefulset")):
        if (found := pattern.fullmatch(pod)) is not None and re.fullmatch(r"[a-z0-9][-a-z0-9.]*", found[1]):
            return ScaleTarget.model_validate({"kind": kind, "name": found[1]})
    return None


async def bind(ask: Ask, preset: Preset, policy: Policy, workload: str, span: Span) -> Binding:
    """Find the workload. Raises :class:`NoSuchWorkloadError`, :class:`~scaler.lab.backtest.asking.AskError`."""
    namespace, _, name = workload.partition("/")
    declared = dict(policy.prometheus.match)
    if declared:
        rows = await _present(ask, preset, _matchers(declared), span)
        if not rows:
            raise NoSuchWorkloadError(await _why_none(ask, preset, declared, span))
        said = "bound by " + ", ".join(f"{label}={quoted(value)}" for label, value in declared.items())
        return Binding(declared, None, _target(policy, rows), said)
    place = {"namespace": namespace}
    rows = await _present(ask, preset, _matchers(place), span)
    if not rows:
        raise NoSuchWorkloadError(await _why_none(ask, preset, place, span))
    return _by_name(preset, policy, namespace, name, rows)


def _by_name(preset: Preset, policy: Policy, namespace: str, name: str, rows: list[Mapping[str, str]]) -> Binding:
    place = {"namespace": namespace}
    owners = {row.get("pod", ""): owner_of(row.get("pod", "")) for row in rows}
    wanted = policy.target.name or name
    if any(owner is not None and owner.name == wanted for owner in owners.values()):
        return _named(policy, namespace, wanted, owners, f"bound by its pods' names, {wanted}-...")
    for label in sorted({label for row in rows for label in row} - _NOT_A_NAME):
        chosen = [row for row in rows if row.get(label) == name]
        if chosen:
            said = f'bound by {label}="{name}" in namespace {namespace}'
            return Binding({**place, label: name}, None, _target(policy, chosen), said)
    names = {owner.name for owner in owners.values() if owner is not None and owner.name}
    if len(names) == 1 and None not in owners.values():
        (only,) = names
        assert only is not None
        said = f"no pod is named {name}-...; taken is the only {preset.name} workload of {namespace}, pods {only}-..."
        return _named(policy, namespace, only, owners, said)
    listed = [f"--match {label}={quoted(value)} ({pods})" for (label, value), pods in _groups(preset, rows).items()]
    raise NoSuchWorkloadError(
        f"no {preset.name} workload of namespace {namespace} is called {name}: neither pods named {name}-..., nor a "
        f"label with that value. Name one of those that are there with --match namespace={namespace} and "
        + ", or ".join(listed[:_TOLD])
    )


def _named(policy: Policy, namespace: str, name: str, owners: Mapping[str, ScaleTarget | None], said: str) -> Binding:
    kind = next(owner.kind for owner in owners.values() if owner is not None and owner.name == name)
    escaped = re.escape(name)
    pods = rf"{escaped}-\d+" if kind == "statefulset" else f"{escaped}-{_LETTERS}{{1,10}}-{_LETTERS}{{5}}"
    target = policy.target if policy.target.name else ScaleTarget(kind=kind, name=name)
    return Binding({"namespace": namespace}, pods, target, said)


def _target(policy: Policy, rows: Iterable[Mapping[str, str]]) -> ScaleTarget | None:
    if policy.target.name:
        return policy.target
    owners = {owner_of(row.get("pod", "")) for row in rows}
    return owners.pop() if len(owners) == 1 else None


def _groups(preset: Preset, rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], str]:
    """The workloads there seem to be: a label that tells them apart and its value, to their pods in words."""
    pods: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        label = next((each for each in (preset.model_label, "job", "service") if each and row.get(each)), "instance")
        pods.setdefault((label, row.get(label, "")), set()).add(row.get("pod") or row.get("instance", ""))
    return {
        group: f"{len(names)} replicas, {sorted(names)[0]}" if len(names) > 1 else sorted(names)[0]
        for group, names in sorted(pods.items())
    }


async def _present(ask: Ask, preset: Preset, narrow: str, span: Span) -> list[Mapping[str, str]]:
    """The label sets that any series telling presence had in the span."""
    names = [spelled for name in presence_names(preset) for spelled in spellings(name)]
    seconds = max(1, round(span.seconds))
    # One name at a time: two spellings of one series would collide where a server drops the name.
    query = " or ".join(f'last_over_time({{__name__="{name}"{narrow}}}[{seconds}s])' for name in dict.fromkeys(names))
    return [row.labels for row in (await vector(ask, query, span.until)).rows]


async def _why_none(ask: Ask, preset: Preset, match: Mapping[str, str], span: Span) -> str:
    wanted = ", ".join(f"{label}={quoted(value)}" for label, value in match.items())
    between = f"between {shown_time(span.since)} and {shown_time(span.until)} UTC"
    times = [span.until, (span.since + span.until) / 2, span.since + 1]
    held = [bool((await vector(ask, "count(up)", unix)).rows) for unix in times]
    if not any(held):
        return (
            f"the server holds nothing at all {between}: not one target's `up`. Is the range within its retention, "
            "and is it the right server (with Mimir or Thanos: the right tenant, --header 'X-Scope-OrgID: ...')?"
        )
    told = f"no series of engine {preset.name} with {wanted} {between}"
    elsewhere = await _values(ask, preset, times, *match)
    for label, value in match.items():
        there = elsewhere.get(label, [])
        if there and value not in there:
            close = difflib.get_close_matches(value, there, n=_TOLD, cutoff=0.0)
            return f"{told}; values of {label} that are there: {', '.join(map(quoted, close))}"
    if any(elsewhere.values()):
        return f"{told}; each of these values is there, but not together"
    others = [name for name in known_engines() if name != preset.name and await _any(ask, load_preset(name), times)]
    if others:
        return f"{told}, nor any other of that engine; it has {', '.join(others)}: name it with --engine"
    return f"{told}, nor of any engine that is known; loadtide probe URL says what a server holds"


async def _values(ask: Ask, preset: Preset, times: Iterable[float], *labels: str) -> dict[str, list[str]]:
    """The values that each label has on any of the engine's series at any of these times."""
    series = " or ".join(f'{{__name__="{each}"}}' for name in presence_names(preset) for each in spellings(name))
    found: dict[str, set[str]] = {label: set() for label in labels}
    for unix in times:
        for label in labels:
            rows = (await vector(ask, f"count by ({label}) ({series})", unix)).rows
            found[label].update(row.labels[label] for row in rows if row.labels.get(label))
    return {label: sorted(values) for label, values in found.items()}


async def _any(ask: Ask, preset: Preset, times: Iterable[float]) -> bool:
    series = " or ".join(f'{{__name__="{each}"}}' for name in presence_names(preset) for each in spellings(name))
    return any([bool((await vector(ask, f"count({series})", unix)).rows) for unix in times])


def _matchers(match: Mapping[str, str]) -> str:
    return "".join(f",{label}{any_of([value])}" for label, value in sorted(match.items()))
