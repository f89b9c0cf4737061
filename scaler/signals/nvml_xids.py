"""The driver's errors (XID), as NVML tells of them: events, recorded for us from when we register a GPU for them.

Facts of ``nvml.h`` (NVIDIA/go-nvml ``pkg/nvml/nvml.h``, 2f9e261f): what happened before registering is not told; an
event names the whole GPU, and an instance of it only if the error is that instance's alone; after an unknown error in
registering, a set of events must be freed; an error that the driver has no number for comes as 999.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from scaler.signals.nvml_questions import Questions
from scaler.value import frozen

#: Events that are ready are told at once. The wait is short and not nothing, so that none is taken for "do not look".
_WAIT_MILLISECONDS: Final = 1
#: A card that fails in a loop must not hold a round up; what is left over comes in the next one.
_MOST_AT_ONCE: Final = 1000
#: The instance's number in an event that is about none.
_NO_INSTANCE: Final = 0xFFFFFFFF


@frozen
class Errors:
    """The errors of one GPU or instance since it is listened to: the last one's code (0: none), and how many."""

    xid: int = 0
    count: int = 0


@dataclass(slots=True)
class _Heard:
    place: int
    xid: int
    count: int


class Xids:
    """Listens to GPUs. Belongs to one initialisation of NVML: call :meth:`release` before it ends.

    ``nvml`` is the module ``pynvml`` (of the distribution nvidia-ml-py) or a stand-in for it.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._useless = False
        self._registered: dict[str, int] = {}
        self._listened: set[str] = set()
        self._silent: set[str] = set()
        self._heard: dict[tuple[str, str], _Heard] = {}
        self._events = 0

    def listen(self, ask: Questions, handle: Any, uuid: str) -> None:
        """Register a GPU, if it is not and has such events."""
        nvml = self._nvml
        if uuid in self._registered or uuid in self._silent or self._useless:
            return
        if self._set is None:
            self._set = ask(nvml.nvmlEventSetCreate)
            if self._set is None:
                self._useless = True
                return
        kind = nvml.nvmlEventTypeXidCriticalError
        supported = ask(nvml.nvmlDeviceGetSupportedEventTypes, handle)
        if supported is not None and supported & kind:
            ask(nvml.nvmlDeviceRegisterEvents, handle, kind, self._set)
            if ask.refusal is None:
                self._registered[uuid] = _address(handle)
                self._listened.add(uuid)
                return
            if isinstance(ask.refusal, nvml.NVMLError_Unknown):
                self._drop_set()
        self._silent.add(uuid)

    def collect(self, present: set[str]) -> None:
        """Take in what has happened. ``present`` are the GPUs of this round: of one that is gone the registration is
        worth nothing should it come back, so that all are registered anew then. Raises the library's
        ``NVMLError_Uninitialized``.
        """
        nvml = self._nvml
        for _ in range(_MOST_AT_ONCE if self._set is not None else 0):
            try:
                event = nvml.nvmlEventSetWait(self._set, _WAIT_MILLISECONDS)
            except nvml.NVMLError_Timeout:
                break
            except nvml.NVMLError_Uninitialized:
                raise
            except nvml.NVMLError:
                self._drop_set()
                break
            self._take(event)
        if self._registered.keys() - present:
            self._drop_set()

    def of(self, uuid: str, gpu_instance: str | None = None) -> Errors | None:
        """The errors of a whole GPU, its instances' included, or of one instance, the whole GPU's included; None of a
        GPU that never could be listened to.
        """
        if uuid not in self._listened:
            return None
        heard = [
            heard
            for (gpu, instance), heard in self._heard.items()
            if gpu == uuid and (gpu_instance is None or instance in ("", gpu_instance))
        ]
        last = max(heard, key=lambda each: each.place, default=None)
        return Errors() if last is None else Errors(last.xid, sum(each.count for each in heard))

    def release(self) -> None:
        """Give the set of events back and try every GPU again afterwards. What was heard stays."""
        self._drop_set()
        self._silent.clear()
        self._useless = False

    def _drop_set(self) -> None:
        dropped, self._set = self._set, None
        self._registered.clear()
        if dropped is not None:
            with suppress(self._nvml.NVMLError):  # of a driver that is gone: there is nobody to give it back to
                self._nvml.nvmlEventSetFree(dropped)

    def _take(self, event: Any) -> None:
        """Note one event. Whose it is is told by the handle: a GPU that has just failed may not tell its UUID."""
        address = _address(event.device)
        uuid = next((uuid for uuid, known in self._registered.items() if known == address), None)
        if uuid is None or not event.eventType & self._nvml.nvmlEventTypeXidCriticalError:
            return
        self._events += 1
        instance = "" if event.gpuInstanceId == _NO_INSTANCE else str(event.gpuInstanceId)
        heard = self._heard.setdefault((uuid, instance), _Heard(0, 0, 0))
        heard.place, heard.xid, heard.count = self._events, int(event.eventData), heard.count + 1


def _address(handle: Any) -> int:
    """What a handle, a pointer that only the driver follows, points at."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
