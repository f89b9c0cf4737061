"""Make the stubs of the ``.proto`` files here: ``python proto/generate.py [OUT_DIR]``, default where they are used."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

PROTO_DIR = Path(__file__).resolve().parent
#: Which package the stubs of each file live in. protoc sees the .proto at this virtual path, and so writes the import
#: of one stub by the other as ``from scaler.serve import externalscaler_pb2``; the wire package is the file's.
PACKAGES = {
    "externalscaler": "scaler/serve",
    "podresources": "scaler/agent",
    "triton_repository": "scaler/consume",
}
#: Of a service that is only asked the messages are enough.
STUBS = {
    "externalscaler": ("externalscaler_pb2.py", "externalscaler_pb2.pyi", "externalscaler_pb2_grpc.py"),
    "podresources": ("podresources_pb2.py", "podresources_pb2.pyi"),
    "triton_repository": ("triton_repository_pb2.py", "triton_repository_pb2.pyi"),
}


def generate(out_dir: Path | None) -> None:
    """Write the stubs of every file into ``out_dir``, which must exist; None: where they are used.

    Raises RuntimeError where protoc refuses; its own words are on stderr by then.
    """
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    for name, package in PACKAGES.items():
        with tempfile.TemporaryDirectory() as staging:
            arguments = [
                "protoc",
                f"-I{package}={PROTO_DIR}",
                f"-I{well_known}",
                f"--python_out={staging}",
                f"--pyi_out={staging}",
                f"--grpc_python_out={staging}",
                f"{package}/{name}.proto",
            ]
            if protoc.main(arguments) != 0:
                raise RuntimeError(f"protoc refused {name}.proto; see above")
            for stub in STUBS[name]:
                into = PROTO_DIR.parent / package if out_dir is None else out_dir
                (into / stub).write_bytes((Path(staging) / package / stub).read_bytes())


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
