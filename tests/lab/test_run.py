"""What `make run` writes, and what it leaves alone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from scaler.cli import app
from scaler.lab.run import URL_MARK, WORKLOAD, free_address, metrics_url, write_policy
from scaler.policy.layers import PolicyFile
from tests.ports import free_port


def test_the_policy_it_writes_is_valid_and_names_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    assert write_policy(path, "http://127.0.0.1:1234/metrics") is None
    resolved = PolicyFile.load(path).resolve(WORKLOAD)
    assert resolved.policy.scrape.urls == ("http://127.0.0.1:1234/metrics",)
    assert resolved.policy.replicas.max == 4


def test_an_edited_policy_keeps_its_edits_and_follows_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write_policy(path, "http://127.0.0.1:1234/metrics")
    path.write_text(path.read_text().replace("max: 4", "max: 9"))
    assert write_policy(path, "http://other:8000/metrics") is None
    policy = PolicyFile.load(path).resolve(WORKLOAD).policy
    assert (policy.scrape.urls, policy.replicas.max) == (("http://other:8000/metrics",), 9)
    assert path.read_text().count(URL_MARK) == 1


def test_a_policy_without_the_marked_line_is_left_alone_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("workloads: {}\n")
    said = write_policy(path, "http://127.0.0.1:1/metrics")
    assert said is not None
    assert "left as it is" in said
    assert path.read_text() == "workloads: {}\n"


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("http://host:8000/metrics", "http://host:8000/metrics"),
        ("http://host:8000", "http://host:8000/metrics"),
        ("https://host/", "https://host/metrics"),
        ("http://host/engine/metrics?x=1", "http://host/engine/metrics?x=1"),
    ],
)
def test_an_engine_is_named_by_its_metrics_url(given: str, read: str) -> None:
    assert metrics_url(given) == read


@pytest.mark.parametrize("given", ["host:8000", "ftp://host", "http://", ""])
def test_what_is_not_a_url_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(typer.BadParameter, match="http://host:8000/metrics"):
        metrics_url(given)


def test_a_taken_port_gives_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        other = free_address(address)
    assert other != address
    assert free_address(address) == address


@pytest.mark.parametrize("wanted", ["127.0.0.1:http", "8080", "127.0.0.1:70000", "203.0.113.9:8080"])
def test_what_nothing_can_listen_on_is_refused_with_an_example(wanted: str) -> None:
    with pytest.raises(typer.BadParameter, match="write for example"):
        free_address(wanted)


def test_an_address_of_ipv6_keeps_its_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    assert free_address("[::1]:0").startswith("[::1]:")


@pytest.mark.parametrize(
    ("made", "folder", "said"),
    [
        ("a file", "a file", "cannot be made (File exists)"),
        ("a file", "a file/demo", "cannot be made (Not a directory)"),
        ("demo/policy.yaml/", "demo", "policy.yaml: cannot be used (Is a directory)"),
        ("demo/policy.yaml", "demo", "policy.yaml: cannot be used (not UTF-8 text)"),
    ],
)
def test_a_folder_that_cannot_be_used_is_said_in_words(tmp_path: Path, made: str, folder: str, said: str) -> None:
    path = tmp_path / made
    path.parent.mkdir(exist_ok=True)
    if made.endswith("/"):
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe")
    options = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--engine", "http://127.0.0.1:1"]
    result = CliRunner().invoke(app, ["demo", "--folder", str(tmp_path / folder), *options])
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "--folder" in result.output
