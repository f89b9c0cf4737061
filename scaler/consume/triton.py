"""Triton: loads the model again with another ``max_batch_size``. A reload, not a setting: rare, and never in need.

Read in triton-inference-server/core (73aad7c3, ``model_repository_manager/model_lifecycle.cc`` and
``model_repository_manager.cc``, ``model_config_utils.cc``) and server (e1db8a60, ``docs/protocol``):

- A load (``POST /v2/repository/models/NAME/load``, or ``RepositoryModelLoad`` over gRPC) with the parameter ``config``,
  a whole model configuration as JSON text, takes the place of ``config.pbtxt``. It needs
  ``--model-control-mode=explicit``.
- Anything but a changed instance group loads the model anew. The old one serves until the new one is ready, so nothing
  fails; but both are in memory at once, and the new one is cold. If loading fails the old one stays.
- Asked over HTTP, one of the server's HTTP threads does nothing else until the model is loaded, and which connections
  are on it (usually nearly all) is chance: their requests wait as long (server #8958, still so in 2.73). Over gRPC
  nobody waits.
- A load without parameters goes back to ``config.pbtxt`` only if that is newer than the override, since 2.43 (core
  #304). So what was there before is written back as another override, without our mark, where such a load did nothing.
- ``preferred_batch_size`` above ``max_batch_size`` is refused; and where it was left out Triton reports
  ``[max_batch_size]`` as if somebody had preferred it.

All of it was seen on a real 2.51 (tests/real/test_triton_follows.py).

What the configuration held before is kept in the override itself, as a model parameter no backend knows: so an agent
that starts anew, and anybody who reads the configuration, can tell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from scaler.consume.engine import EngineBatch, EngineError
from scaler.consume.engine_http import EngineHttp
from scaler.consume.triton_grpc import load_model

#: The model parameter that holds ``max_batch_size`` and the preferred sizes from before the override.
MARK: Final = "loadtide_before"


class Triton:
    """One model of a Triton server; ``http`` leads to its HTTP port (8000). ``grpc`` is its gRPC port (HOST:PORT), over
    which it is loaded; "": over HTTP. ``load_timeout_seconds``: of one reload.
    """

    engine: Final = "triton"
    reloads: Final = True

    def __init__(self, http: EngineHttp, model: str, *, grpc: str = "", load_timeout_seconds: float = 600.0) -> None:
        self._http = http
        self._model = model
        self._path = quote(model, safe="")
        self._grpc = grpc
        self._load_timeout_seconds = load_timeout_seconds

    async def read(self) -> EngineBatch:
        """``max_batch_size`` of the configuration that is loaded."""
        config = await self._config()
        before = _before(config)
        own = _largest(config) if before is None else before["max_batch_size"]
        return EngineBatch(size=_largest(config), own=own, most=own, follows_own=before is None)

    async def write(self, size: int) -> None:
        """Load the model anew with ``size``; returns when it is loaded."""
        config = await self._config()
        before = _before(config) or {"max_batch_size": _largest(config), "preferred": _preferred(config)}
        if size == before["max_batch_size"]:
            await self.restore()
            return
        mark = {MARK: {"string_value": json.dumps(before)}}
        await self._load(_batching(config, size, before["preferred"], mark))

    async def restore(self) -> None:
        """Load the model anew as its ``config.pbtxt`` says, or where Triton sees no need to, as it was before us."""
        await self._load(None)
        config = await self._config()
        before = _before(config)
        if before is not None:
            await self._load(_batching(config, before["max_batch_size"], before["preferred"], {}))

    async def _load(self, config: Mapping[str, Any] | None) -> None:
        """Load the model with ``config``; None: with the repository's."""
        text = None if config is None else json.dumps(config)
        if self._grpc:
            await load_model(self._grpc, self._model, text, timeout_seconds=self._load_timeout_seconds)
            return
        path = f"/v2/repository/models/{self._path}/load"
        body = {} if text is None else {"parameters": {"config": text}}
        await self._http.text("POST", path, body, timeout_seconds=self._load_timeout_seconds)

    async def _config(self) -> Mapping[str, Any]:
        path = f"/v2/models/{self._path}/config"
        config = await self._http.json("GET", path)
        if not isinstance(config, Mapping):
            raise EngineError(f"GET {path}: the answer is no model configuration; is this Triton's HTTP port?")
        if not _largest(config):
            raise EngineError("the model does not batch (max_batch_size 0): there is nothing to set")
        if not isinstance(config.get("dynamic_batching"), Mapping):
            raise EngineError(
                "the model has no dynamic_batching: requests are never put together; add it to its config"
            )
        return config


def _batching(
    config: Mapping[str, Any], size: int, preferred: Sequence[int], mark: Mapping[str, Any]
) -> dict[str, Any]:
    """``config`` with another largest batch, those of the ``preferred`` sizes that fit in it, and ``mark``."""
    batching = {**config["dynamic_batching"], "preferred_batch_size": [each for each in preferred if each <= size]}
    parameters = {name: value for name, value in (config.get("parameters") or {}).items() if name != MARK}
    changed = {"max_batch_size": size, "dynamic_batching": batching, "parameters": {**parameters, **mark}}
    return {**config, **changed}


def _largest(config: Mapping[str, Any]) -> int:
    value = config.get("max_batch_size")
    return value if type(value) is int and value > 0 else 0


def _preferred(config: Mapping[str, Any]) -> list[int]:
    """The sizes somebody preferred; the one that Triton fills in is nobody's."""
    sizes = config["dynamic_batching"].get("preferred_batch_size") or []
    preferred = [size for size in sizes if type(size) is int]
    return [] if preferred == [_largest(config)] else preferred


def _before(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an override of ours says was there before it; None where the configuration is the repository's own."""
    parameters = config.get("parameters")
    mark = parameters.get(MARK) if isinstance(parameters, Mapping) else None
    try:
        before = json.loads(mark["string_value"]) if isinstance(mark, Mapping) else None
    except (KeyError, TypeError, ValueError):
        before = None
    if not isinstance(before, dict) or not isinstance(before.get("preferred"), list):
        return None
    return before if type(before.get("max_batch_size")) is int else None
