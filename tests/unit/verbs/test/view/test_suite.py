"""The closing table of a suite's run, as text of eighty columns."""

import html
import io
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.conftest import ROOT
from tests.unit.show.suite_results import one_of_each, suite_result, verdict

from tileyard.base.decoding import decode_json
from tileyard.base.model import Mismatch, Outcome
from tileyard.base.quarantine import Quarantine
from tileyard.store.base import CaseTimes
from tileyard.verbs.test.plan.budget import Bounds, narrow
from tileyard.verbs.test.plan.durations import summarize_history
from tileyard.verbs.test.plan.pieces import Shard
from tileyard.verbs.test.plan.plan import predict
from tileyard.verbs.test.result.result import (
    Attempted,
    CaseVerdict,
    Expected,
    LeftOut,
    Makespan,
    Piece,
    Plan,
    SuiteResult,
)
from tileyard.verbs.test.view.markdown import render_page
from tileyard.verbs.test.view.plan import LISTED, print_history, print_prediction
from tileyard.verbs.test.view.suite import Summary, print_suite, write_summary
from tileyard.verbs.test.view.words import Report, rerun_command

WHOLE = """\
suite ops, policy nightly: 7 cases in 3 min 20 s, run r
        2  passed
        2  mismatch
        1  infra_error
        1  skipped
        1  not_run
        1  of these flaky: passed after they had failed
        1  of these in quarantine: failed, not counted
        8  left out

failed (1)
  mismatch  row/f16 (2 attempts): y[3, 4] is 1.0, expected 2.0; 12 of 4096
    elements are wrong (0.293 %)
    at     /suites/ops.toml:7
    log    /home/t/logs/r/row/f16~2.log
    rerun  tileyard test ops.toml --case row/f16

failed by devices, queues or hosts (1)
  infra_error  cast/f4: slot:3 went away
    at     /suites/ops.toml:12
    log    /home/t/logs/r/cast/f4~1.log
    rerun  tileyard test ops.toml --case cast/f4

in quarantine, failed, not counted (1)
  mismatch  cast/f8: y[0] is 1, expected 2
    at     /suites/ops.toml:12
    log    /home/t/logs/r/cast/f8~1.log
    rerun  tileyard test ops.toml --case cast/f8
    owner  ana until 2026-12-01: rounds to even since 2.4

flaky (1)
  col/f16: passed at attempt 2, before that crashed: died of SIGBUS
    log    /home/t/logs/r/col/f16~1.log

never ran (1)
        1  the run ended before this case was reached: sort/i8

skipped (1)
        1  proven by run q: col/f32

left out (8)
        7  not in the smoke run: gemm/big0, gemm/big1, gemm/big2, gemm/big3, ...
        1  skip list: takes a day: gemm/tiny

families without a run (2): gemm, softmax

longest (5)
        30 s   85.7%  row/f16
       1.0 s    2.9%  row/f32
       1.0 s    2.9%  col/f16
       1.0 s    2.9%  col/f32
       1.0 s    2.9%  cast/f8

time: 100 min 0 s of work on 64 slots; lower bound max(longest piece,
  total/slots) 100 s, predicted 104 s, achieved 110 s; gap 10 s, 10.0%: 4.0 s
  before the first case could start
the quarantine of row/* ended on 2026-11-01: 2 cases gate again
FAILED: 1 case failed, 1 case never ran, 1 case met faults of devices, queues or
  hosts
"""


def show(result: SuiteResult, rest: str = "") -> str:
    """What is printed of a result, eighty columns wide."""
    console = Console(file=io.StringIO(), width=80, record=True)
    print_suite(console, result, rerun_command("ops.toml"), rest)
    return console.export_text()


def test_all_that_can_happen_is_told() -> None:
    """Counts, everything that went wrong, what did not run and where the time went."""
    assert show(one_of_each()) == WHOLE


def test_a_run_without_trouble_is_short() -> None:
    """Sections of which there is nothing are left off."""
    result = msgspec.structs.replace(
        suite_result(verdict("row/a", Outcome.PASSED)), policy="", seconds=1.5
    )
    expected = "suite ops: 1 case in 1.5 s, run r\n        1  passed\n\nPASSED\n"
    assert show(result) == expected


def test_a_thousand_failures_stay_readable() -> None:
    """Twenty are shown, the others counted by outcome and testcase, and it says where all are."""
    failed = [verdict(f"t{i % 10}/c{i}", Outcome.CRASHED, message=f"boom {i}") for i in range(1000)]
    text = show(suite_result(*failed), rest="out/summary.json")
    expected = (
        "  and 980 more:\n"
        "       98  crashed in t0\n"
        "       98  crashed in t1\n"
        "       98  crashed in t2\n"
        "       98  crashed in t3\n"
        "       98  crashed in t4\n"
        "      490  others\n"
        "  all of them: out/summary.json\n"
    )
    assert expected in text
    assert "all of them: tileyard trials --run r --rows 1000\n" in show(suite_result(*failed))
    assert text.count("rerun") == 20
    assert len(text.splitlines()) < 120


def test_equal_failures_are_shown_once() -> None:
    """From three on: the message, the cases, and the log and the command of the first."""
    same = [verdict(f"t/c{i}", Outcome.COMPILE_ERROR, message="m.cpp:3: no") for i in range(79)]
    two = [verdict(f"u/c{i}", Outcome.CRASHED, message="died") for i in range(2)]
    text = show(suite_result(*same, *two))
    assert "  compile_error  79 cases, the same message: m.cpp:3: no\n" in text
    assert text.count("m.cpp:3") == 1
    assert "    log    /home/t/logs/r/t/c0~1.log\n" in text
    assert "    all    tileyard trials --run r --rows 81\n" in text
    assert text.count("rerun") == 3
    assert len(text.splitlines()) < 40


def test_two_failures_of_a_step_that_they_share_are_shown_once(tmp_path: Path) -> None:
    """With the log that has its output; the other one only says where that is."""
    said = "golden step: no"
    same = [verdict(f"t/c{i}", Outcome.RUNTIME_ERROR, message=said) for i in range(2)]
    result = msgspec.structs.replace(suite_result(*same), home=str(tmp_path))
    for name, text in (("c0", "made for c1"), ("c1", "a longer text")):
        log = tmp_path / f"logs/r/t/{name}~1.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text, encoding="utf-8")
    text = show(result)
    assert "  runtime_error  2 cases, the same message: golden step: no\n    t/c0, t/c1\n" in text
    assert "logs/r/t/c1~1.log\n    rerun  tileyard test ops.toml --case t/c1\n" in text
    assert text.count("rerun") == 1


def test_reasons_without_number_are_cut() -> None:
    """Where each case has a reason of its own the groups are cut too."""
    left_out = tuple(LeftOut(case=f"t/c{i}", reason=f"proven by run {i}") for i in range(5000))
    result = suite_result(verdict("row/a", Outcome.PASSED))
    text = show(msgspec.structs.replace(result, left_out=left_out))
    expected = "     4980  for 4980 other reasons"
    assert expected in text
    assert len(text.splitlines()) < 40


def test_what_passed_is_counted_from_verdicts() -> None:
    """An interrupted run has as many passed cases as verdicts say so, whatever else is missing."""
    passed = [verdict(f"t/{i}", Outcome.PASSED) for i in range(3)]
    never = verdict("t/never", Outcome.NOT_RUN, message="stopped")
    result = msgspec.structs.replace(suite_result(*passed, never), reason="interrupted")
    text = show(result)
    expected = ["        3  passed", "        1  not_run", "stopped early: it was interrupted"]
    assert [line for line in text.splitlines() if line in expected] == expected
    assert "FAILED: 1 case never ran" in text


def test_paths_and_commands_are_not_broken() -> None:
    """They are there to be copied; all else fits, and obeys no code for terminals."""
    name = "row/" + "x" * 90
    bad = verdict(name, Outcome.CRASHED, message="\x1b[2Jboom " * 30)
    lines = show(suite_result(bad)).splitlines()
    expected = [f"    rerun  tileyard test ops.toml --case {name}"]
    assert [line for line in lines if line.lstrip().startswith("rerun")] == expected
    assert "\x1b" not in "".join(lines)
    kept = ("log ", "rerun ", "at ", name)
    assert all(len(line) <= 80 for line in lines if not line.lstrip().startswith(kept))
    assert f"    {name}:" in lines


def test_a_flaky_case_that_said_nothing_is_listed_too() -> None:
    """A failed attempt without message and log has its outcome."""
    attempts = (
        Attempted(trial="r.1", outcome=Outcome.TIMEOUT),
        Attempted(trial="r.2", outcome=Outcome.PASSED),
    )
    flaky = msgspec.structs.replace(
        verdict("row/a", Outcome.TIMEOUT, Outcome.PASSED), attempts=attempts
    )
    expected = "  row/a: passed at attempt 2, before that timeout\n"
    assert expected in show(suite_result(flaky))


def test_a_case_that_failed_twice_has_the_log_of_the_last_attempt() -> None:
    """That is what its message is of; where the last attempt left none, the one before."""
    text = show(suite_result(verdict("row/a", Outcome.CRASHED, Outcome.TIMEOUT, message="m")))
    expected = "    log    /home/t/logs/r/row/a~2.log\n"
    assert expected in text
    assert "a~1" not in text


def test_a_case_in_quarantine_that_passed_is_not_listed() -> None:
    """Only failures are told of."""
    text = show(suite_result(verdict("row/a", Outcome.PASSED, spared=True)))
    expected = "quarantine"
    assert expected not in text


def test_a_message_without_end_is_cut() -> None:
    """Half a screen of it is enough beside the place of the log."""
    text = show(suite_result(verdict("row/a", Outcome.CRASHED, message="long " * 1000)))
    expected = 25
    assert len(text.splitlines()) < expected
    assert "…" in text


def test_a_reference_is_doubted_where_a_whole_testcase_is_wrong_alike() -> None:
    """In the table and in the page; one question for all such testcases."""

    def wrong(case: str, elements: int) -> CaseVerdict:
        mismatch = Mismatch(
            output="y", index=(0,), got="1", want="2", wrong=elements, total=elements
        )
        return msgspec.structs.replace(verdict(case, Outcome.MISMATCH), mismatch=mismatch)

    row = (wrong("row/a", 64), wrong("row/b", 4096), verdict("col/a", Outcome.PASSED))
    question = (
        "all 2 cases of row differ in the same way from the reference: is the reference right?"
    )
    both = "all cases of each of row, col differ in the same way from the reference: is the reference right?"
    for verdicts, expected in (
        (row, question),
        ((*row[:2], wrong("col/a", 8), wrong("col/b", 9)), both),
        (row[1:], ""),
        ((*row, verdict("row/c", Outcome.PASSED)), ""),
    ):
        result = suite_result(*verdicts)
        page = html.unescape("".join(render_page(result)))
        for said in (show(result), page):
            assert expected in said
            assert ("is the reference right?" in said) is bool(expected)


def test_it_says_what_machines_ask_first(tmp_path: Path) -> None:
    """Version, exit status, counts of every outcome, and who failed, without a look at the verdicts."""
    path = tmp_path / "summary.json"
    write_summary(one_of_each(), Report(path))
    content = json.loads(path.read_text())
    result = content.pop("result")
    counts = dict.fromkeys(map(str, Outcome), 0)
    counts |= {"passed": 2, "mismatch": 2, "infra_error": 1, "skipped": 1, "not_run": 1}
    expected = {
        "version": 1,
        "exit_status": 1,
        "counts": counts,
        "failures": ["row/f16", "sort/i8"],
        "faults": ["cast/f4"],
        "quarantined": ["cast/f8"],
        "flaky": ["col/f16"],
    }
    assert content == expected
    assert result["verdicts"][1]["attempts"][0]["outcome"] == "crashed"
    assert result["makespan"]["bound_s"] == 100.0


def test_each_case_that_ended_badly_is_listed_once(tmp_path: Path) -> None:
    """A fault in quarantine is not one of the run's; a case in quarantine that passed is nothing at all."""
    path = tmp_path / "summary.json"
    spared = verdict("t/lost", Outcome.INFRA_ERROR, spared=True)
    fine = verdict("t/fine", Outcome.PASSED, spared=True)
    write_summary(suite_result(spared, fine), Report(path))
    summary = decode_json(path.read_bytes(), Summary)
    expected = ((), (), ("t/lost",), 0)
    assert summary.failures == expected[0]
    assert summary.faults == expected[1]
    assert summary.quarantined == expected[2]
    assert summary.exit_status == expected[3]


def test_it_can_be_read_again(tmp_path: Path) -> None:
    """Nothing of the result is lost."""
    path = tmp_path / "summary.json"
    expected = one_of_each()
    write_summary(expected, Report(path))
    assert decode_json(path.read_bytes(), Summary).result == expected


@pytest.mark.parametrize(
    "kind",
    [
        Summary,
        SuiteResult,
        LeftOut,
        CaseVerdict,
        Attempted,
        Mismatch,
        Quarantine,
        Makespan,
        Plan,
        Piece,
    ],
)
def test_every_key_is_documented(kind: type[msgspec.Struct]) -> None:
    """docs/reference/summary.md names all that can be in the file."""
    page = (ROOT / "docs" / "reference" / "summary.md").read_text()
    unknown = [
        field.name for field in msgspec.structs.fields(kind) if f"`{field.name}`" not in page
    ]
    expected: list[str] = []
    assert unknown == expected


def test_names_that_are_no_text_do_not_stop_it(tmp_path: Path) -> None:
    """A path of undecodable bytes is written with marks in their places."""
    path = tmp_path / "summary.json"
    odd = msgspec.structs.replace(suite_result(verdict("t/a", Outcome.PASSED)), path="a\udc80b")
    write_summary(odd, Report(path))
    expected = "a?b"
    assert json.loads(path.read_text())["result"]["path"] == expected


def shown(expected: Sequence[Expected], **fields: object) -> list[str]:
    """The lines of a prediction on two slots with these other ``fields``."""
    file = io.StringIO()
    prediction = replace(predict(expected, 2), **fields)
    print_prediction(Console(file=file, width=160), prediction)
    return file.getvalue().splitlines()


def make_expected(count: int) -> tuple[Expected, ...]:
    """Testcases of one case, ten minutes each."""
    return tuple(Expected(case=f"t{i}/a", testcase=f"t{i}", seconds=600.0) for i in range(count))


def test_bounds_prediction_and_reason_are_shown() -> None:
    """With what is usual instead."""
    lines = shown(make_expected(3))
    expected = [
        "3 cases of 3 testcases, 30 min 0 s of work on 2 slots (expected times: 3 from earlier runs)",
        "lower bound of any split, max(longest case, total/slots): 15 min 0 s",
        "lower bound of these pieces, max(longest piece, total/slots): 15 min 0 s;"
        " predicted 20 min 0 s, 33.3 % more",
        "why: pieces end unevenly: the last one ends 5 min later than if the work could be"
        " spread evenly",
    ]
    assert [line for line in lines if line in expected] == expected
    assert sum("longest first" in line for line in lines) == 3
    assert any(
        line.split() == ["whole", "testcases,", "by", "name", "3", "20", "min", "0", "s", "1.333"]
        for line in lines
    )


def test_what_is_left_out_is_listed_with_reasons() -> None:
    """A line per kind of reason; cases that another shard runs are counted only."""
    left = [LeftOut(case=f"x/{i}", reason=f"not wanted: {i}") for i in range(LISTED + 3)]
    left.append(LeftOut(case="y/0", reason="another shard than 1/2 runs it"))
    lines = shown(make_expected(1), left_out=tuple(left))
    expected = [
        f"left out: {LISTED + 4} cases",
        f"  {LISTED + 3}  not wanted ({LISTED + 3} reasons): x/0, x/1, x/2, x/3, x/4, ...",
        "--json lists all",
    ]
    assert [line for line in lines if line in expected] == expected
    assert not any("y/0" in line for line in lines)


def test_shards_are_compared_with_their_mean() -> None:
    """So that an uneven division is seen."""
    shard = Shard(number=1, count=2)
    found = narrow(make_expected(6), ["f"] * 6, Bounds(shard=shard))
    expected = "shard 1/2: 30 min 0 s of 60 min 0 s; the longest shard has no more than the mean"
    assert expected in shown(found.expected, shard=shard, shards_s=found.shards_s)


def test_an_estimate_is_no_history() -> None:
    """What nothing is known of is said to be so."""
    cases = (
        Expected(case="t/a", testcase="t", seconds=1.0, source="family"),
        Expected(case="t/b", testcase="t", seconds=1.0, source="default"),
    )
    expected = "1 estimated from their family, 1 of which nothing is known"
    assert expected in shown(cases)[0]


def test_names_of_others_cannot_drive_the_terminal() -> None:
    """Control characters in names are not passed on."""
    cases = (Expected(case="t\x1b[31m/a", testcase="t\x1b[31m", seconds=9.0),)
    left = (LeftOut(case="\x1b[31m", reason="\x1b[0m"),)
    expected = "\x1b"
    assert expected not in "\n".join(shown(cases, left_out=left))


@pytest.mark.parametrize("tail", [False, True])
def test_the_tail_is_shown_when_asked_for(*, tail: bool) -> None:
    """Quantiles always; the longest cases and what has moved with --tail."""
    times = [
        CaseTimes(
            suite="",
            case="sum/a",
            testcase="sum",
            before_s=(60.0, 60.0, 60.0),
            after_s=(90.0, 90.0, 90.0),
        )
    ]
    file = io.StringIO()
    print_history(Console(file=file, width=160), summarize_history(times, 3.0), tail=tail)
    text = file.getvalue()
    expected = "1 case in 6 finished runs; one run of each takes 75 s in all"
    assert expected in text
    assert "99 % 75 s" in text
    for word in ("longest cases", "longest testcases", "moved since", "1.50", "3 / 3", "100.0 %"):
        assert (word in text) is tail


def test_a_quiet_week_is_told() -> None:
    """Nothing moved is said with how many cases that rests on."""
    file = io.StringIO()
    print_history(Console(file=file, width=160), summarize_history([], 0.0), tail=True)
    expected = "of 0 cases that can be compared"
    assert expected in file.getvalue()
