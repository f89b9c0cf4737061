"""The stubs are what ``proto/generate.py`` makes, and their layout on the wire is KEDA's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from scaler.serve import externalscaler_pb2

ROOT = Path(__file__).resolve().parents[2]
STUBS = ("externalscaler_pb2.py", "externalscaler_pb2.pyi", "externalscaler_pb2_grpc.py")

STRING, INT64, DOUBLE, BOOL, MESSAGE = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_BOOL,
    FieldDescriptor.TYPE_MESSAGE,
)

#: message -> field -> (number, type, repeated)
MESSAGES = {
    "ScaledObjectRef": {
        "name": (1, STRING, False),
        "namespace": (2, STRING, False),
        "scalerMetadata": (3, MESSAGE, True),
    },
    "IsActiveResponse": {"result": (1, BOOL, False)},
    "GetMetricSpecResponse": {"metricSpecs": (1, MESSAGE, True)},
    "MetricSpec": {
        "metricName": (1, STRING, False),
        "targetSize": (2, INT64, False),
        "targetSizeFloat": (3, DOUBLE, False),
    },
    "GetMetricsRequest": {"scaledObjectRef": (1, MESSAGE, False), "metricName": (2, STRING, False)},
    "GetMetricsResponse": {"metricValues": (1, MESSAGE, True)},
    "MetricValue": {
        "metricName": (1, STRING, False),
        "metricValue": (2, INT64, False),
        "metricValueFloat": (3, DOUBLE, False),
    },
}

#: method -> (request, response, whether responses are streamed)
METHODS = {
    "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
    "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
    "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
    "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
}


def test_the_committed_stubs_are_the_generated_ones(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    subprocess.run([sys.executable, ROOT / "proto" / "generate.py", tmp_path], check=True, cwd=tmp_path)
    for stub in STUBS:
        assert (tmp_path / stub).read_bytes() == (ROOT / "scaler" / "serve" / stub).read_bytes(), stub


def test_the_messages_are_kedas() -> None:
    described = {
        name: {field.name: (field.number, field.type, field.is_repeated) for field in message.fields}
        for name, message in externalscaler_pb2.DESCRIPTOR.message_types_by_name.items()
    }
    assert described == MESSAGES


def test_the_messages_nest_as_kedas_do() -> None:
    types = {
        (message, field.name): field.message_type.name
        for message, described in externalscaler_pb2.DESCRIPTOR.message_types_by_name.items()
        for field in described.fields
        if field.message_type is not None
    }
    entry = externalscaler_pb2.ScaledObjectRef.DESCRIPTOR.fields_by_name["scalerMetadata"].message_type
    assert types == {
        ("ScaledObjectRef", "scalerMetadata"): entry.name,
        ("GetMetricSpecResponse", "metricSpecs"): "MetricSpec",
        ("GetMetricsRequest", "scaledObjectRef"): "ScaledObjectRef",
        ("GetMetricsResponse", "metricValues"): "MetricValue",
    }
    assert entry.GetOptions().map_entry
    assert [field.type for field in entry.fields] == [STRING, STRING]


def test_the_service_is_kedas() -> None:
    service = externalscaler_pb2.DESCRIPTOR.services_by_name["ExternalScaler"]
    assert service.full_name == "externalscaler.ExternalScaler"
    described = {
        method.name: (method.input_type.name, method.output_type.name, method.server_streaming)
        for method in service.methods
    }
    assert described == METHODS
    assert not any(method.client_streaming for method in service.methods)


def test_a_value_in_bytes() -> None:
    value = externalscaler_pb2.MetricValue(metricName="m", metricValue=13, metricValueFloat=12.5)
    assert value.SerializeToString() == b"\x0a\x01m" + b"\x10\x0d" + b"\x19\x00\x00\x00\x00\x00\x00\x29\x40"
