"""Rules about an engine's pods: how they end, and what they run with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from scaler.check.edit import Insert, Write
from scaler.check.rule import Hit, Rule, Severity
from scaler.check.subjects import EnginePods, ScaledObject

DEFAULT_GRACE_SECONDS = 30
#: What a correction adds to the time that ending takes, seconds: the process has to exit as well.
GRACE_TO_SPARE_SECONDS = 15
#: What vLLM needs to free its GPU, and to have routes for that.
_SLEEP_FLAG, _DEV_MODE = "--enable-sleep-mode", "VLLM_SERVER_DEV_MODE"
_SLEEP = re.compile(r"\bsleep\s+(\d+)")


def grace_period(pods: EnginePods) -> Iterator[Hit]:
    path = (*pods.spec_path, "terminationGracePeriodSeconds")
    said = pods.manifest.whole(*path)
    grace = DEFAULT_GRACE_SECONDS if said is None else said
    sleep, drain = _pre_stop_seconds(pods), _drain_seconds(pods) or 0
    if grace > sleep + drain:
        return
    enough = sleep + drain + GRACE_TO_SPARE_SECONDS
    fix = f"terminationGracePeriodSeconds: {enough}"
    yield Hit(
        path,
        f"the kubelet kills the pod after {grace} s"
        + (" (the default)" if said is None else "")
        + f", while preStop ({sleep} s) and --shutdown-timeout ({drain} s) may take {sleep + drain} s: streams are cut",
        fix,
        (Insert(pods.spec_path, fix) if said is None else Write(path, str(enough)),),
    )


def streams_cut(pods: EnginePods) -> Iterator[Hit]:
    if pods.is_vllm and not _drain_seconds(pods):
        part = "args" if pods.container.get("args") else "command"
        yield Hit(
            (*pods.path, part),
            "vLLM aborts running requests at SIGTERM unless --shutdown-timeout gives them time",
            "--shutdown-timeout=120   # vLLM 0.18 or newer; as long as your longest answers",
        )


def pre_stop(pods: EnginePods) -> Iterator[Hit]:
    lifecycle = pods.container.get("lifecycle")
    if isinstance(lifecycle, Mapping) and lifecycle.get("preStop"):
        return
    block = 'preStop:\n  exec:\n    command: [sleep, "15"]'
    inside = bool(lifecycle)
    whole = block if inside else "lifecycle:\n" + "\n".join(f"  {line}" for line in block.split("\n"))
    yield Hit(
        (*pods.path, "lifecycle"),
        "without a preStop hook requests still come while the engine already shuts down: load balancers learn late",
        whole,
        (Insert((*pods.path, "lifecycle") if inside else pods.path, whole),),
    )


def batch_cap(scaled: ScaledObject) -> Iterator[Hit]:
    pods, policy = scaled.target_pods, scaled.policy
    if pods is None or policy is None or policy.batch.max is None:
        return
    cap = pods.flag("--max-num-seqs")
    if cap is not None and cap.isdecimal() and int(cap) != policy.batch.max:
        key = (*scaled.ours[0].path, "metadata", "batchMax")
        yield Hit(
            key,
            f"the policy's batch.max is {policy.batch.max} and the engine runs with --max-num-seqs {cap}: the engine's "
            "number holds, and no metric tells it",
            f'batchMax: "{cap}"   # in the metadata, or batch.max in the policy file',
            (Write(key, f'"{cap}"'),) if scaled.manifest.get(*key) is not None else (),
        )


def cannot_sleep(scaled: ScaledObject) -> Iterator[Hit]:
    pods, policy = scaled.target_pods, scaled.policy
    if pods is None or policy is None or policy.idle.sleep_after_seconds is None or not pods.is_vllm:
        return
    has_flag, has_routes = pods.flag(_SLEEP_FLAG) is not None, pods.variable(_DEV_MODE) not in ("", "0")
    missing = ([] if has_flag else [_SLEEP_FLAG]) + ([] if has_routes else [f"{_DEV_MODE}=1"])
    if missing:
        yield Hit(
            (*scaled.ours[0].path, "metadata", "idleSleepAfterSeconds"),
            f"the policy's idle.sleep_after_seconds puts engines to sleep, and this vLLM is started without "
            f"{' and '.join(missing)}: it stays on its GPU until it is taken to zero",
            f'args: [{_SLEEP_FLAG}]\nenv: [{{name: {_DEV_MODE}, value: "1"}}]   # of the engine\'s container',
        )


def _pre_stop_seconds(pods: EnginePods) -> int:
    """How long the preStop hook sleeps; 0 where it does not, or does something of unknown length."""
    hook = pods.manifest.mapping(*pods.path, "lifecycle", "preStop")
    seconds = pods.manifest.whole(*pods.path, "lifecycle", "preStop", "sleep", "seconds")
    if seconds is not None:
        return seconds
    execution = hook.get("exec")
    command = execution.get("command") if isinstance(execution, Mapping) else None
    said = _SLEEP.search(" ".join(map(str, command))) if isinstance(command, list) else None
    return int(said[1]) if said else 0


def _drain_seconds(pods: EnginePods) -> int | None:
    """The engine's own time for running requests; None where it is not said."""
    said = pods.flag("--shutdown-timeout")
    return int(said) if said is not None and said.isdecimal() else None


POD_RULES = (
    Rule(
        "grace-period",
        Severity.ERROR,
        "terminationGracePeriodSeconds is not above preStop plus --shutdown-timeout",
        "The kubelet kills the engine while it still drains: KEDA goes from any count to zero in one step, and running "
        "streams live on this time alone.",
        "terminationGracePeriodSeconds: 150   # above preStop 15 s + --shutdown-timeout 120 s",
        grace_period,
    ),
    Rule(
        "streams-cut",
        Severity.WARNING,
        "vLLM without --shutdown-timeout",
        "Its default, 0, aborts every running request at SIGTERM.",
        "--shutdown-timeout=120",
        streams_cut,
    ),
    Rule(
        "pre-stop",
        Severity.WARNING,
        "no preStop hook",
        "A pod that ends is told to stop and taken out of its Services at once; the latter takes seconds to spread.",
        'lifecycle: {preStop: {exec: {command: [sleep, "15"]}}}',
        pre_stop,
    ),
)

TARGET_RULES = (
    Rule(
        "batch-cap",
        Severity.WARNING,
        "the policy's batch.max is not the engine's --max-num-seqs",
        "The engine never runs more than its own cap, and no metric tells it: a higher batch.max is never reached, a "
        "lower one leaves room unused.",
        'batchMax: "64"   # vLLM: --max-num-seqs=64',
        batch_cap,
    ),
    Rule(
        "cannot-sleep",
        Severity.WARNING,
        "a policy that puts vLLM to sleep, and a vLLM that cannot",
        "Without the flag nothing is freed, and without the variable there is no route to ask it: the rung between "
        "warm and zero saves nothing.",
        'env: [{name: VLLM_SERVER_DEV_MODE, value: "1"}]   # and --enable-sleep-mode',
        cannot_sleep,
    ),
)
