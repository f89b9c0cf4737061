"""A real Chromium for the tests of the page: Debian's package, driven through its own driver.

``Browser`` remembers what the page did behind its face: every request, and every line on the console, which is also
where a browser tells what the content security policy has stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")
PROGRAMS = ("chromium", "chromedriver")
AUDIT = Path(__file__).with_name("page_audit.js")
SEEN_SECONDS = 60.0


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No Chromium can be had on this machine; the text says what would help."""


class Browser:
    """One window. ``requests`` and ``console`` grow with :meth:`listen`."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.requests: list[str] = []
        self.console: list[str] = []
        self._excused: list[str] = []

    def open(self, url: str) -> None:
        """Go there, and forget what pages before it did."""
        self.driver.get("about:blank")
        self.listen()
        self.requests, self.console, self._excused = [], [], []
        self.driver.get(url)

    def listen(self) -> None:
        """Take over what has been requested and said since last time."""
        for entry in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        self.console += [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def excuse(self, what: str) -> None:
        """Console lines with this in them are what the test is about."""
        self._excused.append(what)

    def look_behind(self, own: str) -> None:
        """Fail if this page has asked anybody but ``own``, or if anything was said on the console. Leaves the page."""
        self.driver.get("about:blank")
        self.listen()
        assert [url for url in self.requests if not url.startswith((own, "data:", "about:"))] == []
        assert any(url.startswith(own) for url in self.requests), "the requests were not seen at all"
        assert [line for line in self.console if not any(what in line for what in self._excused)] == []

    def said(self) -> str:
        """What the page has told a screen reader last."""
        return str(self.one("#said").get_attribute("textContent"))

    def size(self, width: int, height: int) -> None:
        """Of the page in CSS pixels; below 500 a phone's."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name: str) -> None:
        """``light`` or ``dark``, as the reader's system asks for it."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def text(self, selector: str = "main") -> str:
        """What a person reads there, on one line; empty where it is not to be seen."""
        try:
            return " ".join(" ".join(found.text for found in self.all(selector)).split())
        except StaleElementReferenceException:  # the page has just replaced it
            return ""

    def all(self, selector: str) -> list[WebElement]:
        """Every element there, seen or not."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The first element there."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The text of every element there."""
        return self._whatever_is_replaced(lambda: [each.text for each in self.all(selector)])

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element there whose text has ``text`` in it."""
        self._whatever_is_replaced(lambda: next(each for each in self.all(selector) if text in each.text).click())

    def reads(self, what: str, selector: str) -> None:
        """Nothing but ``what`` is there, now or soon."""
        self.until(lambda: self.text(selector), lambda text: text == what, f"{what!r} and nothing else in {selector}")

    def _whatever_is_replaced(self, do: Callable[[], T]) -> T:
        """Do it again where the page has drawn anew between finding an element and touching it."""
        due = time.monotonic() + SEEN_SECONDS
        while True:
            try:
                return do()
            except (StaleElementReferenceException, StopIteration):
                if time.monotonic() > due:
                    raise
            time.sleep(0.1)

    def sees(self, what: str, selector: str = "main", seconds: float = SEEN_SECONDS) -> str:
        """The text there, once ``what`` is in it; fails after ``seconds``."""
        return self.until(lambda: self.text(selector), lambda text: what in text, f"{what!r} in {selector}", seconds)

    def until(
        self, look: Callable[[], Any], wanted: Callable[[Any], bool], what: str, seconds: float = SEEN_SECONDS
    ) -> Any:
        """What ``look`` gives as soon as it is as wanted."""
        due = time.monotonic() + seconds
        while not wanted(seen := look()):
            assert time.monotonic() < due, f"not within {seconds:g} s: {what}; seen last: {seen}"
            time.sleep(0.1)
        return seen

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        """The focused element: its id, else its text, else its tag."""
        script = "const e = document.activeElement; return e.id || e.textContent.trim() || e.tagName"
        return str(self.driver.execute_script(script))  # type: ignore[no-untyped-call]

    def requests_of(self, part: str) -> list[str]:
        """The requests so far with this in their URL."""
        self.listen()
        return [url for url in self.requests if part in url]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.driver.execute_script("return document.documentElement.scrollWidth - innerWidth"))  # type: ignore[no-untyped-call]

    def spills(self, selector: str) -> list[str]:
        """The texts that stick out of the right edge of an element there: the page need not be wider for it."""
        script = """
            const found = [];
            for (const box of document.querySelectorAll(arguments[0])) {
                for (const each of box.querySelectorAll("*")) {
                    if (each.getBoundingClientRect().right > box.getBoundingClientRect().right + 1)
                        found.push(each.textContent);
                }
            }
            return found;
        """
        return list(self.driver.execute_script(script, selector))  # type: ignore[no-untyped-call]

    def audit(self) -> list[str]:
        """What stands in the way of a person with other eyes or hands: names, contrast, focus order, headings."""
        found: list[str] = self.driver.execute_script(AUDIT.read_text())  # type: ignore[no-untyped-call]
        return found

    def screenshot(self, path: Path) -> None:
        """The page as it is shown."""
        self.driver.save_screenshot(str(path))


TAB, RIGHT, LEFT, HOME, END = Keys.TAB, Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.HOME, Keys.END
ENTER, ESCAPE, PAGE_UP = Keys.ENTER, Keys.ESCAPE, Keys.PAGE_UP


@contextmanager
def running() -> Iterator[Browser]:
    """A browser without a screen, ended with the block. Raises ``Unavailable``."""
    programs = [shutil.which(name) for name in PROGRAMS]
    for name, program in zip(PROGRAMS, programs, strict=True):
        if program is None:
            raise Unavailable(f"{name} is not installed; on Debian: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for argument in ("--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium has no sandbox for root, and the page is our own
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs[1])))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
