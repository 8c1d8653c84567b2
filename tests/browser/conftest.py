"""A real browser for the tests of pages, which are skipped where there is none."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from tools.chromium import IS_HERE, open_chromium, resize

AXE = Path(__file__).parents[2] / "build" / "axe.min.js"
MARKS = (
    pytest.mark.skipif(not IS_HERE, reason="there is no Chromium with its driver"),
    pytest.mark.slow,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for mark in MARKS:
                item.add_marker(mark)


class Browser:
    """A browser that keeps what its pages say on the console, and what they ask the network for."""

    def __init__(self, folder: Path) -> None:
        self.driver = open_chromium(folder / "profile")
        self.folder = folder

    def open(self, page: str, width: int = 1000, scheme: str = "light") -> None:
        """Show a page in a window of this width, in light or dark colours."""
        file = self.folder / "page.html"
        file.write_text(page, encoding="utf-8")
        self.visit(file.as_uri(), width, scheme)

    def visit(self, address: str, width: int = 1000, scheme: str = "light") -> None:
        """Likewise what is at an address."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        resize(self.driver, width)
        self.driver.get(address)

    def list_complaints(self) -> list[str]:
        """What the console says, and what was asked for but for the page itself."""
        said = [str(one["message"]) for one in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                said.append(message["params"]["request"]["url"])
        return [one for one in said if not one.startswith(("file:", "data:", "chrome:"))]

    def list_faults(self) -> list[str]:
        """What axe-core calls serious or critical on the page, if `make build/axe.min.js` has brought it."""
        if not AXE.exists():
            return []
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        asked = "const done = arguments[0]; axe.run().then(found => done(found.violations))"
        found = self.driver.execute_async_script(asked)
        return [
            f"{one['id']}: {node['html']}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    def find(self, selector: str) -> list[WebElement]:
        """The elements of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Their visible texts."""
        return [one.text for one in self.find(selector)]

    def colours(self, selector: str) -> int:
        """The number of colours of what is drawn in an element."""
        drawn = Image.open(io.BytesIO(self.shoot(selector)))
        return len(drawn.convert("RGB").quantize(64).getcolors() or [])

    def shoot(self, selector: str = "html") -> bytes:
        """A picture of an element, of the whole page by default."""
        box = self.driver.execute_script(
            "const box = arguments[0].getBoundingClientRect(); return {x: box.x + scrollX, "
            "y: box.y + scrollY, width: box.width, height: box.height, scale: 1}",
            self.find(selector)[0],
        )
        asked = {"captureBeyondViewport": True, "clip": box}
        return base64.b64decode(
            self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"]
        )

    def click(self, selector: str) -> None:
        """Click the first of these elements."""
        self.driver.execute_script("arguments[0].click()", self.find(selector)[0])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests of this file."""
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.driver.quit()
