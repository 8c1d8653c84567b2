"""Comparisons as pages."""

import re
from pathlib import Path

import msgspec
import pytest
from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, make, record_runs
from tests.unit.verbs.regress.view.test_figure import REPORTS, make_rows
from tests.unit.verbs.regress.view.test_regress import RESULT, timed
from tests.unit.verbs.site.histories import PLANTED, make_repository

from tileyard.cli.main import main
from tileyard.pages.opening import open_report
from tileyard.pages.report import RunLog, render_report
from tileyard.store.results import keep_result
from tileyard.store.trials import TrialStore
from tileyard.verbs.regress.view.page import (
    MOST_HISTORIES,
    MOST_POINTS,
    MOST_ROWS,
    describe_regression,
)

LOG = RunLog(home=Path("/home/t"))


def test_the_worst_is_first() -> None:
    """Before the margin; what has no time is listed with the reason, and all rows are in the table."""
    (subject,) = describe_regression(RESULT, LOG)
    assert (
        subject.answer == "1 kernel slower by more than 2 %. "
        "Fails the comparison: 1 failed, 1 missing, 1 regressed."
    )
    broken = msgspec.structs.replace(RESULT, broken=("GEMM takes 3 MB",))
    assert describe_regression(broken, LOG)[0].answer.endswith("1 regressed, GEMM takes 3 MB.")
    page = render_report([subject])
    shown = re.findall(r'<td>(\w+)</td><td class="wide">([^<]*)</td>', page)
    assert shown[:2] == [("regressed", "slow"), ("equivalent", "even")]
    assert ("missing", "gone|`x`") in re.findall(r"<td>(\w+)</td><td>([^<]*)</td>", page)
    assert "head: mismatch: B[0] is 1, expected &lt;2&gt;" in page
    (table,) = [one.data for one in subject.sections if one.name == "rows"]
    assert len(msgspec.json.decode(msgspec.json.encode(table))["rows"]) == len(RESULT.rows)
    assert '<td class="number">+3.00 .. +5.00</td>' in page
    (same,) = [row for row in table.rows if row[2] == "same"]
    assert table.texts[same[-1]] == "the same binary: not timed"


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


def test_a_slower_kernel_has_its_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the change and its commit, from three runs on, and only for rows that need a look. ``report``
    writes the same page as the run did.
    """
    commits = make_repository(tmp_path / "repository")
    monkeypatch.chdir(tmp_path / "repository")
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path))
    begin = PLANTED - 6
    times = [BASE_NS * (1.001 if day % 2 else 1.0) for day in range(12)]
    slower = [time * (1.06 if day >= 6 else 1.0) for day, time in enumerate(times)]
    for case, own in (("scale/slow", slower), ("scale/even", times), ("scale/young", times[-2:])):
        first = 12 - len(own)
        record_runs(tmp_path, own, case=case, revisions=commits[begin:], first=first)
    with TrialStore.open(tmp_path) as store:  # there this run has the time of another one
        told = ("scale/slow/9/head", "scale/slow/9", "head", f"of {slower[9]}", commits[begin:])
        store.record(msgspec.structs.replace(make(9, *told, slower[9]), device="cpu:1"))
    rows = [
        timed("scale/slow", "regressed", 1.05, 1.06, 1.07),
        timed("scale/young", "regressed", 1.02, 1.03, 1.04),
        timed("scale/even", "equivalent", 0.99, 1.0, 1.01),
    ]
    result = msgspec.structs.replace(RESULT, run="run11", rows=tuple(rows))
    at_once, later = tmp_path / "once.html", tmp_path / "later.html"
    describe = "tileyard.verbs.regress.view.page:describe_regression"
    open_report(str(at_once), describe)(result, tmp_path, result.run)
    keep_result(tmp_path, result.run, result)
    assert main(["report", result.run, "-o", str(later)]) == 0
    page = later.read_text(encoding="utf-8")
    assert page == at_once.read_text(encoding="utf-8")
    assert re.findall("<h3>(.*?)</h3>", page) == ["scale/slow, cpu on cpu:0"]
    assert '<p class="see">12 runs. Each dot is a run' in page
    (change,) = re.findall('<li class="worse">(.*?)</li>', page)
    commit = commits[PLANTED][:10]
    told = rf"\+[56]\.\d+ % \(.*\) with commit {commit}: Softmax rounds once"
    assert re.fullmatch(told, change)


def test_a_page_of_long_histories_is_small(tmp_path: Path) -> None:
    """The worst ten rows have one, with their last runs, and the changes among them."""
    days = MOST_POINTS + 20
    times = [BASE_NS * (1.1 if day in range(10, days - 20) else 1.0) for day in range(days)]
    cases = [f"scale/{number}" for number in range(MOST_HISTORIES + 1)]
    for case in cases:
        own = times if case == cases[0] else times[-3:]
        revisions = ["1a2b" * 10] * days
        record_runs(tmp_path, own, case=case, revisions=revisions, first=days - len(own))
    rows = tuple(timed(case, "regressed", 1.04, 1.05, 1.06) for case in cases)
    result = msgspec.structs.replace(RESULT, run=f"run{days - 1}", rows=rows)
    page = render_report(describe_regression(result, RunLog(home=tmp_path)))
    charts = re.findall('<svg class="history".*?</svg>', page, re.DOTALL)
    assert [chart.count("<circle ") for chart in charts] == [MOST_POINTS] + [3] * 9
    assert f"The last {MOST_POINTS} of {days} runs. " in page
    assert re.findall('<g class="step (.*?)"', page) == ["better"]
    assert len(page) + 9 * len(charts[0]) < 1_500_000
