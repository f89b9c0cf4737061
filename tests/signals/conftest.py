"""What tests of local GPUs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from scaler.signals import nvml
from tests.signals.fake_nvml import FakeGpu, Machine


@pytest.fixture
def machine() -> Iterator[Callable[..., Machine]]:
    made: list[Machine] = []

    def make(*gpus: FakeGpu, **options: Any) -> Machine:
        made.append(Machine(*gpus, **options))
        return made[-1]

    yield make
    for each in made:
        if each.nvml.blocks_until is not None:
            each.nvml.blocks_until.set()
        each.local.close()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    captured = CapturingLogger()
    monkeypatch.setattr(nvml, "log", captured)
    return captured
