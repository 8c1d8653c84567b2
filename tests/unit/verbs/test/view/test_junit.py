"""JUnit XML as Maven Surefire writes it, read back as a reader of it would."""

import re
import tempfile
from datetime import date
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.show.suite_results import one_of_each, suite_result, verdict

from tileyard.base.model import INFRASTRUCTURE, Outcome
from tileyard.base.quarantine import Quarantine
from tileyard.verbs.test.plan.imports import read_junit
from tileyard.verbs.test.result.result import (
    Attempted,
    CaseVerdict,
    LeftOut,
    SuiteResult,
    skip_unbegun,
)
from tileyard.verbs.test.view.junit import TAIL_BYTES, write_junit
from tileyard.verbs.test.view.words import Report

AGAIN = ("stackTrace", "system-out", "system-err")
CHILDREN = {
    "testsuites": ("testsuite",),
    "testsuite": ("properties", "testcase"),
    "testcase": (
        *("failure", "rerunFailure", "flakyFailure", "skipped"),
        *("error", "rerunError", "flakyError", "system-out", "system-err"),
    ),
    "rerunFailure": AGAIN,
    "rerunError": AGAIN,
    "flakyFailure": AGAIN,
    "flakyError": AGAIN,
}
"""What each element may hold, in this order."""
ONCE = {"skipped", "error", "system-out", "system-err", "stackTrace", "failure"}
COUNTED = {"name", "tests", "failures", "errors", "skipped", "time"}
NEEDED = {
    "testsuites": COUNTED,
    "testsuite": COUNTED,
    "testcase": {"name", "classname", "time"},
    "skipped": {"message"},
    **{tag: {"message", "type"} for tag in CHILDREN["testcase"] if tag.endswith(("ure", "rror"))},
}
BEYOND = {"testsuites": {"id"}, "testcase": {"file", "line"}}
"""What others than Surefire read."""


def check_shape(element: Element) -> None:
    """Hold an element and all in it to Surefire's schema."""
    allowed = CHILDREN.get(element.tag, ())
    tags = [child.tag for child in element]
    assert all(tag in allowed for tag in tags), (element.tag, tags)
    assert tags == sorted(tags, key=allowed.index)
    assert all(tags.count(tag) == 1 for tag in tags if tag in ONCE)
    needed = NEEDED.get(element.tag, set())
    assert needed <= set(element.attrib) <= needed | BEYOND.get(element.tag, set())
    if element.tag.startswith(("rerun", "flaky")):
        assert tags[:1] == ["stackTrace"]
    if "time" in needed:
        assert re.fullmatch(r"\d+\.\d{3}", element.attrib["time"])
    for child in element:
        check_shape(child)


def write(result: SuiteResult, folder: Path) -> Element:
    """The root of the file that is written of a result."""
    path = folder / "junit.xml"
    write_junit(result, Report(path))
    root = ElementTree.parse(path).getroot()
    check_shape(root)
    return root


def find(root: Element, case: str) -> Element:
    """The element of a case."""
    testcase, _, name = case.partition("/")
    (found,) = root.findall(f"testsuite[@name='{testcase}']/testcase[@name='{name}']")
    return found


def tags(element: Element) -> list[str]:
    """What an element holds."""
    return [child.tag for child in element]


def test_a_testcase_is_a_suite_and_a_case_a_case(tmp_path: Path) -> None:
    """Everything is in the file once, and counted as readers count."""
    root = write(one_of_each(), tmp_path)
    expected = {
        "row": ("2", "1", "0", "0"),
        "col": ("2", "0", "0", "1"),
        "cast": ("2", "0", "1", "1"),
        "sort": ("1", "0", "1", "0"),
        "gemm": ("8", "0", "0", "8"),
    }
    keys = ("tests", "failures", "errors", "skipped")
    assert {s.attrib["name"]: tuple(s.attrib[key] for key in keys) for s in root} == expected
    assert tuple(root.attrib[key] for key in keys) == ("15", "1", "2", "10")
    passed = find(root, "row/f32")
    assert passed.attrib == {
        "name": "f32",
        "classname": "row",
        "time": "1.000",
        "file": "/suites/ops.toml",
        "line": "12",
    }
    assert tags(passed) == []


def test_failures_and_faults_of_infrastructure_are_told_apart(tmp_path: Path) -> None:
    """The case's own failure has its outcome as type; lost devices and cases never run are errors."""
    root = write(one_of_each(), tmp_path)
    error = find(root, "cast/f4").find("error")
    never = find(root, "sort/i8").find("error")
    wrong = find(root, "row/f16")
    expected = ({"message": "slot:3 went away", "type": "infra_error"}, "not_run", "crashed")
    assert error is not None
    assert never is not None
    assert (error.attrib, never.attrib["type"], wrong[0].attrib["type"]) == expected
    assert "y[3, 4] is 1.0, expected 2.0" in (wrong[0].text or "")
    assert "at /suites/ops.toml:7" in (wrong[0].text or "")


def test_paths_below_the_working_directory_are_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the attribute and in the text of a failure: servers look for files in the repository."""
    monkeypatch.chdir(tmp_path)
    bad = verdict("t/a", Outcome.CRASHED, message="m")
    bad = msgspec.structs.replace(bad, where=f"{tmp_path}/suites/ops.toml:12")
    case = find(write(suite_result(bad), tmp_path), "t/a")
    assert (case.attrib["file"], case.attrib["line"]) == ("suites/ops.toml", "12")
    assert case.findtext("failure") == "m\nat suites/ops.toml:12"


def test_retries_are_told_apart_as_surefire_does(tmp_path: Path) -> None:
    """A pass after failures has these as flaky ones; a failure has the later ones as reruns."""
    flaky = verdict("t/flaky", Outcome.CRASHED, Outcome.INFRA_ERROR, Outcome.PASSED, message="a")
    failed = verdict("t/failed", Outcome.CRASHED, Outcome.TIMEOUT, Outcome.MISMATCH, message="b")
    lost = verdict("t/lost", Outcome.CRASHED, Outcome.INFRA_ERROR, message="c")
    root = write(suite_result(flaky, failed, lost), tmp_path)
    expected = {
        "t/flaky": [("flakyFailure", "crashed"), ("flakyError", "infra_error")],
        "t/failed": [
            ("failure", "crashed"),
            ("rerunFailure", "timeout"),
            ("rerunFailure", "mismatch"),
            ("system-out", ""),
        ],
        "t/lost": [("rerunFailure", "crashed"), ("error", "infra_error"), ("system-out", "")],
    }
    for case, children in expected.items():
        element = find(root, case)
        assert [(child.tag, child.get("type", "")) for child in element] == children
    assert root.attrib["failures"] == "1"
    assert root.attrib["errors"] == "1"


def test_cases_that_do_not_count_are_skipped_with_their_reason(tmp_path: Path) -> None:
    """What was proven before, left out, or failed in quarantine turns no reader red."""
    root = write(one_of_each(), tmp_path)
    expected = {
        "col/f32": "proven by run q",
        "gemm/tiny": "skip list: takes a day",
        "cast/f8": "mismatch, in quarantine until 2026-12-01 (ana: rounds to even since 2.4): "
        "y[0] is 1, expected 2",
    }
    assert find(root, "cast/f8").findtext("system-out") == "log: /home/t/logs/r/cast/f8~1.log\n"
    for case, reason in expected.items():
        skipped = find(root, case).find("skipped")
        assert skipped is not None
        assert skipped.attrib["message"] == reason


def test_cases_after_a_first_failure_are_skipped(tmp_path: Path) -> None:
    """The failure itself turns a reader red."""
    known = suite_result(verdict("row/a", Outcome.CRASHED), verdict("row/b", Outcome.NOT_RUN))
    why = "skipped: row/a failed, and --fail-fast ends the run there"
    ended = msgspec.structs.replace(known, verdicts=skip_unbegun(known.verdicts, why))
    root = write(ended, tmp_path)
    skipped = find(root, "row/b").find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == why
    assert (root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"]) == tuple("101")


def test_a_case_in_quarantine_that_passes_has_passed(tmp_path: Path) -> None:
    """Only its failures are hidden."""
    root = write(suite_result(verdict("t/a", Outcome.PASSED, spared=True)), tmp_path)
    expected: list[str] = []
    assert tags(find(root, "t/a")) == expected


def test_logs_are_quoted_from_their_ends(tmp_path: Path) -> None:
    """Each failed attempt has the end of its own log, and where it lies."""
    for number, text in ((1, "first\n"), (2, "x" * 10 * TAIL_BYTES + "\nsecond\n")):
        log = tmp_path / f"logs/r/t/a~{number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text)
    bad = verdict("t/a", Outcome.CRASHED, Outcome.TIMEOUT, message="m")
    case = find(write(suite_result(bad, home=tmp_path), tmp_path), "t/a")
    said, again = case.find("system-out"), case.find("rerunFailure/system-out")
    expected = f"log: {tmp_path}/logs/r/t/a~1.log\nfirst\n"
    assert said is not None
    assert again is not None
    assert said.text == expected
    assert (again.text or "").endswith("\nsecond\n")
    assert len(again.text or "") < 2 * TAIL_BYTES


def test_many_long_logs_do_not_make_a_huge_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is no more room, the place of a log stands for it."""
    monkeypatch.setattr("tileyard.verbs.test.view.junit.LOG_BYTES", 2 * TAIL_BYTES)
    log = tmp_path / "logs" / "long.log"
    log.parent.mkdir()
    log.write_text("words\n" * TAIL_BYTES)
    attempt = Attempted(trial="r.1", outcome=Outcome.CRASHED, log="logs/long.log")
    case = verdict("t/a", Outcome.CRASHED)
    cases = [
        msgspec.structs.replace(case, case=f"t/{number}", attempts=(attempt,))
        for number in range(20)
    ]
    root = write(suite_result(*cases, home=tmp_path), tmp_path)
    expected = f"log: {log}\n"
    assert find(root, "t/19").findtext("system-out") == expected
    assert (tmp_path / "junit.xml").stat().st_size < 3 * TAIL_BYTES


def test_its_times_can_be_imported_again(tmp_path: Path) -> None:
    """The reader of others' histories finds every case that ran, by testcase and name."""
    write(one_of_each(), tmp_path)
    path = tmp_path / "junit.xml"
    rows = read_junit(path, path.read_text())
    expected = [
        ("row", "f32", 1.0),
        ("row", "f16", 30.0),
        ("col", "f16", 1.0),
        ("cast", "f4", 1.0),
        ("sort", "i8", 0.0),
    ]
    assert [(row.testcase, row.case, row.seconds) for row in rows] == expected


def test_names_with_slashes_go_to_the_testcase_that_they_belong_to(tmp_path: Path) -> None:
    """A case that was left out stands beside those of its testcase that ran."""
    ran = msgspec.structs.replace(verdict("ops/row/a/b", Outcome.PASSED), testcase="ops/row")
    left_out = (LeftOut(case="ops/row/c/d", reason="why"), LeftOut(case="x/y/z", reason="why"))
    root = write(msgspec.structs.replace(suite_result(ran), left_out=left_out), tmp_path)
    expected = [("ops/row", "a/b"), ("ops/row", "c/d"), ("x/y", "z")]
    cases = root.iter("testcase")
    assert [(case.attrib["classname"], case.attrib["name"]) for case in cases] == expected


texts = st.text(st.characters(), max_size=60)  # lone surrogates too
names = st.text(st.characters(), min_size=1, max_size=10)


@st.composite
def results(draw: st.DrawFn) -> SuiteResult:
    """Runs in which every text is arbitrary, control characters and all."""
    verdicts = []
    for number in range(draw(st.integers(0, 4))):
        outcomes = draw(st.lists(st.sampled_from(Outcome), min_size=1, max_size=3))
        attempts = tuple(
            Attempted(trial="r.1", outcome=outcome, message=draw(texts), log=draw(texts))
            for outcome in outcomes
        )
        testcase = draw(names)
        spared = Quarantine(
            cases="*", owner=draw(texts), reason=draw(texts), until=date(2026, 12, 1)
        )
        verdicts.append(
            CaseVerdict(
                case=f"{testcase}/{number}",
                testcase=testcase,
                family=testcase,
                outcome=outcomes[-1],
                message=draw(texts),
                attempts=attempts,
                is_flaky=outcomes[-1] is Outcome.PASSED and len(outcomes) > 1,
                quarantine=draw(st.sampled_from((None, spared))),
                where=draw(st.one_of(texts, st.just("a:1"))),
            )
        )
    return SuiteResult(
        run=draw(names),
        suite=draw(texts),
        path=draw(texts),
        policy=draw(texts),
        home="/nowhere",
        verdicts=tuple(verdicts),
        left_out=tuple(LeftOut(case=draw(names), reason=draw(texts)) for _ in range(2)),
    )


@pytest.mark.slow
@given(results())
def test_no_text_breaks_the_file(result: SuiteResult) -> None:
    """Whatever messages and names hold, the file is XML, has the right shape and counts every case."""
    with tempfile.TemporaryDirectory() as folder:
        root = write(result, Path(folder))
    assert len(list(root.iter("testcase"))) == len(result.verdicts) + len(result.left_out)
    never = [v for v in result.failures if v.outcome is Outcome.NOT_RUN]
    faults = [v for v in result.verdicts if v.outcome in INFRASTRUCTURE and v.gates]
    expected = (len(result.failures) - len(never), len(never) + len(faults))
    assert (int(root.attrib["failures"]), int(root.attrib["errors"])) == expected
