"""Logs: one JSON line per event on standard error, every value as it is, times in UTC."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

import structlog
from structlog.tracebacks import ExceptionDictTransformer

#: Lines that each library may write in so many seconds. A client that sends garbage makes grpcio log a page for each.
LIBRARY_LINES, LIBRARY_SECONDS = 10, 60.0


class LibraryLogs(logging.Handler):
    """What libraries log, as lines of ours: each at most :data:`LIBRARY_LINES` in :data:`LIBRARY_SECONDS`, then only
    counted. Of an exception the type and text; a traceback of foreign code could hold what a caller sent.
    """

    def __init__(self, mono: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._mono = mono
        self._windows: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or count it."""
        now, library = self._mono(), record.name.partition(".")[0]
        began, written = self._windows.get(library, (now, 0))
        if now - began > LIBRARY_SECONDS:
            self._say_left_out(library, written)
            began, written = now, 0
        self._windows[library] = began, written + 1
        if written < LIBRARY_LINES:
            text = record.getMessage()[:500]
            error = record.exc_info[1] if record.exc_info else None
            problem = {} if error is None else {"problem": f"{type(error).__name__}: {error}"[:500]}
            structlog.get_logger().log(record.levelno, "a library says", library=record.name, said=text, **problem)

    def _say_left_out(self, library: str, written: int) -> None:
        if written > LIBRARY_LINES:
            structlog.get_logger().warning("a library said more", library=library, left_out=written - LIBRARY_LINES)


def configure_logs(level: str = "info") -> None:
    """Set up structlog for the process. ``level``: debug, info, warning or error."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Local variables are left out: among them may be secrets of a ScaledObject.
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[LibraryLogs()], level=logging.WARNING, force=True)
