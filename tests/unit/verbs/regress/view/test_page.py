"""Comparisons as pages."""

import re
from pathlib import Path

import msgspec
from tests.unit.verbs.regress.view.test_figure import make_rows
from tests.unit.verbs.regress.view.test_regress import RESULT

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
