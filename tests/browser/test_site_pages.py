"""A team's site in a real browser: charts, the filter and order of the table, and links to histories."""

import io
from pathlib import Path

import msgspec
from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from tests.browser.conftest import Browser
from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, record_runs
from tests.unit.verbs.site.histories import record_suite
from tools.chromium import resize

from tileyard.cli.main import main
from tileyard.store.base import TrialQuery
from tileyard.store.trials import TrialStore

BAD = "<img src=x onerror=alert(1)>"
BLUE, ORANGE = (0, 114, 178), (179, 74, 0)


def count_pixels(driver: Chrome, selector: str, colour: tuple[int, ...]) -> int:
    """The number of pixels of an element that have this colour."""
    picture = driver.find_element(By.CSS_SELECTOR, selector).screenshot_as_png
    with Image.open(io.BytesIO(picture)) as image:
        found = image.convert("RGB").getcolors(1 << 24) or []
    return sum(count for count, own in found if own == colour)


def list_shown(driver: Chrome) -> list[str]:
    """The cases in the order of the table, without those that are filtered out."""
    rows = driver.find_elements(By.CSS_SELECTOR, "#cases tbody tr")
    return [row.text.split()[0] for row in rows if row.is_displayed()]


def record_elsewhere(home: Path, case: str) -> None:
    """The same runs timed a case on another device, too: it is one case in two rows."""
    with TrialStore.open(home) as store:
        for one in store.list_trials(TrialQuery(limit=0)):
            if one.case.startswith(case):
                store.record(msgspec.structs.replace(one, id=f"{one.id}9", device="cpu:1"))


def test_a_reader_finds_what_became_slower(browser: Browser, tmp_path: Path) -> None:
    """By the answer, the filter, the groups and the order of the table, and the link to its history."""
    home, site = tmp_path / "home", tmp_path / "site"
    record_runs(home, [BASE_NS] * 5 + [1.1 * BASE_NS] * 5, case="softmax/config-1")
    record_runs(home, [0.5 * BASE_NS] * 10, case=f"{BAD}/config-1")
    record_elsewhere(home, BAD)
    record_suite(home, (2.0, 2.0, 1.0), failing=True)
    assert main(["site", str(site), "--home", str(home)]) == 0

    driver = browser.driver
    browser.visit((site / "index.html").as_uri())
    answer = driver.find_element(By.CLASS_NAME, "answer").text
    assert "1 of 3 cases is slower: softmax/config-1 on cpu:0, +10." in answer
    assert list_shown(driver) == ["rows/f16_32x48", "softmax/config-1", *["<img"] * 2]
    assert count_pixels(driver, ".spark", BLUE) > 30
    assert not [*browser.list_complaints(), *browser.list_faults()]

    field = driver.find_element(By.ID, "filter")
    field.send_keys("SOFTMAX regress")
    assert list_shown(driver) == ["softmax/config-1"]
    assert driver.find_element(By.ID, "count").text == "1 of 3 cases"
    field.clear()
    field.send_keys(" ")
    Select(driver.find_element(By.ID, "group")).select_by_value("failed")
    assert list_shown(driver) == ["rows/f16_32x48"]
    Select(driver.find_element(By.ID, "group")).select_by_value("")
    heads = driver.find_elements(By.CSS_SELECTOR, "#cases th button")
    head = next(one for one in heads if one.text == "vs base")
    head.click()
    head.click()
    assert list_shown(driver)[0] == "softmax/config-1"

    driver.find_element(By.LINK_TEXT, "softmax/config-1").click()
    assert driver.find_element(By.TAG_NAME, "h1").text == "softmax/config-1"
    assert count_pixels(driver, "svg.history", BLUE) > 200
    assert count_pixels(driver, "svg.history", ORANGE) > 50
    assert not [*browser.list_complaints(), *browser.list_faults()]
    driver.find_element(By.LINK_TEXT, "All cases").click()
    driver.find_element(By.LINK_TEXT, f"{BAD}/config-1").click()
    assert driver.find_element(By.TAG_NAME, "h1").text == f"{BAD}/config-1"
    assert not browser.list_complaints()

    resize(driver, 500)
    wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not driver.execute_script(wide)
