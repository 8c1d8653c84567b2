"""Starts Debian's Chromium, in which reports are photographed and pages are tested; it downloads nothing."""

import shutil
from pathlib import Path
from typing import Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
)
IS_HERE: Final = bool(shutil.which("chromium") and shutil.which("chromedriver"))


def open_chromium(profile: Path) -> webdriver.Chrome:
    """A new browser with its data in this folder; it keeps what its pages say and ask for."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options, Service(shutil.which("chromedriver")))


def resize(driver: webdriver.Chrome, width: int, height: int = 900, scale: int = 1) -> None:
    """Give the window this size in pixels of the page, each of ``scale`` pixels of a picture."""
    size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
