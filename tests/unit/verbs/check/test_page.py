"""Checks of synchronization as pages."""

import re
from pathlib import Path

import msgspec
from tests.unit.verbs.check.test_view_timeline import RACE, step

from tileyard.base.model import SourceLine
from tileyard.pages.report import RunLog, render_report
from tileyard.sync.findings import Finding
from tileyard.verbs.check.view.findings import NotChecked, SyncReport
from tileyard.verbs.check.view.page import describe_checked, sum_up
from tileyard.workers.protocol import SyncChecked

LOG = RunLog(home=Path("/home/t"))


def make_report(*findings: Finding, file: str = "/k.py") -> SyncReport:
    """A check of one kernel with these findings."""
    checked = SyncChecked(
        kernel="gemm", config={"stages": 2}, blocks=4, grid=4, findings=findings, unchecked=()
    )
    return SyncReport(file=file, kernels=(checked,))


def test_the_answer_is_one_sentence() -> None:
    """With what could not be checked."""
    assert sum_up(make_report(RACE)) == "1 mistake in gemm."
    report = msgspec.structs.replace(
        make_report(), not_checked=(NotChecked(kernel="other", reason="no T.Kernel"),)
    )
    assert sum_up(report) == (
        "No mistakes were found in the synchronization of 1 kernel; 1 kernel could not be checked."
    )


def test_a_mistake_has_its_lines_and_its_lanes(tmp_path: Path) -> None:
    """A column for each role and unit, a row for each step, and the two sides marked."""
    file = tmp_path / "k.py"
    file.write_text("one\n    two <b>\n")
    steps = (
        step(1, 23, "issue tma a[0]", 1),
        step(1, 23, "a[0] arrives", unit="tma"),
        step(2, 38, "read a[0]", 2),
    )
    finding = msgspec.structs.replace(
        RACE, access=SourceLine(file=str(file), line=2), block=(0, 1), timeline=steps
    )
    page = render_report(describe_checked(make_report(finding, file=str(file)), LOG))
    assert f"{file}:2: two &lt;b&gt;" in page
    assert "/k.py:3</dd>" in page  # the other side is in a file that cannot be read
    lanes = re.findall(r'<th scope="col">(role [^<]*)</th>', page)
    assert lanes == ["role 1", "role 1: tma", "role 2"]
    rows = re.findall(
        r"<tr(?: class=\"(mark\d)\")?><td class=\"number\">(\d+)</td>(.*?)</tr>", page, re.DOTALL
    )
    assert [(mark, line) for mark, line, _ in rows] == [
        ("mark1", "23"),
        ("", "23"),
        ("mark2", "38"),
    ]
    cells = [re.sub(r"\s+", " ", row).split("<td>")[2:] for *_, row in rows]
    assert [[bool("<code>" in cell) for cell in row].index(True) for row in cells] == [0, 1, 2]


def test_what_has_no_steps_has_no_table() -> None:
    """Only its words."""
    page = render_report(describe_checked(make_report(RACE), LOG))
    assert '<table class="lanes">' not in page
