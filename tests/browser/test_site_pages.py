"""A team's site in a real browser: charts, the filter and order of the table, and links to histories."""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, record_runs
from tests.unit.verbs.site.histories import record_suite

from tileyard.cli.main import main

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.chrome.service import Service  # noqa: E402 - optional, as above
from selenium.webdriver.common.by import By  # noqa: E402 - likewise
from selenium.webdriver.support.select import Select  # noqa: E402 - likewise

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no Chromium with its driver"),
    pytest.mark.slow,
]
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
)
BAD = "<img src=x onerror=alert(1)>"
BLUE, ORANGE = (0, 114, 178), (179, 74, 0)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """A new Chromium, which ends with the test."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,1400"):
        options.add_argument(flag)
    options.add_argument("--blink-settings=preferredColorScheme=1")  # light
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def count_pixels(browser: webdriver.Chrome, selector: str, colour: tuple[int, ...]) -> int:
    """The number of pixels of an element that have this colour."""
    picture = browser.find_element(By.CSS_SELECTOR, selector).screenshot_as_png
    with Image.open(io.BytesIO(picture)) as image:
        found = image.convert("RGB").getcolors(1 << 24) or []
    return sum(count for count, own in found if own == colour)


def list_shown(browser: webdriver.Chrome) -> list[str]:
    """The cases in the order of the table, without those that are filtered out."""
    rows = browser.find_elements(By.CSS_SELECTOR, "#cases tbody tr")
    return [row.text.split()[0] for row in rows if row.is_displayed()]


def check_quiet(browser: webdriver.Chrome) -> None:
    """No message of the console, and nothing loaded."""
    loaded = "return performance.getEntriesByType('resource').map((one) => one.name)"
    assert browser.execute_script(loaded) == []
    assert browser.get_log("browser") == []


def test_a_reader_finds_what_became_slower(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """By the answer, the filter, the groups and the order of the table, and the link to its history."""
    home, site = tmp_path / "home", tmp_path / "site"
    record_runs(home, [BASE_NS] * 5 + [1.1 * BASE_NS] * 5, case="softmax/config-1")
    record_runs(home, [0.5 * BASE_NS] * 10, case=f"{BAD}/config-1")
    record_suite(home, (2.0, 2.0, 1.0), failing=True)
    assert main(["site", str(site), "--home", str(home)]) == 0

    browser.get((site / "index.html").as_uri())
    answer = browser.find_element(By.CLASS_NAME, "answer").text
    assert "1 of 3 cases is slower, most softmax/config-1 on cpu:0: +10." in answer
    assert list_shown(browser) == ["rows/f16_32x48", "softmax/config-1", "<img"]
    assert count_pixels(browser, ".spark", BLUE) > 30
    check_quiet(browser)

    field = browser.find_element(By.ID, "filter")
    field.send_keys("SOFTMAX regress")
    assert list_shown(browser) == ["softmax/config-1"]
    assert browser.find_element(By.ID, "count").text == "1 of 3 cases"
    field.clear()
    field.send_keys(" ")
    Select(browser.find_element(By.ID, "group")).select_by_value("failed")
    assert list_shown(browser) == ["rows/f16_32x48"]
    Select(browser.find_element(By.ID, "group")).select_by_value("")
    heads = browser.find_elements(By.CSS_SELECTOR, "#cases th button")
    head = next(one for one in heads if one.text == "vs base")
    head.click()
    head.click()
    assert list_shown(browser)[0] == "softmax/config-1"

    browser.find_element(By.LINK_TEXT, "softmax/config-1").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "softmax/config-1"
    assert count_pixels(browser, "svg.history", BLUE) > 200
    assert count_pixels(browser, "svg.history", ORANGE) > 50
    check_quiet(browser)
    browser.find_element(By.LINK_TEXT, "All cases").click()
    browser.find_element(By.LINK_TEXT, f"{BAD}/config-1").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == f"{BAD}/config-1"
    check_quiet(browser)

    browser.set_window_size(500, 900)
    wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.execute_script(wide)
