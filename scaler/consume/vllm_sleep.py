"""vLLM's sleep mode: the model off the GPU while the process lives, and back in seconds.

Read in the source of 0.32.0 (``entrypoints/serve/dev/sleep/api_router.py``, ``v1/engine/core.py``,
``v1/executor/abstract.py``, ``v1/worker/gpu_worker.py``), and its routes run on the CPU build:

- The routes ``/sleep``, ``/wake_up``, ``/is_sleeping`` and ``/collective_rpc`` exist with ``VLLM_SERVER_DEV_MODE=1``
  only, and memory is freed with ``--enable-sleep-mode`` only (CUDA, ROCm, XPU; the CPU build refuses the flag, and its
  worker ignores the call). They take no API key: keep that port to the pod.
- Level 1 copies the weights to host memory and drops the KV cache; level 2 drops both. After level 2 the weights' place
  comes back empty: ``/wake_up?tags=weights``, then ``/collective_rpc`` ``reload_weights`` (from disk), then
  ``/wake_up?tags=kv_cache``. Until all of it is back nothing is computed, so a wake that failed midway is taken up
  again. Level 0 frees nothing.
- From 0.17 on (#34528) the scheduler is paused first: requests that come are queued, and answered after the wake.
  Before, they would be computed on memory that is gone: such a version is not put to sleep.
- ``mode=keep`` answers at once and freezes what may have come in the last moment. ``mode=wait`` must not be used: woken
  before the last request has ended, the engine serves on, and falls asleep when it next has nothing to do, its
  scheduler open (seen in 0.32).
- While it sleeps ``/health`` and ``/metrics`` answer. ``vllm:engine_sleep_state`` (#24176) tells the level; the gauges
  of running and waiting requests stand still.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from scaler.consume.engine import EngineError, EngineSleep, NoSleepError
from scaler.consume.engine_http import EngineHttp, NoSuchRouteError

#: The first version whose sleep holds requests back.
PAUSES_FROM: Final = (0, 17)
#: How long falling asleep may take (weights copied to host memory), and waking (read from disk, at level 2).
SLEEP_SECONDS, WAKE_SECONDS = 120.0, 600.0

_LINE: Final = re.compile(r"vllm[:_](engine_sleep_state|num_requests_running|num_requests_waiting)(?=[ {])(.*)")
_SAMPLE: Final = re.compile(r"(?:\{(.*)\})?\s+(\S+)(?:\s.*)?")
_LEVELS: Final = {"weights_offloaded": 1, "discard_all": 2}


class VllmSleep:
    """The sleep of one vLLM server."""

    engine: Final = "vllm"

    def __init__(self, http: EngineHttp) -> None:
        self._http = http

    async def look(self) -> EngineSleep:
        """From ``/is_sleeping``, and from its metrics page how deep and how busy."""
        try:
            answer = await self._http.json("GET", "/is_sleeping")
        except NoSuchRouteError as error:
            raise NoSleepError(
                f"{error}; start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode, or do not declare "
                "idle.sleep_after_seconds"
            ) from error
        asleep = answer.get("is_sleeping") if isinstance(answer, dict) else None
        if not isinstance(asleep, bool):
            raise EngineError("GET /is_sleeping: no is_sleeping in the answer; is this vLLM's port?")
        told, busy = list[int](), dict[str, float]()
        for name, labels, value in _samples(await self._http.text("GET", "/metrics")):
            if name == "engine_sleep_state":
                told += [level if value else 0 for word, level in _LEVELS.items() if f'"{word}"' in labels]
            else:
                busy[name] = busy.get(name, 0.0) + value
        requests = sum(busy.values()) if len(busy) == 2 else math.nan  # running alone, or waiting, is not all it has
        return EngineSleep(
            asleep, max(told, default=None) if asleep else None, int(requests) if math.isfinite(requests) else None
        )

    async def sleep(self, level: int) -> None:
        """Refused for a version that would go on computing."""
        version = await self._version()
        if version is not None and version < PAUSES_FROM:
            raise EngineError(
                f"vLLM {'.'.join(map(str, version))} does not hold requests back in its sleep; 0.17 is the first"
            )
        await self._http.text("POST", f"/sleep?level={level}&mode=keep", timeout_seconds=SLEEP_SECONDS)

    async def wake(self, level: int | None) -> None:
        """Where the level is not known the weights are read anew, which is right after both."""
        if level in (0, 1):
            await self._http.text("POST", "/wake_up", timeout_seconds=WAKE_SECONDS)
            return
        await self._http.text("POST", "/wake_up?tags=weights", timeout_seconds=WAKE_SECONDS)
        body = {"method": "reload_weights"}
        await self._http.text("POST", "/collective_rpc", body, timeout_seconds=WAKE_SECONDS)
        await self._http.text("POST", "/wake_up?tags=kv_cache", timeout_seconds=WAKE_SECONDS)

    async def _version(self) -> tuple[int, int] | None:
        """Major and minor; None where it is not told, or of a build of its own."""
        answer = await self._http.json("GET", "/version")
        said = re.match(r"(\d+)\.(\d+)\.", str(answer.get("version", "")) if isinstance(answer, dict) else "")
        return None if said is None else (int(said[1]), int(said[2]))


def _samples(page: str) -> Iterator[tuple[str, str, float]]:
    """(name without its prefix, labels, value) of the lines that tell of sleep and of requests. A line that cannot be
    read has the value NaN: what it said is not nothing.
    """
    for line in page.splitlines():
        if (begun := _LINE.fullmatch(line)) is not None:
            said = _SAMPLE.fullmatch(begun[2])
            try:
                yield begun[1], (said[1] or "") if said else "", float(said[2]) if said else math.nan
            except ValueError:
                yield begun[1], "", math.nan
