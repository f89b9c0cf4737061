"""URLs as they may be told: whatever stands where a secret may be is gone, also out of what is no URL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.addresses import is_http_url, no_url, shown_text, shown_url, to_complete, without_login

PASSWORDS = st.text(st.characters(codec="ascii", exclude_categories=("C", "Z")), min_size=1).map(
    lambda text: f"hush{text}hush"
)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://vllm:8000/metrics", "http://vllm:8000/metrics"),
        ("http://u:hush@vllm:8000/metrics?key=hush#hush", "http://vllm:8000/metrics"),
        ("http://u:hush/@hush@vllm", "http://vllm"),
        ("rediss://u:hush@redis:6380/2", "rediss://redis:6380/2"),
        ("u:hush@prometheus:9090", "prometheus:9090"),
        ("http://[broken", "http://[broken"),
        ("memory", "memory"),
    ],
)
def test_a_url_is_told_without_what_may_be_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@given(PASSWORDS, st.sampled_from(["http://u:{}@h/m", "u:{}@h:1", "http://u:x@h/m?key={}", "://{}@h"]))
def test_no_password_is_told_whatever_it_holds(password: str, url: str) -> None:
    typed = url.format(password)
    assert "hush" not in shown_url(typed) + no_url(typed, "http://x")
    if "://" in typed:
        assert "hush" not in shown_text(f"this: {typed}")


def test_texts_are_told_without_the_secrets_of_their_urls() -> None:
    said = "p.yaml:3: 'http://u:hush@a/m?k=hush' and http://b:1/m, ftp://u:hu/sh@c, ['http://d','http://u:hush@e']"
    assert shown_text(said) == "p.yaml:3: 'http://a/m' and http://b:1/m, ftp://c, ['http://d','http://e']"
    without_scheme = "--prometheus u:hush@h:9090: no URL, key=u:hush@h, 'u:hush@h'"
    assert shown_text(without_scheme) == "--prometheus h:9090: no URL, key=h, 'h'"


def test_a_url_to_complete_names_what_is_missing_and_where() -> None:
    assert to_complete("http://u:hush@h:1/m?a=hush&b=") == "http://USER:PASSWORD@h:1/m?a=VALUE&b=VALUE"
    assert to_complete("http://[fd00::1]:8000/metrics") == "http://[fd00::1]:8000/metrics"


def test_a_login_becomes_the_header_that_it_means() -> None:
    assert without_login("http://us%20er:p%40ss@h:1/m") == ("http://h:1/m", "Basic dXMgZXI6cEBzcw==")
    assert without_login("http://h/m") == ("http://h/m", None)


@pytest.mark.parametrize(
    "url", ["vllm:8000", "http://", "http://u:p/w@h", "http://h:0", "http://h:99999", "http://h:x", "http://h/ m"]
)
def test_what_cannot_be_asked_is_no_url(url: str) -> None:
    assert not is_http_url(url)


def test_a_password_that_breaks_the_url_is_told_how_to_be_written() -> None:
    assert "%2F" in no_url("http://u:p/w@h", "http://x")
    assert "%2F" not in no_url("vllm:8000", "http://x")
