"""What the engine beside us says of itself, about once a second, as the guard's signals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import aiohttp

from scaler.policy.model import Policy
from scaler.signals.gpu import GpuReading, attach_gpu
from scaler.signals.model import Signals, known_value
from scaler.signals.observation import EngineSample, Observation
from scaler.signals.preset import load_preset
from scaler.signals.scrape import scrape
from scaler.signals.window import History, fold

#: How often it is read, seconds.
EVERY_SECONDS = 1.0


class EngineWatch:
    """Reads one engine's ``/metrics`` at ``url`` as ``policy`` says (preset, model name, time limit, TLS).

    ``gpus`` gives the readings of the engine's GPUs, for an engine that does not preallocate their memory; nothing
    where they are not known.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        policy: Policy,
        *,
        mono: Callable[[], float],
        gpus: Callable[[], Iterable[GpuReading]] = tuple,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._policy = policy
        self._preset = load_preset(policy.engine)
        self._scrape = policy.scrape.model_copy(update={"urls": (url,)})
        self._mono = mono
        self._unix = unix
        self._gpus = gpus
        self._history = History()
        self.signals = Signals()
        """As of the last look."""
        self.trouble = ""
        """Why the engine could not be read at the last look; "" where it was."""

    async def look(self) -> Signals:
        """Read it once. Never raises for anything that an engine can answer."""
        reads = await scrape(self._session, self._scrape, self._preset, mono=self._mono, unix=self._unix)
        self.trouble = ", ".join(read.reason for read in reads.values() if not isinstance(read, EngineSample))
        endpoints = {
            url: attach_gpu(read, self._gpus(), preallocates=self._preset.preallocates_gpu_memory)
            if isinstance(read, EngineSample)
            else read
            for url, read in reads.items()
        }
        now = self._mono()
        self._history, self.signals = fold(
            self._history,
            Observation(now, endpoints),
            now,
            self._policy,
            interval_seconds=EVERY_SECONDS,
            now_unix=self._unix(),
        )
        return self.signals

    @property
    def running(self) -> int | None:
        """Sequences in the engine at the last look; None where that is not known."""
        running = known_value(self.signals.running)
        return None if running is None else int(running)
