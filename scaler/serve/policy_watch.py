"""The policy file, read again when it changes; a bad one is refused with its problems and the old stays in force.

So is an empty one: that is a file in the middle of a write, or on a full disk. To declare nothing, ``{}`` is written.
"""

from __future__ import annotations

import time
from pathlib import Path

import structlog

from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile
from scaler.serve.workloads import Workloads

log = structlog.get_logger(__name__)

#: A file written to less than so long ago may be half of itself: it is left to the next look.
SETTLE_SECONDS = 0.1


class PolicyWatch:
    """Watches one policy file, by name: a mounted ConfigMap changes by a swapped link."""

    def __init__(self, path: Path, workloads: Workloads) -> None:
        self._path = path
        self._workloads = workloads
        self._seen = self._noticed = self._stamp()

    def look(self) -> None:
        """Reload if the file has changed since the last look. Never raises for its content or its absence."""
        stamp, noticed = self._stamp(), self._noticed
        self._noticed = stamp
        if stamp == self._seen:
            return
        if stamp is None:
            self._seen = None
            log.error("policy file is gone, the one before stays in force", path=str(self._path))
            return
        written, size, _ = stamp
        # Not for ever in front of a clock that goes wrong: what is the same as at the last look is whole.
        if stamp != noticed and time.time_ns() - written < SETTLE_SECONDS * 1e9:
            return
        self._seen = stamp
        try:
            if size == 0:
                raise PolicyError([f"{self._path}: is empty; write {{}} to declare nothing"])
            self._workloads.replace_policies(PolicyFile.load(self._path))
        except (PolicyError, OSError) as error:
            problems = error.problems if isinstance(error, PolicyError) else [str(error)]
            log.error("policy file refused, the one before stays in force", path=str(self._path), problems=problems)
        else:
            log.info("policy file read again", path=str(self._path))

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
