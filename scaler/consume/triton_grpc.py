"""Triton's gRPC, for the one request that must not be made over HTTP: to load a model."""

from __future__ import annotations

from typing import Final

import grpc

from scaler.consume import triton_repository_pb2 as messages
from scaler.consume.engine import EngineError
from scaler.consume.engine_http import WORDS

_METHOD: Final = "/inference.GRPCInferenceService/RepositoryModelLoad"
#: gRPC keeps connections to one address for all channels, and after a failure it waits before it connects again.
_NEW_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)


async def load_model(address: str, model: str, config: str | None, *, timeout_seconds: float) -> None:
    """Have the server at ``address`` (HOST:PORT) load ``model`` with ``config``, a whole model configuration as JSON;
    None: with the repository's. Returns when it is loaded. Raises EngineError.
    """
    asked = messages.RepositoryModelLoadRequest(model_name=model)
    if config is not None:
        asked.parameters["config"].string_param = config
    try:
        async with grpc.aio.insecure_channel(address, options=_NEW_CONNECTION) as channel:
            load = channel.unary_unary(
                _METHOD,
                request_serializer=messages.RepositoryModelLoadRequest.SerializeToString,
                response_deserializer=messages.RepositoryModelLoadResponse.FromString,
            )
            await load(asked, timeout=timeout_seconds)
    except grpc.aio.AioRpcError as error:
        raise EngineError(f"loading over gRPC ({address}): {_trouble(error, timeout_seconds)}") from error


def _trouble(error: grpc.aio.AioRpcError, timeout_seconds: float) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {timeout_seconds:g} s"
    said = " ".join((error.details() or "").split())[:WORDS]
    if error.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in said.lower():
        return "cannot connect; is Triton's gRPC on (--allow-grpc), and at this address (--engine-grpc)?"
    return f"{error.code().name} ({said})"
