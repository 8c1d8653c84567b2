"""Pages of ``tileyard serve`` in a real browser: they follow a run to its end, and load nothing else."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.browser.conftest import Browser
from tests.unit.show.run_events import begun, ended, planned, started

from tileyard.base.events import RunEnded
from tileyard.base.model import Outcome
from tileyard.base.settings import Settings

pytest.importorskip("starlette")
from selenium.webdriver.support.wait import WebDriverWait

from tileyard.engine.hosts.meeting import Address
from tileyard.store.events import EventLog
from tileyard.verbs.serve.command.site import open_site

TEXTS = "return [...document.querySelectorAll(arguments[0])].map(one => one.innerText).join(' ')"
"""The texts of elements at one moment: each may be replaced at the next."""
BAD = "<img src=x onerror=alert(1)>"


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """The address of a server, which runs in a thread until the block ends."""
    ready, over = threading.Event(), threading.Event()
    found = list[Address]()

    async def run() -> None:
        async with open_site(settings, Address(host="127.0.0.1")) as at:
            found.append(at)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield f"http://{found[0]}"
    finally:
        over.set()
        thread.join()


def test_pages_follow_a_run_to_its_end(tmp_path: Path) -> None:
    """What changes is replaced and focus stays, hostile names are text, and at last there are the trials."""
    settings = Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))
    with served(settings) as address, EventLog(settings.home, "r") as log:
        browser = Browser(tmp_path)
        try:
            driver = browser.driver

            def until(selector: str, text: str) -> None:
                WebDriverWait(driver, 20, 0.05).until(
                    lambda _: text in driver.execute_script(TEXTS, selector)
                )

            driver.get(address)
            until("#connection", "live")
            for event in (started(), planned(BAD), planned("b"), begun(BAD)):
                log.append(event)
            until("section.run", "0 of 10 cases ended")
            driver.execute_script("document.querySelector('section.run a').focus()")
            log.append(ended(BAD, Outcome.CRASHED))
            until("section.run", "1 of 10 cases ended, 1 failed")
            focused = driver.execute_script("return document.activeElement.getAttribute('href')")
            assert focused == "/runs/r"
            browser.click("section.run a")
            until("#connection", "live")
            log.append(begun("b", BAD))
            until("#state td", BAD)
            assert browser.find("img") == []
            log.append(ended("b"))
            until(".answer", "2 of 10 cases ended")
            for width in (400, 1000, 1600):
                size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                wide = "return document.documentElement.scrollWidth"
                assert driver.execute_script(wide) <= width
            log.append(RunEnded(run="r", at=9.0, reason="done"))
            until(".answer", "It has no trial")
            driver.get(f"{address}/devices")
            until("#connection", "live")
            assert not browser.list_faults()
            complaints = [one for one in browser.list_complaints() if not one.startswith(address)]
            assert complaints == []
        finally:
            driver.quit()
