"""The page of a look inside a block in a real browser: what is drawn, and what its controls do."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.look.test_looking import PIPELINE, PRODUCT, look

from tileyard.look.records import About
from tileyard.verbs.look.view import render_look

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.chrome.service import Service  # noqa: E402 - optional, as above
from selenium.webdriver.common.keys import Keys  # noqa: E402 - likewise

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no Chromium with its driver"),
    pytest.mark.slow,
]
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)
BAD = "</script><img src=x onerror=alert(1)>"
COLOURS = """
const canvas = arguments[0], seen = new Set();
const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 3).join());
return seen.size;
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser that keeps what its pages say, and what they ask the network for."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield browser
    browser.quit()


def show(driver: Any, folder: Path, wrong: str, right: str) -> None:  # noqa: ANN401 - selenium is optional
    """Open the page of a Program whose names and lines are hostile."""
    seen = look(wrong, right)
    about = About(kernel=BAD, file=BAD, source=(BAD, *wrong.split("\n")[1:]))
    (folder / "page.html").write_text(
        render_look(msgspec.structs.replace(seen, about=about)), encoding="utf-8"
    )
    driver.get((folder / "page.html").as_uri())


def press(driver: Any, button: str) -> None:  # noqa: ANN401 - likewise
    """Press a button by its key: a page that scrolls smoothly may not be there yet for a click."""
    driver.find_element("id", button).send_keys(Keys.ENTER)


def complaints(driver: Any) -> list[str]:  # noqa: ANN401 - likewise
    """What the console says, and what was asked for but for the page itself."""
    said = [str(one["message"]) for one in driver.get_log("browser")]
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            said.append(message["params"]["request"]["url"])
    return [one for one in said if not one.startswith(("file:", "data:", "chrome:"))]


def test_a_wrong_statement_is_found_step_by_step(driver: Any, tmp_path: Path) -> None:  # noqa: ANN401 - likewise
    """Heat maps are drawn, the step of the suspect is shown first, and the controls move on."""
    wrong = PRODUCT.replace("bx * 4 : +4], b)", "by * 4 : +4], b)")
    show(driver, tmp_path, wrong, PRODUCT)
    line = wrong.split("\n").index("        copy(B[k * 4 : +4, by * 4 : +4], b)")

    def find(selector: str) -> Any:  # noqa: ANN401 - likewise
        return driver.find_element("css selector", selector)

    assert f"line {line} is where a small change makes all results right" in find(".answer").text
    assert f"line {line}" in find("#now").text
    assert find(".source .current td").text.endswith(str(line))
    got, want, mask = driver.find_elements("css selector", "[data-output] canvas")
    assert driver.execute_script(COLOURS, got) > 10
    assert driver.execute_script(COLOURS, want) > 10
    assert driver.execute_script(COLOURS, mask) == 1
    before = find("#now").text
    press(driver, "next")
    assert find("#now").text != before
    assert "written now" in find("#tiles .written figcaption").text
    press(driver, "last")
    assert not find("#next").is_enabled()
    assert find("#values td.picked").text
    assert complaints(driver) == []
    assert not driver.find_elements("css selector", "img")


def test_copies_in_flight_are_shown(driver: Any, tmp_path: Path) -> None:  # noqa: ANN401 - likewise
    """With the groups that nobody has waited for, on a phone, too."""
    driver.set_window_size(400, 800)
    show(driver, tmp_path, PIPELINE, PIPELINE)
    press(driver, "next")
    press(driver, "next")
    state = driver.find_element("id", "state").text
    assert "Groups in flight" in state
    assert "Copies in flight" in state
    widths = driver.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert widths[0] <= widths[1]
    assert complaints(driver) == []
