"""Pages are one file each, which loads nothing and in which foreign text is text."""

import base64
import hashlib
import json
import re

import pytest

from tileyard.pages.page import FOLDER, VENDORED, Vendored, render

HOSTILE = "</script><script>alert(1)</script>\u202e\x7f<!--"


@pytest.mark.parametrize("one", VENDORED, ids=lambda one: one.file)
def test_vendored_files_are_what_their_table_says(one: Vendored) -> None:
    """Byte for byte; their licence is beside them."""
    assert hashlib.sha256((FOLDER / "vendor" / one.file).read_bytes()).hexdigest() == one.sha256
    name = one.licence.partition("(")[2].rstrip(")")
    assert "Permission is hereby granted" in (FOLDER / "vendor" / name).read_text("utf-8")


def test_no_file_of_others_is_missing_in_the_table() -> None:
    """But for their licences."""
    there = {path.name for path in (FOLDER / "vendor").iterdir()}
    assert {name for name in there if not name.endswith(".LICENSE")} == {
        one.file for one in VENDORED
    }


def test_a_page_uses_only_its_own_style_and_script() -> None:
    """The policy names their hashes, and the page refers to nothing else."""
    page = render("base.html", title="t", answer="a", assets=("assets/report.js",))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src &#39;none&#39;;")
    for kind in ("style", "script"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src &#39;sha256-{digest}&#39;" in policy
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', page)


def test_foreign_text_is_text() -> None:
    """In the page and in its data, where it comes back whole, but for what cannot be seen."""
    page = render("base.html", title=HOSTILE, answer=HOSTILE, data={HOSTILE: [HOSTILE]})
    assert page.count("<script") == 2
    assert "alert(1)</script>" not in page
    assert not re.search(r"[\u202e\x7f]", page)
    (data,) = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x7f", "\\x7f")
    assert json.loads(data) == {shown: [shown]}


def test_a_missing_value_is_an_error() -> None:
    """No page has a hole where a value should be."""
    with pytest.raises(Exception, match="'answer' is undefined"):
        render("base.html", title="t")


def test_no_script_can_end_early() -> None:
    """Scripts and styles are written into pages as they are."""
    for path in (*FOLDER.glob("assets/*"), *FOLDER.glob("vendor/*.min.*")):
        assert not re.search(r"</(?:script|style)|<!--", path.read_text("utf-8")), path
