"""SGLang's server on a machine without a GPU: ``python sglang_without_gpu.py ARGUMENTS OF sglang.launch_server``.

Runs inside the engine's environment, never in ours. All of SGLang that has a say in when a request runs and in what its
page says is its own: HTTP, tokenizer manager, scheduler, radix cache, metrics. Its layers compute in plain torch, which
they do by themselves where they find no kernels (``forward_native``, ``--attention-backend torch_native``). But its
modules also name, when they are imported, two packages that cannot be had here: ``triton``, which is made for GPUs, and
``torchvision``, whose wheels want CUDA. Both are stood in for: names to import and decorators, nothing that computes.
SGLang does the same for triton on Apple's machines (``sglang/_platform_stubs.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ABSENT = ("triton", "torchvision")


class _Nothing:
    """A class to inherit from, to be constructed with anything, and to be no instance of."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


class _Absent(ModuleType):
    """A module where every name is found: a capital begins a class, all else is a decorator with names of its own."""

    #: SGLang compares it.
    __version__ = "3.0.0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        found = type(name, (_Nothing,), {}) if name[0].isupper() else _Absent(full)
        setattr(self, name, found)
        return found

    def __call__(self, *arguments: object, **_: object) -> object:
        """``@triton.jit`` and ``@triton.jit(...)`` leave the kernel a plain function, which nobody calls."""
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else lambda kernel: kernel


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ABSENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to do: names are made when asked for."""


def stand_in() -> None:
    """From here on the two can be imported. torch and transformers look for them before that, and know: not there."""
    import torch._inductor.compile_fx  # noqa: F401
    from transformers.utils import import_utils

    assert not import_utils.is_torchvision_available()
    assert not import_utils.is_torchvision_v2_available()
    sys.meta_path.append(_Finder())


# Also in the processes that it spawns: they import this file as their main module.
stand_in()

if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args(sys.argv[1:]))
