"""Values of the command line that every process takes, and what is said of those that cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from scaler.cli import app
from scaler.process.options import token_from, told

VARIABLE = "LOADTIDE_A_TOKEN"


def test_a_token_is_in_its_file_or_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, " theirs\n")
    (tmp_path / "token").write_text("ours\n")
    assert token_from(tmp_path / "token", VARIABLE) == "ours"
    assert token_from(None, VARIABLE) == "theirs"
    monkeypatch.setenv(VARIABLE, "")
    assert token_from(None, VARIABLE) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read (No such file or directory)"), (b"\xff\xfe", "is not text"), (b" \n", "is empty")],
)
def test_a_file_that_has_no_token_is_refused_and_says_what_to_do(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    """One that was named and is empty would leave open what it should close."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(typer.BadParameter) as refusal:
        token_from(path, VARIABLE)
    assert words in str(refusal.value)
    assert f"{path}: " in str(refusal.value)
    assert f"or leave it out and set {VARIABLE}" in str(refusal.value)


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--store", "memory", "--read-token-file", "nowhere"),
        ("explain", "chat/m", "--read-token-file", "nowhere"),
        ("override", "chat/m", "--end", "--token-file", "nowhere"),
        ("agent", "--workload", "c/m", "--engine", "vllm", "--scaler", "http://s", "--token-file", "nowhere"),
    ],
    ids=lambda command: command[0],
)
def test_every_command_says_so(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("serve", "agent"):  # the runner's own standard error is closed when the other tests log
        monkeypatch.setattr(f"scaler.{room}.command.configure_logs", lambda _level: None)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    said = " ".join(result.output.replace("│", " ").split())
    assert "nowhere: the token cannot be read (No such file or directory); write the token into it" in said


def test_an_error_of_the_system_is_told_without_its_number() -> None:
    assert told(FileNotFoundError(2, "No such file or directory", "cert.pem")) == "cert.pem: No such file or directory"
    assert told(OSError(98, "address already in use")) == "address already in use"
    assert told(ValueError("as it is")) == "as it is"
