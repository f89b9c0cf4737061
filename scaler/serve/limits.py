"""How much one caller may take, so that none of them takes the scaler from the others. Every number has its reason.

What the operator may want to change is in the policy file (:class:`scaler.policy.tenancy.Tenancy`); these are far above
any honest use, and only end what would otherwise end the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from scaler.value import frozen


class LimitReached(Exception):  # noqa: N818  it names what happened
    """A call for more than is allowed. The text says what of, how much there is, and what to do."""


@frozen
class Limits:
    """The caps of one scaler process."""

    workloads: int = 10_000
    """Workloads known from calls, in all namespaces together: some 60 KB each, and a source to read every tick. The
    policy file's own do not count."""
    message_bytes: int = 128 * 1024
    """One gRPC request. Twice the metadata that is accepted (64 KiB), so that metadata a little too large is refused
    in words by the policy room and not by the transport."""
    streams_per_workload: int = 256
    """Open StreamIsActive calls for one ScaledObject. KEDA has one per trigger and operator, and after a broken
    connection the old one lingers for up to 40 s beside the new; hundreds are a client that opens and never closes."""
    streams: int = 20_000
    """Open StreamIsActive calls in all: two operators with one trigger for each of the most workloads."""
    waiting_reads_per_workload: int = 1_024
    """Requests waiting for one workload's next target: one per replica, and no workload has more."""
    waiting_reads: int = 4_096
    """Requests waiting for a target in all. Each holds a socket, of which a process may have some 65,536."""


def check_room(name: str, called: Collection[str], per_namespace: int, in_all: int) -> None:
    """Raise :class:`LimitReached` where workload ``name`` would be one too many beside those that calls made known."""
    namespace, _, _ = name.partition("/")
    if sum(known.startswith(f"{namespace}/") for known in called) >= per_namespace:
        raise LimitReached(
            f"namespace {namespace} has {per_namespace} workloads already; delete ScaledObjects there, or have the "
            "operator raise tenancy.workloads_per_namespace in the policy file"
        )
    if len(called) >= in_all:
        raise LimitReached(f"{in_all} workloads are known already; run another loadtide for more")


class Seats:
    """Counts what is open, by workload and in all, and refuses one more than ``per_name`` or ``in_all``."""

    def __init__(self, what: str, per_name: int, in_all: int) -> None:
        self._what = what
        self._per_name = per_name
        self._in_all = in_all
        self._taken: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def take(self, name: str) -> Iterator[None]:
        """Hold one while the block runs. Raises :class:`LimitReached` before it where there is none left."""
        if self._taken[name] >= self._per_name:
            raise LimitReached(f"{self._per_name} {self._what} are open for {name} already; close some first")
        if self._total >= self._in_all:
            raise LimitReached(f"{self._in_all} {self._what} are open in all; try again later, or ask another scaler")
        self._taken[name] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._taken[name] -= 1
            if not self._taken[name]:  # names are made up by callers; those that are gone leave nothing behind
                del self._taken[name]
