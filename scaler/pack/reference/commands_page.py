"""``commands.md``: every command with its options, defaults and environment variables, as ``--help`` has them."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from typer.main import get_command

from scaler.cli import app
from scaler.pack.reference.markdown import code, table

_MARKUP = re.compile(r"\[/?bold\]")
_DIM_LINE = re.compile(r"\[dim\]([^\n]*?)\[/dim\]")
_DIM = re.compile(r"\[dim\](.*?)\[/dim\]", re.DOTALL)
#: **Try it:** and a command.
_EXAMPLE = re.compile(r"(\*\*[A-Z][^*]*:\*\*) (loadtide .*)")
_HEAD = """\
# Commands

Every command has this under `--help` as well. Options that name an environment variable are read from it where they
are not given.
"""


def commands_page() -> str:
    """The page."""
    group: Any = get_command(app)
    return _HEAD + "".join(_command(name, command) for name, command in group.commands.items())


def _command(name: str, command: Any) -> str:
    parameters = [each for each in command.params if not each.hidden]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    usage = " ".join(["loadtide", name, *(_placeholder(each) for each in arguments), "[OPTIONS]"])
    parts = [f"\n## loadtide {name}\n\n`{usage}`\n\n{_help(command.help)}\n"]
    told = [each for each in parameters if each not in arguments or each.help]
    if told:
        heads = ("option", "takes", "default", "environment", "meaning")
        parts.append("\n" + table(heads, map(_row, told)))
    return "".join(parts)


def _help(text: str) -> str:
    """The docstring, whose markup is rich's: bold, and dim for examples, of one line or of several."""
    text = _MARKUP.sub("**", _DIM_LINE.sub(r"`\1`", text))
    parts = []
    for index, part in enumerate(_DIM.split(text)):
        parts += (
            [f"```text\n{part}\n```"]
            if index % 2
            else [_paragraph(each) for each in part.split("\n\n") if each.strip()]
        )
    return "\n\n".join(parts)


def _paragraph(text: str) -> str:
    text = " ".join(text.split())
    example = _EXAMPLE.fullmatch(text)
    return f"{example[1]}\n\n```text\n{example[2]}\n```" if example else text


def _row(parameter: Any) -> tuple[str, ...]:
    names = ", ".join(map(code, (*parameter.opts, *parameter.secondary_opts)))
    if parameter.param_type_name == "argument":
        names = code(_placeholder(parameter))
    takes = f"{_takes(parameter)}, repeatable" if parameter.multiple else _takes(parameter)
    return names, takes, _default(parameter), code(parameter.envvar or ""), parameter.help or ""


def _placeholder(parameter: Any) -> str:
    text: str = parameter.metavar or parameter.name.upper()
    return text if parameter.required else f"[{text}]"


def _takes(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " ".join(code(str(member.value)) for member in kind)
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    word = {"int": "whole number", "float": "number", "str": "text", "Path": "path"}.get(
        getattr(kind, "__name__", ""), "text"
    )
    bounds = f"{'' if low is None else f'{low:g}'} .. {'' if high is None else f'{high:g}'}".strip()
    word = word if low is None and high is None else f"{word}, {bounds}"
    return code(parameter.metavar) if parameter.metavar else word


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "must be given"
    if default is None or default is False or default == [] or callable(default):
        return ""
    return code(str(default.value if isinstance(default, Enum) else default))
