"""This machine's GPUs, read through NVML (``pynvml``, of the distribution nvidia-ml-py).

NVML is a C library in front of a driver: a call can block for minutes, fail at any time after having worked, and is
missing on most machines. So it has one thread of its own, made of which no more is wanted than a round within a time
limit; whoever asks has an answer in that time, and while a round is stuck no other is begun. No driver, no GPU, a wrong
driver, access lost: each is a normal state with a reason, told once when it begins, and tried again every minute.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

import structlog

from scaler.signals.gpu import GpuReading, GpuTelemetry, LostGpu, new_xids
from scaler.signals.nvml_devices import NvmlDevices, meaning

log = structlog.get_logger(__name__)

TIMED_OUT: Final = "NVML does not answer: a call into the driver is stuck"
NOT_INSTALLED: Final = "nvidia-ml-py is not installed"
LOOK_ALIKE: Final = "the installed pynvml is an old look-alike; install nvidia-ml-py and remove the distribution pynvml"

#: A round that ends after its time limit is given to the next who asks, unless it began longer ago than this: a slow
#: driver is slow every time, and would else never be heard.
LATE_SECONDS: Final = 10.0


class LocalGpus:
    """Reads this machine's GPUs. Use from one event loop; close when done.

    ``timeout_seconds``: how long one round may take. ``retry_seconds``: how long to wait after NVML could not be used.
    ``load`` gives the module (or raises ImportError) and ``mono`` the monotonic time: for tests.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float = 2.0,
        retry_seconds: float = 60.0,
        load: Callable[[], Any] | None = None,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._mono = mono
        self._session = _Session(load or _pynvml, retry_seconds, mono)
        self._rounds: queue.SimpleQueue[Future[GpuTelemetry] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: Future[GpuTelemetry] | None = None
        self._deadline = 0.0
        self._told = _Told()

    async def read(self) -> GpuTelemetry:
        """One round, within the time limit. Never raises for anything that NVML does; a stuck call is a reason."""
        loop = asyncio.get_running_loop()
        running = self._running
        if running is None or (running.done() and self._mono() - running.result().at > LATE_SECONDS):
            self._deadline = loop.time() + self._timeout_seconds
            running = self._running = self._begin()
        left = self._deadline - loop.time()
        if left > 0:
            await asyncio.wait({asyncio.wrap_future(running)}, timeout=left)
        if not running.done():
            telemetry = GpuTelemetry(False, self._mono(), TIMED_OUT)
        else:
            telemetry = running.result()
            if self._running is running:
                self._running = None
        self._told.tell(telemetry)
        return telemetry

    def close(self) -> None:
        """Let the thread end, after the round it is in. It never keeps the process from ending."""
        self._rounds.put(None)

    def _begin(self) -> Future[GpuTelemetry]:
        if self._thread is None:
            # A daemon: an executor's threads are joined when the process ends, and a stuck call would hold it back.
            self._thread = threading.Thread(target=self._work, name="nvml", daemon=True)
            self._thread.start()
        future: Future[GpuTelemetry] = Future()
        self._rounds.put(future)
        return future

    def _work(self) -> None:
        while (future := self._rounds.get()) is not None:
            future.set_running_or_notify_cancel()  # from here on nobody's cancellation reaches it
            try:
                telemetry = self._session.round()
            except Exception as error:  # noqa: BLE001 - whatever breaks in here, who asked must get an answer
                telemetry = GpuTelemetry(False, self._mono(), f"reading the GPUs failed: {type(error).__name__}")
            future.set_result(telemetry)
        self._session.end()


class _Session:
    """NVML from its initialisation to its loss, and again. Belongs to the thread."""

    def __init__(self, load: Callable[[], Any], retry_seconds: float, mono: Callable[[], float]) -> None:
        self._load = load
        self._retry_seconds = retry_seconds
        self._mono = mono
        self._nvml: Any = None
        self._devices: NvmlDevices | None = None
        self._up = False
        self._down = GpuTelemetry(False, 0.0)
        self._retry_at = float("-inf")

    def round(self) -> GpuTelemetry:
        now = self._mono()
        if not self._up:
            if now < self._retry_at:
                return replace(self._down, at=now)
            if reason := self._begin():
                return self._lose(reason)
        assert self._devices is not None
        try:
            found = self._devices.read(now)
        except self._nvml.NVMLError as error:
            return self._lose(meaning(error))
        if found.lost and not found.readings:
            return self._lose(found.lost[0].reason, found.lost)
        return GpuTelemetry(True, now, readings=found.readings, lost=found.lost, notes=found.notes)

    def end(self) -> None:
        if self._up:
            self._shut_down()

    def _begin(self) -> str:
        """Load and initialise NVML; why it cannot be, or ""."""
        try:
            nvml = self._nvml = self._nvml or self._load()
        except ImportError:
            return NOT_INSTALLED
        if not hasattr(nvml, "nvmlMemory_v2"):
            self._nvml = None
            return LOOK_ALIKE
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return meaning(error)
        if self._devices is None:
            self._devices = NvmlDevices(nvml)
        self._up = True
        return ""

    def _lose(self, reason: str, lost: tuple[LostGpu, ...] = ()) -> GpuTelemetry:
        if self._up:
            self._shut_down()
        now = self._mono()
        self._retry_at = now + self._retry_seconds
        self._down = GpuTelemetry(False, now, reason, lost=lost)
        return self._down

    def _shut_down(self) -> None:
        """Give NVML back. It is initialised anew before the next round: what it held of a lost driver is useless."""
        self._up = False
        assert self._devices is not None
        self._devices.release()
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            log.debug("NVML could not be shut down", reason=meaning(error))


class _Told:
    """What the log was told of the GPUs: each condition once when it begins, however often they are read."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._lost: dict[tuple[str, int], LostGpu] = {}
        self._read: tuple[GpuReading, ...] = ()
        self._notes: set[str] = set()

    def tell(self, telemetry: GpuTelemetry) -> None:
        if telemetry.reason != self._reason:
            first, self._reason = self._reason is None, telemetry.reason
            if telemetry.up:
                log.info("local GPUs are read", gpus=len({reading.uuid for reading in telemetry.readings}))
            else:
                # A machine that never had one is no trouble; one that had is.
                (log.info if first else log.warning)("local GPUs cannot be read", reason=telemetry.reason)
        if telemetry.up or telemetry.lost:
            lost = {(gpu.uuid, gpu.nvml_index): gpu for gpu in telemetry.lost}
            for key in lost.keys() - self._lost.keys():
                log.warning("a GPU is lost", uuid=key[0], nvml_index=key[1], reason=lost[key].reason, xid=lost[key].xid)
            for key in self._lost.keys() - lost.keys():
                log.info("a lost GPU is back", uuid=key[0], nvml_index=key[1])
            self._lost = lost
        if telemetry.up:
            for (uuid, instance), xid in new_xids(self._read, telemetry.readings).items():
                log.warning("a GPU reports an error", uuid=uuid, gpu_instance=instance, xid=xid)
            self._read = telemetry.readings
        for note in telemetry.notes:
            if note not in self._notes:
                log.info("about a local GPU", note=note)
                self._notes.add(note)


def _pynvml() -> Any:
    import pynvml

    return pynvml
