"""Comparisons as pages."""

import re
from pathlib import Path

import msgspec
import pytest
from tests.unit.verbs.regress.view.test_figure import REPORTS, make_rows
from tests.unit.verbs.regress.view.test_regress import RESULT

from tileyard.cli.main import main
from tileyard.pages.report import render_report
from tileyard.pages.run_log import RunLog
from tileyard.verbs.regress.view.page import MOST_ROWS, describe_regression

LOG = RunLog(home=Path("/home/t"))


def test_the_worst_is_first() -> None:
    """Before the margin; what has no time is listed with the reason, and all rows are in the table."""
    (subject,) = describe_regression(RESULT, LOG)
    assert (
        subject.answer
        == "1 kernel slower by more than 2 %. Gates: 1 failed, 1 missing, 1 regressed."
    )
    page = render_report([subject])
    shown = re.findall(r'<td>(\w+)</td><td class="wide">([^<]*)</td>', page)
    assert shown[:2] == [("regressed", "slow"), ("equivalent", "even")]
    assert ("missing", "gone|`x`") in re.findall(r"<td>(\w+)</td><td>([^<]*)</td>", page)
    assert "head: mismatch: B[0] is 1, expected &lt;2&gt;" in page
    (table,) = [one.data for one in subject.sections if one.name == "rows"]
    assert len(msgspec.json.decode(msgspec.json.encode(table))["rows"]) == len(RESULT.rows)


def test_many_rows_are_cut_in_the_chart_alone() -> None:
    """The sentence says of how many."""
    many = msgspec.structs.replace(RESULT, rows=make_rows(500))
    page = render_report(describe_regression(many, LOG))
    assert f"These are the worst {MOST_ROWS} of 499." in page
    assert len(page) < 300_000


@pytest.mark.slow
def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And names it in its last line."""
    page = tmp_path / "pages" / "report.html"
    assert main(["regress", "--reports", REPORTS, "--report", str(page)]) == 1
    assert "<h1>in 4 reports of" in page.read_text(encoding="utf-8")
    assert capsys.readouterr().err.splitlines()[-1] == f"report: {page}"


def test_a_file_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is compared."""
    assert main(["regress", "--reports", "no file", "--report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"tileyard: cannot write {tmp_path}: Is a directory\n"
