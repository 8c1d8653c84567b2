"""Runs of suites as pages."""

import re
from pathlib import Path

import msgspec
from tests.unit.show.suite_results import one_of_each, suite_result, verdict

from tileyard.base.model import Outcome
from tileyard.pages.report import MOST_ROWS, RunLog, render_report
from tileyard.verbs.test.result.result import Makespan
from tileyard.verbs.test.view.page import LOG_BYTES, describe_suite, list_cases, sum_up

LOG = RunLog(home=Path("/home/t"))


def test_the_answer_is_one_sentence() -> None:
    """What failed, what is flaky, what does not count; or that all is well."""
    assert sum_up(one_of_each()) == (
        "Failed: 1 case failed, 1 case never ran, 1 case met faults of devices, queues or hosts, of 7 cases; "
        "1 flaky; 1 failure in quarantine, not counted."
    )
    assert sum_up(suite_result(verdict("a/b", Outcome.PASSED))) == "Passed: 1 case in 3 min 20 s."


def test_every_kind_of_case_has_its_place(tmp_path: Path) -> None:
    """Failures with their logs, of which a page has the end, also in a data directory that was moved since;
    the time against the least possible one.
    """
    result = msgspec.structs.replace(one_of_each(), home="/moved/away")
    log = tmp_path / "logs" / "r" / "row" / "f16~2.log"
    log.parent.mkdir(parents=True)
    log.write_text("begin\n" + "x\n" * LOG_BYTES + "<b>\x1b[31mend</b>\n")
    (subject,) = describe_suite(result, RunLog(home=tmp_path))
    assert [one.name for one in subject.sections] == [
        *(
            "failed",
            "faults",
            "spared",
            "flaky",
            "outcomes",
            "makespan",
            "longest",
            "cases",
            "notes",
        ),
    ]
    page = render_report([subject])
    (shown,) = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    assert shown.endswith("&lt;b&gt;end&lt;/b&gt;\n")
    assert "bytes before this are in" in shown
    assert "tileyard test /suites/ops.toml --case row/f16" in page
    assert (
        "this run ended 10.0 % above it. Where the other time went: 4.0 s before the first" in page
    )
    assert "ana, until 2026-12-01: rounds to even since 2.4" in page
    assert "7 cases: not in the smoke run: gemm/big0" in page


def test_a_floor_that_means_nothing_has_no_ratio() -> None:
    """Where starting takes longer than the cases, the page says what the floor contains, and if the
    prediction is a guess.
    """

    def see(achieved_s: float, guessed: int = 0) -> str:
        span = Makespan(slots=2, total_s=4.0, bound_s=2.0, predicted_s=3.0, achieved_s=achieved_s)
        span = msgspec.structs.replace(span, guessed=guessed, low_s=1.0, high_s=20.0)
        (subject,) = describe_suite(msgspec.structs.replace(one_of_each(), makespan=span), LOG)
        return str(next(one.shown.see for one in subject.sections if one.name == "makespan"))

    assert "only the time in which cases ran, without starting processes" in see(9.0)
    assert see(9.0).endswith("; so short a run says little of their order.")
    assert see(30.0).endswith("; this run ended 28 s after it.")
    guess = "a guess, between 1.0 s and 20 s: nothing was known of 2 cases"
    assert see(9.0, guessed=2).endswith(f" The prediction is {guess}.")


def test_logs_do_not_make_a_page_large(tmp_path: Path) -> None:
    """After some of them only their paths are named."""
    failed = tuple(
        verdict(f"t/{n}", Outcome.MISMATCH, message=f"wrong in way {chr(97 + n)}")
        for n in range(26)
    )
    for one in failed:
        path = tmp_path / one.attempts[-1].log
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<" * 40_000 + "\n" + "<\n" * LOG_BYTES)
    page = render_report(describe_suite(suite_result(*failed), RunLog(home=tmp_path)))
    assert len(page) < 1_500_000


def test_a_table_of_too_many_cases_keeps_those_that_failed() -> None:
    """It states how many there are, and the command that writes all."""
    cases = [verdict(f"t/{n}", Outcome.PASSED) for n in range(MOST_ROWS + 1)]
    failed = verdict("t/last", Outcome.MISMATCH)
    result = suite_result(*cases, failed)
    table = list_cases(result)
    assert len(table.rows) == MOST_ROWS
    assert [row[1] for row in table.rows[-2:]] == [f"t/{MOST_ROWS - 2}", "t/last"]
    page = render_report(describe_suite(result, LOG))
    assert "The table has 10,000 of 10,002 rows" in page
    assert f"tileyard trials export {result.run} -o trials.jsonl writes all." in page
    assert not list_cases(suite_result(failed)).note


def test_the_table_has_every_case() -> None:
    """With its last time, and a remark."""
    table = list_cases(one_of_each())
    assert [row[1] for row in table.rows] == [one.case for one in one_of_each().verdicts]
    assert [row[3] for row in table.rows] == [1.0, 30.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    assert "slot:3 went away" in table.texts
