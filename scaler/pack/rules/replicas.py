"""What was decided against what came of it: replicas, the batch, and demand that no replica answers."""

from __future__ import annotations

from scaler.control.model import Code
from scaler.pack.model import Alert, Group, Recording, Severity
from scaler.pack.series import (
    APPLIED_BATCH,
    ASLEEP,
    CALLED_AWAKE,
    CEILING,
    DEMAND,
    DESIRED,
    FAILED_LOADS,
    HELD_BACK,
    KUBE_READY,
    LOADING,
    NEEDED,
    OWN_READY,
    READY,
    SIGNAL,
    TARGET_BATCH,
    WORKLOAD,
)

#: The HPA leaves a difference within its tolerance alone.
_HPA_TOLERANCE = 0.1
#: Changes within half an hour, and how many of them must go each way: a long climb is no flapping.
_CHANGES, _EACH_WAY = 6, 3
_LATELY = "5m"
#: Told to be awake, and asleep.
_NOT_WOKEN = f"{ASLEEP} > 0 and on ({WORKLOAD}) {CALLED_AWAKE} == 1"
#: The default of ``replicas.load_timeout_seconds``; of a load that is under way the policy's own is waited for.
_LOAD_TIME = "15m"


def replicas_group() -> Group:
    """DemandWithoutReplicas, WakeFailed, ReplicasNotLoading, AtMaxReplicas, ReplicasNotConverging, BatchNotApplied,
    Flapping.
    """
    return Group(
        "loadtide.replicas",
        (
            Recording(READY, f"{OWN_READY} or on ({WORKLOAD}) {KUBE_READY}"),
            *_demand(),
            _wake_failed(
                "critical",
                f"{_NOT_WOKEN} and on ({WORKLOAD}) {ASLEEP} >= {READY}",
                "None of its replicas serves: requests wait and get no answer.",
            ),
            _wake_failed("warning", _NOT_WOKEN, "They count as ready and serve nothing."),
            _not_loading(),
            *_outcome(),
            _flapping("replicas", DESIRED),
            _flapping("batch", TARGET_BATCH),
        ),
    )


def _demand() -> tuple[Alert, ...]:
    # A wake is forgotten when its load has failed, and callers try again now and then: what counts is lately.
    unanswered = f"max_over_time({DEMAND}[{_LATELY}]) > 0\nunless on ({WORKLOAD}) {READY} > 0"
    summary = "Requests for {{ $labels.namespace }}/{{ $labels.workload }} wait, and no replica is ready."
    return (
        Alert(
            "DemandWithoutReplicas",
            f"{unanswered}\nand on ({WORKLOAD}) {FAILED_LOADS} > 0",
            severity="critical",
            hold="1m",
            labels={"cause": "load_failed"},
            summary=summary,
            description=(
                "A replica of {{ $labels.workload }} was started and did not get ready within the load time of its "
                "policy, and requests are waiting. loadtide tries again, later each time."
            ),
        ),
        Alert(
            "DemandWithoutReplicas",
            f"{unanswered}\nunless on ({WORKLOAD}) {LOADING}",  # what loads has the load time of its policy
            severity="critical",
            hold=_LOAD_TIME,
            labels={"cause": "not_ready"},
            summary=summary,
            description=(
                f"{{{{ $labels.workload }}}} has had waiting requests and no ready replica for {_LOAD_TIME}, and "
                "loadtide is loading none: it was not started, or is ruled by hand."
            ),
        ),
    )


def _wake_failed(severity: Severity, expr: str, what: str) -> Alert:
    return Alert(
        "WakeFailed",
        expr,
        severity=severity,
        hold="5m",
        dashboard="decisions",
        summary="{{ $labels.namespace }}/{{ $labels.workload }} was woken and sleeps on.",
        description=(
            "For 5 minutes {{ $value }} replicas of {{ $labels.workload }} have been told to be awake and say that "
            f"they are asleep. {what}"
        ),
    )


def _not_loading() -> Alert:
    return Alert(
        "ReplicasNotLoading",
        f'{HELD_BACK}{{code=~"{Code.UNSCHEDULABLE}|{Code.OVERDUE}"}} > 0',
        severity="warning",
        hold="10m",
        keep="5m",
        dashboard="decisions",
        summary="Replicas of {{ $labels.namespace }}/{{ $labels.workload }} were asked for and do not come.",
        description=(
            "Replicas of {{ $labels.workload }} are {{ $labels.code }} (unschedulable: no node has room for them; "
            "overdue: they have been loading for more than twice their usual time). They are not counted on."
        ),
    )


def _outcome() -> tuple[Alert, ...]:
    # Each replica that reports; and the signal, which is all there is where a query of the operator's gives it.
    astray = f"{APPLIED_BATCH} != on ({WORKLOAD}) group_left () {TARGET_BATCH}"
    applied = f'max by ({WORKLOAD}) ({SIGNAL}{{signal="applied_batch"}})'
    return (
        Alert(
            "AtMaxReplicas",
            f"{DESIRED} >= {CEILING} and {NEEDED} > {CEILING}",
            severity="warning",
            hold="15m",
            keep="5m",
            dashboard="decisions",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} is at its most replicas and needs more.",
            description=(
                "The load of {{ $labels.workload }} asks for more than the {{ $value }} replicas that it may have. "
                "Requests queue, and objectives will not be met."
            ),
        ),
        Alert(
            "ReplicasNotConverging",
            f"abs({DESIRED} - {READY}) > {_HPA_TOLERANCE} * {READY}",
            severity="warning",
            hold="15m",
            dashboard="decisions",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} does not get the replicas that were decided.",
            description=(
                "For 15 minutes the ready replicas of {{ $labels.workload }} have differed from the decided ones, now "
                "by {{ $value }}: more than what the HPA's tolerance leaves alone."
            ),
        ),
        Alert(
            "BatchNotApplied",
            f"{TARGET_BATCH} and on ({WORKLOAD}) ({astray})\nor\n{TARGET_BATCH} != on ({WORKLOAD}) {applied}",
            severity="warning",
            hold="5m",
            dashboard="decisions",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} does not run the batch size that was decided.",
            description=(
                "A replica of {{ $labels.workload }} reports another batch size than the decided {{ $value }}. Memory "
                "and latency are then protected on paper only."
            ),
        ),
    )


def _flapping(what: str, series: str) -> Alert:
    changes, falls = f"changes({series}[30m])", f"resets({series}[30m])"
    return Alert(
        "Flapping",
        f"{changes} > {_CHANGES}\nand {falls} >= {_EACH_WAY}\nand {changes} - {falls} >= {_EACH_WAY}",
        severity="warning",
        hold="5m",
        keep="10m",
        labels={"target": what},
        dashboard="decisions",
        summary="The {{ $labels.target }} of {{ $labels.namespace }}/{{ $labels.workload }} go up and down.",
        description=(
            "{{ $value }} changes of the {{ $labels.target }} of {{ $labels.workload }} in 30 minutes, up and down. "
            "Each costs a cold start or a settling batch."
        ),
    )
