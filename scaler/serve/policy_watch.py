"""The policy file, read again when it changes; a bad one is refused with its problems and the old stays in force."""

from __future__ import annotations

from pathlib import Path

import structlog

from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile
from scaler.serve.workloads import Workloads

log = structlog.get_logger(__name__)


class PolicyWatch:
    """Watches one policy file, by name: a mounted ConfigMap changes by a swapped link."""

    def __init__(self, path: Path, workloads: Workloads) -> None:
        self._path = path
        self._workloads = workloads
        self._seen = self._stamp()

    def look(self) -> None:
        """Reload if the file has changed since the last look. Never raises for its content or its absence."""
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return
        self._seen = stamp
        try:
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
