"""KEDA's four methods as a server takes them. As generated from the protocol, but for bytes that are no message: grpcio
answers those with UNKNOWN and a page of traceback in the log each; here they read as an empty message, which names no
ScaledObject and is refused as INVALID_ARGUMENT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from scaler.serve.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    ScaledObjectRef,
)
from scaler.serve.rpc_statistics import SERVICE


def add_keda_handlers(service: Any, server: grpc.aio.Server) -> None:
    """Have ``server`` answer KEDA's calls by ``service``'s methods GetMetricSpec, GetMetrics, IsActive, StreamIsActive.

    Registered by name, not as a generic handler: of each call to one of those grpcio unpacks every header first, which
    costs an eighth of a call.
    """
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    ref, request = _read(ScaledObjectRef), _read(GetMetricsRequest)
    server.add_registered_method_handlers(
        SERVICE,
        {
            "GetMetricSpec": unary(service.GetMetricSpec, ref, GetMetricSpecResponse.SerializeToString),
            "GetMetrics": unary(service.GetMetrics, request, GetMetricsResponse.SerializeToString),
            "IsActive": unary(service.IsActive, ref, IsActiveResponse.SerializeToString),
            "StreamIsActive": stream(service.StreamIsActive, ref, IsActiveResponse.SerializeToString),
        },
    )


def _read(message: type[Message]) -> Callable[[bytes], Message]:
    parse = message.FromString

    def read(body: bytes) -> Message:
        try:
            return parse(body)
        except DecodeError:
            return message()

    return read
