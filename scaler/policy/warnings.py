"""What a valid policy still leaves unsaid, told to its operator: each text says what follows and what to declare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from scaler.policy.cost_warnings import cost_warnings
from scaler.policy.keys import Path
from scaler.policy.model import Policy
from scaler.policy.prometheus_warnings import prometheus_warnings
from scaler.policy.tls import Tls


def warnings_of(policy: Policy, hidden: Collection[Path] = ()) -> tuple[str, ...]:
    """Every warning about one workload's policy. Values at ``hidden`` paths are not shown: they may be secrets."""

    def said(path: Path, value: float) -> str:
        return "withheld" if path in hidden else f"{value:.12g}"

    texts = [
        *_source(policy),
        *_tls(policy),
        *_gpu(policy),
        *prometheus_warnings(policy, hidden),
        *_wake(policy),
        *_sleep(policy),
        *_card(policy),
        *_mode(policy),
        *_wake_forgotten(policy, said),
        *_ceiling_undeclared(policy),
        *_cap_undeclared(policy),
        *cost_warnings(policy),
    ]
    for path, wanted, limit_path, limit in _unreachable(policy):
        code = "target_unreachable: " if path == ("capacity", "sequences") else ""
        texts.append(
            f"{code}{'.'.join(map(str, path))} ({said(path, wanted)}) is above {'.'.join(map(str, limit_path))} "
            f"({said(limit_path, limit)}) and is never reached; lower the one or raise the other"
        )
    return tuple(texts)


def _source(policy: Policy) -> Iterator[str]:
    if not policy.scrape.declared and policy.prometheus.source is None:
        yield (
            "no source: scrape.urls is empty, so nothing is measured; list the /metrics URL of every replica there, or "
            "declare scrape.dns or scrape.endpoint_slice, or prometheus.source"
        )


def _tls(policy: Policy) -> Iterator[str]:
    if policy.scrape.declared and not policy.scrape.https and policy.scrape.tls != Tls():
        yield (
            "scrape.tls_... is not used, for no page is read by https; write https URLs, or scrape.scheme: https for "
            "the addresses of scrape.dns and scrape.endpoint_slice"
        )


def _gpu(policy: Policy) -> Iterator[str]:
    if policy.gpu.match and not policy.gpu.declared:
        yield (
            "gpu.match is not used, for nothing says where GPU telemetry is; declare gpu.dcgm_urls, or gpu.source "
            "where a Prometheus scrapes the DCGM exporters"
        )


def _wake(policy: Policy) -> Iterator[str]:
    if not policy.can_wake and max(policy.replicas.min, policy.warm.floor) == 0:
        yield (
            "nothing can wake this workload from zero: no wake source is declared, so its floor is 1; declare "
            "gateway.urls where a gateway's metrics show demand, or enable push (push.enabled: true) where one can "
            "report it, or declare replicas.min: 1"
        )


def _sleep(policy: Policy) -> Iterator[str]:
    if policy.idle.sleep_after_seconds is None:
        return
    if not policy.can_wake:
        yield (
            "idle.sleep_after_seconds is not used, for no wake source is declared and a sleeping engine shows no "
            "demand; declare gateway.urls, or push.enabled: true"
        )
    if policy.warm.floor > 0:
        yield (
            f"idle.sleep_after_seconds is not used, for warm.floor ({policy.warm.floor}) keeps awake at every hour; "
            "declare replicas.min instead for processes that may sleep"
        )


def _card(policy: Policy) -> Iterator[str]:
    if policy.gpu_group.declared and policy.batch.max is None:
        yield (
            "gpu_group.name: batch.max is not declared, so nothing says how far this engine can borrow, and it borrows "
            "nothing; declare batch.max (vLLM: the value of --max-num-seqs)"
        )


def _mode(policy: Policy) -> Iterator[str]:
    if policy.mode == "advisory" and policy.target.name is None:
        yield (
            "mode: advisory tells KEDA the replicas that are asked for already, and nothing counts those: declare "
            "target.name (the ScaledObject's scaleTargetRef), or KEDA is told UNAVAILABLE for as long as this lasts"
        )


def _wake_forgotten(policy: Policy, said: Callable[[Path, float], str]) -> Iterator[str]:
    ttl, load = policy.push.wake_ttl_seconds, policy.replicas.load_timeout_seconds
    if policy.push.enabled and ttl <= load:
        yield (
            f"push.wake_ttl_seconds ({said(('push', 'wake_ttl_seconds'), ttl)}) is not above "
            f"replicas.load_timeout_seconds ({said(('replicas', 'load_timeout_seconds'), load)}), so a wake whose load "
            "fails is not tried again; raise the one or lower the other"
        )


def _ceiling_undeclared(policy: Policy) -> Iterator[str]:
    if policy.replicas.max is None:
        yield (
            "replicas.max is not declared, so there is no ceiling; declare replicas.max equal to the ScaledObject's "
            "maxReplicaCount"
        )


def _cap_undeclared(policy: Policy) -> Iterator[str]:
    if policy.batch.max is None and policy.strategy == "adaptive":
        yield (
            "batch.max is not declared: the engine's cap is told by no metric; declare batch.max "
            "(vLLM: the value of --max-num-seqs)"
        )


def _unreachable(policy: Policy) -> Iterator[tuple[Path, float, Path, float]]:
    """(path, value, limit's path, limit) of every value above the limit that cuts it."""
    windows, rows, prices = policy.warm.windows, policy.jump.rows, policy.price.windows
    wanted: list[tuple[Path, float | None, Path, float | None]] = [
        (("warm", "floor"), policy.warm.floor, ("replicas", "max"), policy.replicas.max),
        (
            ("warm", "windows"),
            max((at.replicas for at in windows), default=None),
            ("replicas", "max"),
            policy.replicas.max,
        ),
        (
            ("price", "windows"),
            max((at.floor for at in prices), default=None),
            ("replicas", "max"),
            policy.replicas.max,
        ),
        (
            ("price", "windows"),
            max((at.ceiling for at in prices if at.ceiling), default=None),
            ("replicas", "max"),
            policy.replicas.max,
        ),
        (("replicas", "activation"), policy.replicas.activation, ("replicas", "max"), policy.replicas.max),
        (("jump", "rows"), max((at.replicas for at in rows), default=None), ("replicas", "max"), policy.replicas.max),
        (("jump", "rows"), max((at.batch for at in rows), default=None), ("batch", "max"), policy.batch.max),
        (("capacity", "sequences"), policy.capacity.sequences, ("batch", "max"), policy.batch.max),
    ]
    for path, value, limit_path, limit in wanted:
        if value is not None and limit is not None and value > limit:
            yield path, value, limit_path, limit
