"""The documentation's site in a real browser: it asks nobody else for anything, says nothing on the console, and its
search answers.
"""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.docs.building import built_site
from tests.real.chromium import Browser

pytestmark = pytest.mark.real


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of the requests it answers."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_a_reader_without_a_network_sees_all_of_it(tmp_path: Path, browser: Browser) -> None:
    handler = partial(Quiet, directory=str(built_site(tmp_path)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    own = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        browser.open(own)
        browser.sees("First ten minutes", "body")
        browser.one("input[type=text], input[name=query]").send_keys("kv_emergency_ratio")
        browser.sees("Policy keys", ".md-search-result")
        browser.look_behind(own)
    finally:
        server.shutdown()
        server.server_close()
