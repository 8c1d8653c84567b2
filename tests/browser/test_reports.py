"""Reports in a real browser: what is drawn, found, sorted and zoomed, and that nothing is loaded."""

from pathlib import Path

import msgspec
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.select import Select
from tests.browser.conftest import Browser
from tests.unit.show.simulated_runs import simulate
from tests.unit.show.suite_results import one_of_each
from tests.unit.verbs.check.test_page import make_report
from tests.unit.verbs.check.test_view_timeline import RACE, step
from tests.unit.verbs.regress.view.test_regress import RESULT
from tests.unit.verbs.tune.view.test_figure import make_grid

from tileyard.base.events import CaseEnded
from tileyard.pages.report import RunLog, render_report
from tileyard.show.timeline import fold_timeline
from tileyard.verbs.check.view.page import describe_checked
from tileyard.verbs.regress.view.page import describe_regression
from tileyard.verbs.test.view.page import describe_suite
from tileyard.verbs.tune.view.page import describe_studies

BAD = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def study() -> str:
    """The page of a study with a timeline, whose kernel and messages are hostile."""
    found = make_grid()
    trials = [
        msgspec.structs.replace(one, message=BAD if number in (4, 9) else one.message)
        for number, one in enumerate(found.trials)
    ]
    found = msgspec.structs.replace(found, kernel=BAD, trials=tuple(trials))
    log = RunLog(home=Path("/home/t"), timeline=fold_timeline(simulate(seed=1, cases=20).events))
    return render_report(describe_studies(found, log))


def test_a_study_is_drawn(browser: Browser, study: str, tmp_path: Path) -> None:
    """On screens of any width, light and dark, with nothing on the console, nothing asked of a network, and
    nothing beside the screen."""
    for width in (400, 1000, 1600):
        for scheme in ("light", "dark"):
            browser.open(study, width, scheme)
            assert browser.colours("#s0-progress .u-wrap canvas") > 3
            assert browser.colours("#s0-timeline canvas") > 5
            assert browser.colours("#s0-finals table") > 5
            wide = "return document.documentElement.scrollWidth"
            assert browser.driver.execute_script(wide) == width
            (tmp_path / f"study-{width}-{scheme}.png").write_bytes(browser.shoot())
            assert width != 400 or not browser.list_faults()
    assert not browser.list_complaints()
    assert browser.find("h1")[0].text.startswith(BAD)


def test_the_table_is_sorted_and_filtered(browser: Browser, study: str) -> None:
    """By the head of each column, by words, and by the outcome; what has no time is last."""
    browser.open(study)
    rows, head = "#s0-configs tbody tr", "#s0-configs th:nth-child({}) button"
    assert browser.texts(f"{rows} td:first-child")[:3] == ["1", "2", "3"]
    browser.click(head.format(6))  # the time
    assert browser.find("#s0-configs th:nth-child(6)")[0].get_attribute("aria-sort") == "ascending"
    browser.click(head.format(6))
    times = browser.texts(f"{rows} td:nth-child(6)")
    assert times[0] == max(filter(None, times))
    assert times[-4:] == [""] * 4
    field = browser.find("#s0-configs [data-filter]")[0]
    field.send_keys("b=")
    assert browser.texts("#s0-configs [data-count]") == ["0 of 20"]
    field.send_keys("4 mismatch")
    assert browser.texts("#s0-configs [data-count]") == ["3 of 20"]
    assert browser.texts(f"{rows} td:nth-child(10)").count(BAD) == 2
    field.clear()
    field.send_keys(" ")
    Select(browser.find("#s0-configs select")[0]).select_by_visible_text("passed")
    assert browser.texts("#s0-configs [data-count]") == ["16 of 20"]


def test_any_two_parameters_are_mapped(browser: Browser, study: str) -> None:
    """Turned, too, with the cells of the winner and the default; never a parameter against itself."""
    browser.open(study)
    framed = [browser.texts(f"#s0-map td.{kind}") for kind in ("best", "kept")]
    before = browser.texts("#s0-map td")
    columns, rows = browser.texts("#s0-map thead th"), browser.texts("#s0-map tbody th")
    across, down = (Select(one) for one in browser.find("#s0-map select"))
    chosen = (across.first_selected_option.text, down.first_selected_option.text)
    across.select_by_visible_text(chosen[1])
    assert (across.first_selected_option.text, down.first_selected_option.text) == chosen[::-1]
    assert sorted(browser.texts("#s0-map td")) == sorted(before)
    assert browser.texts("#s0-map thead th") == rows
    assert browser.texts("#s0-map tbody th") == columns
    assert [len(one) for one in framed] == [1, 1]
    assert [browser.texts(f"#s0-map td.{kind}") for kind in ("best", "kept")] == framed
    assert "Framed: winner of the finals. Dashed: " in browser.texts("#s0-map [data-caption]")[0]


def test_charts_are_read_and_zoomed(browser: Browser, study: str) -> None:
    """The best time over seconds; the timeline by a button and by dragging, and all of it again."""
    browser.open(study)
    place, drawn = browser.find("#s0-timeline canvas")[0], "return arguments[0].toDataURL()"
    whole = browser.driver.execute_script(drawn, place)
    browser.click("#s0-timeline [data-zoom=in]")
    near = browser.driver.execute_script(drawn, place)
    assert near != whole
    ActionChains(browser.driver).move_to_element(place).click_and_hold().move_by_offset(
        90, 0
    ).release().perform()
    assert browser.driver.execute_script(drawn, place) not in (near, whole)
    assert " at " in browser.texts("#s0-timeline [data-read]")[0]
    browser.click("#s0-timeline [data-zoom=all]")
    assert browser.driver.execute_script(drawn, place) == whole
    before = browser.shoot("#s0-progress canvas")
    browser.click("#s0-progress [data-axis=seconds]")
    assert browser.shoot("#s0-progress canvas") != before
    for link in browser.find("nav a"):
        assert browser.find(str(link.get_attribute("hash")))


def test_no_digit_of_a_number_or_of_a_place_is_left_out(browser: Browser) -> None:
    """The 12,346th case of a long suite has this number, and times of a day's run differ along its axis."""
    result = one_of_each()
    failed = next(one for one in result.verdicts if one.is_failure)
    verdicts = (*result.verdicts[:1] * 12_345, failed)
    events = [
        msgspec.structs.replace(one, at=one.at + 86_400.25 * bool(number))
        if isinstance(one, CaseEnded)
        else one
        for number, one in enumerate(simulate(seed=1, cases=3).events)
    ]
    subjects = describe_suite(
        msgspec.structs.replace(result, verdicts=verdicts),
        RunLog(home=Path("/home/t"), timeline=fold_timeline(events)),
    )
    browser.open(render_report(subjects))
    browser.click("#s0-cases th:nth-child(1) button")
    assert browser.texts("#s0-cases tbody tr:first-child td")[0] == "12346"
    said = browser.driver.execute_script(
        """
        const said = [], { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          said.push(text);
          fillText.call(this, text, ...rest);
        };
        for (let times = 0; times < 18; times += 1) document.querySelector("[data-zoom=in]").click();
        said.length = 0;
        document.querySelector("[data-zoom=right]").click();
        return said.filter((one) => one.endsWith(" s"));
        """
    )
    assert len(said) == len(set(said)) > 1


def test_other_pages_are_drawn(browser: Browser) -> None:
    """In one page, in which each has its own tables."""
    log = RunLog(home=Path("/home/t"), timeline=fold_timeline(simulate(seed=2, cases=9).events))
    finding = msgspec.structs.replace(RACE, timeline=(step(1, 22, BAD, 1), step(2, 38, "read", 2)))
    subjects = [
        *describe_suite(one_of_each(), log),
        *describe_regression(RESULT, log),
        *describe_checked(make_report(finding), log),
    ]
    browser.open(render_report(subjects), scheme="dark")
    assert browser.colours("#s0-longest table") > 3
    assert not browser.list_faults()
    assert browser.colours("#s1-intervals table") > 4
    assert browser.texts("#s0-cases [data-count]") == ["7 of 7"]
    assert browser.texts("#s1-rows [data-count]") == ["5 of 5"]
    assert BAD in browser.texts("#s2-mistakes code")
    assert not browser.list_complaints()
