"""A browser that opens a page, without a head, and tells what the page asked for."""

import base64
import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
)
SECONDS = 20.0  # until something that has to happen has not
POINTS = "g.points_marks > path"

MISSING = pytest.mark.skipif(
    not (shutil.which(BROWSER) and shutil.which(DRIVER)),
    reason="no chromium and chromedriver; apt-get install chromium chromium-driver",
)


class Browser(NamedTuple):
    """A browser and the address of the page."""

    driver: Any
    address: str

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> Any:
        """What a script returns, once that is true of anything."""
        late = time.monotonic() + SECONDS
        while not (found := self.run(script)):
            assert time.monotonic() < late, script
            time.sleep(0.05)
        return found

    def open(self, **fragment: str) -> None:
        """The page anew, all charts drawn."""
        told = "&".join(f"{name}={quote(value, safe='')}" for name, value in fragment.items())
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#{told}" if told else self.address)
        self.wait("return document.getElementById('count')?.value")  # the driver may be back before the scripts ran
        self.run("window.dispatchEvent(new Event('beforeprint'))")
        self.wait("return [...document.querySelectorAll('.chart')].every((chart) => 'drawn' in chart.dataset)")
        self.run("window.dispatchEvent(new Event('afterprint'))")

    def print(self) -> bytes:
        """The page as a PDF of A4 sheets."""
        sheet = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": False}
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", sheet)["data"])

    def points(self, chart: int = 0) -> int:
        return self.run(f"return document.querySelectorAll('[data-chart=\"{chart}\"] {POINTS}').length")

    def keys(self, *names: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(*(getattr(Keys, name) for name in names)).perform()

    def emulate(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def narrow(self, width: int) -> None:
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Browser]:
    """A browser for ``page.html`` in a folder, where it also keeps what it has to keep."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for option in (*OPTIONS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    try:
        yield Browser(driver, (folder / "page.html").as_uri())
    finally:
        driver.quit()


def asked_for(browser: Browser) -> set[str]:
    """What was asked for since this was last asked, but for what is in this page or the browser's own."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return {url.partition("#")[0] for url in asked if not url.startswith(("data:", "about:", "chrome:"))}
