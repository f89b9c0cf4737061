"""How the process ends: one signal asks it to finish what it does; a second one ends it, and so does the clock."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import structlog

log = structlog.get_logger(__name__)

#: How long stopping may take in all, seconds: well below Kubernetes' default terminationGracePeriodSeconds, 30.
GRACE_SECONDS = 15.0

_ASKED = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """The end of one process: ``stopping`` is set by the first signal, and from then on the clock runs.

    The clock is a thread's, because what keeps a process from ending is beyond the event loop's reach: Python waits at
    its exit for every thread it lent to a name server that does not answer.
    """

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.stopping = asyncio.Event()
        self._grace_seconds = grace_seconds
        self._stored = False

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from now on. Called on the event loop."""
        loop = asyncio.get_running_loop()
        for number in _ASKED:
            loop.add_signal_handler(number, self._asked, number)

    def stored(self) -> None:
        """Say that what must survive is stored: an end by the clock is then a good end."""
        self._stored = True

    def _asked(self, number: signal.Signals) -> None:
        log.info("stopping", signal=number.name, grace_seconds=self._grace_seconds)
        loop = asyncio.get_running_loop()
        for each in _ASKED:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)  # whoever asks twice does not want to wait
        clock = threading.Timer(self._grace_seconds, self._time_is_up)
        clock.daemon = True
        clock.start()
        self.stopping.set()

    def _time_is_up(self) -> None:
        log.warning("not ended within its grace time, ended now", grace_seconds=self._grace_seconds)
        os._exit(0 if self._stored else 1)
