"""The page of a look inside a block in a real browser: what is drawn, and what its controls do."""

from pathlib import Path

import msgspec
from tests.browser.conftest import Browser
from tests.unit.look.test_looking import LONG, PIPELINE, PRODUCT, look

from tileyard.look.records import About
from tileyard.verbs.look.view import render_look

BAD = "<img src=x onerror=alert(1)>"


def page_of(wrong: str, right: str) -> str:
    """The page of a Program whose names and lines are hostile."""
    about = About(kernel=BAD, file=BAD, source=(f"</script>{BAD}", *wrong.split("\n")[1:]))
    return render_look(msgspec.structs.replace(look(wrong, right), about=about))


def test_a_wrong_statement_is_found_step_by_step(browser: Browser, tmp_path: Path) -> None:
    """Heat maps are drawn, the step of the suspect is shown first, and the controls move on."""
    wrong = PRODUCT.replace("bx * 4 : +4], b)", "by * 4 : +4], b)")
    line = wrong.split("\n").index("        copy(B[k * 4 : +4, by * 4 : +4], b)")
    page = page_of(wrong, PRODUCT)
    for width in (400, 1000, 1600):
        for scheme in ("light", "dark"):
            browser.open(page, width, scheme)
            assert browser.colours("[data-output] .map:first-child canvas") > 10
            assert browser.colours("#tiles .written canvas") > 5
            wide = "return document.documentElement.scrollWidth"
            assert browser.driver.execute_script(wide) == width
            (tmp_path / f"look-{width}-{scheme}.png").write_bytes(browser.shoot())
    (answer,), (now,) = browser.texts(".answer"), browser.texts("#now")
    assert f"line {line} is where a small change makes all results right" in answer
    assert f"line {line}," in now
    assert browser.texts(".source .current td")[0].endswith(str(line))
    browser.click("#next")
    assert browser.texts("#now") != [now]
    assert "written now" in browser.texts("#tiles .written figcaption")[0]
    browser.click("#last")
    assert not browser.find("#next")[0].is_enabled()
    assert browser.texts("#values td.picked") != [""]
    assert not browser.list_complaints()
    assert not browser.list_faults()
    assert not browser.find("img")


def test_copies_in_flight_are_shown(browser: Browser) -> None:
    """With the groups that nothing has waited for, the slots that they fill, and bank conflicts."""
    pinned = PIPELINE.replace("[2, 4]", "[2, 4] = layout(i0 * 4 + i1)")
    browser.open(page_of(pinned, pinned))
    assert browser.texts("#conflicts") == ["x is written by a copy: no bank conflicts (1-way)"]
    assert "2 x 4, rows, pinned by the kernel" in browser.texts("#tiles figcaption")[0]
    browser.click("#next")
    browser.click("#next")
    (state,) = browser.texts("#state")
    assert "Groups in flight" in state
    assert "Copies in flight" in state
    assert not browser.list_complaints()


def test_a_wide_output_is_readable(browser: Browser) -> None:
    """Its few rows are drawn high, and one wrong element among many that share a pixel is marked."""
    right = """
def wide(X: float32[2, 4096], Y: out.float32[2, 4096]):
    threads(32)

    copy(X, Y)
    Y[1, 1501] = X[0, 0]
"""
    browser.open(page_of(right.replace("X[0, 0]", "X[0, 0] + 9.0"), right))
    boxes = [one.rect for one in browser.find("[data-output] canvas")]
    assert all(box["height"] >= 40 and box["width"] >= 300 for box in boxes)
    assert "not to scale" in browser.texts("[data-output] figcaption")[0]
    assert browser.colours("[data-output] .map:last-child canvas") > 1


def test_contents_that_were_not_kept_are_not_undefined(browser: Browser) -> None:
    """A map and its values say so, until an element is written with its content."""
    found = look(LONG, LONG)
    steps = [
        msgspec.structs.replace(
            step,
            before=tuple(msgspec.structs.replace(one, content=-1, value="") for one in step.before),
        )
        for step in found.steps
    ]
    browser.open(render_look(msgspec.structs.replace(found, steps=tuple(steps))))
    assert "63 not kept" in browser.texts("[data-output] figcaption")[0]
    browser.click("#last")
    assert "from " in browser.texts("#tiles .written figcaption")[0]
    assert "63 not kept" in browser.texts("#tiles .written figcaption")[0]
    assert "undefined" not in browser.texts("#tiles .written figcaption")[0]
    assert "not kept" in browser.texts("#values td")
    assert not browser.list_faults()
