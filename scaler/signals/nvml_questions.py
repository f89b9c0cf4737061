"""Questions to one device through NVML, of which many have no answer: it depends on card, driver and container."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Questions:
    """Asks one device. The answer is None where it has none; what says that device or driver is gone passes through.

    ``nvml`` is the module ``pynvml`` (of the distribution nvidia-ml-py) or a stand-in for it.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._gone = (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired, nvml.NVMLError_Uninitialized)
        self.refusal: Exception | None = None
        """Why the last question had no answer."""
        self.unknown_error: Exception | None = None
        """The last "unknown error": of all calls at once it means that access is lost, of one it means nothing."""

    def __call__(self, call: Callable[..., Any], *arguments: object) -> Any:
        self.refusal = None
        try:
            return call(*arguments)
        except self._gone:
            raise
        except self._nvml.NVMLError as error:
            self.refusal = error
            if isinstance(error, self._nvml.NVMLError_Unknown):
                self.unknown_error = error
            return None
