"""The JSON of a suite's run."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.conftest import ROOT
from tests.unit.show.suite_results import one_of_each, suite_result, verdict

from tileyard.base.decoding import decode_json
from tileyard.base.model import Mismatch, Outcome
from tileyard.base.quarantine import Quarantine
from tileyard.verbs.test.result.records import LeftOut, Piece, Plan
from tileyard.verbs.test.result.result import Attempted, CaseVerdict, Makespan, SuiteResult
from tileyard.verbs.test.view.files import Report
from tileyard.verbs.test.view.summary import Summary, write_summary


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
