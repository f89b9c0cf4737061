"""Make the gRPC stubs of ``externalscaler.proto``: ``python proto/generate.py [OUT_DIR]``, default scaler/serve."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

PROTO_DIR = Path(__file__).resolve().parent
#: The package the stubs live in. protoc sees the .proto at this virtual path, and so writes the import of one stub by
#: the other as ``from scaler.serve import externalscaler_pb2``; the wire package stays ``externalscaler``.
STUB_PACKAGE = "scaler/serve"
STUBS = ("externalscaler_pb2.py", "externalscaler_pb2.pyi", "externalscaler_pb2_grpc.py")


def generate(out_dir: Path) -> None:
    """Write :data:`STUBS` into ``out_dir``, which must exist.

    Raises RuntimeError where protoc refuses; its own words are on stderr by then.
    """
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as staging:
        arguments = [
            "protoc",
            f"-I{STUB_PACKAGE}={PROTO_DIR}",
            f"-I{well_known}",
            f"--python_out={staging}",
            f"--pyi_out={staging}",
            f"--grpc_python_out={staging}",
            f"{STUB_PACKAGE}/externalscaler.proto",
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError("protoc refused externalscaler.proto; see above")
        for stub in STUBS:
            (out_dir / stub).write_bytes((Path(staging) / STUB_PACKAGE / stub).read_bytes())


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO_DIR.parent / STUB_PACKAGE)
