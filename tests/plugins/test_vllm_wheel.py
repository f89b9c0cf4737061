"""What an engine image gets: one module without dependencies, and vLLM's entry point."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import Distribution
from pathlib import Path

import loadtide_vllm

from tests.plugins.wheel import SOURCE, unpacked


def test_the_wheel_is_one_module_with_vllm_s_entry_point_and_needs_nothing(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    [metadata] = folder.glob("*.dist-info")
    assert [path.name for path in folder.iterdir() if path != metadata] == ["loadtide_vllm.py"]
    distribution = Distribution.at(metadata)
    assert distribution.version == loadtide_vllm.__version__
    assert distribution.requires is None
    [entry] = distribution.entry_points
    assert (entry.group, entry.name, entry.value) == ("vllm.general_plugins", "loadtide", "loadtide_vllm:register")


def test_the_module_imports_the_standard_library_and_only_in_functions_what_vllm_brings() -> None:
    tree = ast.parse((SOURCE / "loadtide_vllm.py").read_text(encoding="utf-8"), feature_version=(3, 9))

    def imported(nodes: list[ast.stmt] | ast.AST) -> set[str]:
        walked = ast.walk(nodes) if isinstance(nodes, ast.AST) else iter(nodes)
        found = set()
        for node in walked:
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
        return found

    assert imported(tree.body) <= sys.stdlib_module_names
    assert imported(tree) - sys.stdlib_module_names == {"vllm", "prometheus_client"}
