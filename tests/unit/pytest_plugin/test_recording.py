"""The ledger, and exit codes that tell the truth."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tileyard.base.model import Outcome
from tileyard.pytest_plugin.far_records import FACTS, Hold, RunReport, StepResult, TestFacts
from tileyard.pytest_plugin.recording import Recording, TrialWriter, count_most_at_once, measure_use
from tileyard.store.trials import TrialStore


def hold(device: str, held_s: float) -> Hold:
    """A line of the ledger."""
    return Hold(test="t", device=device, lease=1, at=0.0, held_s=held_s, waited_s=0.0)


def test_the_ledger_adds_up_by_device() -> None:
    """Shares are those of the wall time."""
    uses = list(measure_use([hold("b", 1.0), hold("a", 1.0), hold("a", 1.5)], 10.0))
    expected = [("a", 2, 2.5, 0.25), ("b", 1, 1.0, 0.1)]
    assert [(use.device, use.holds, use.held_s, use.share) for use in uses] == expected


def test_overlap_is_counted_without_what_was_not_built() -> None:
    """Of steps that follow each other at once none overlap, and what was reused took no time."""
    spans = [(0.0, 2.0, False), (1.0, 2.0, False), (2.0, 1.0, False), (0.5, 9.0, True)]
    steps = [StepResult(step="s", at=at, seconds=s, reused=reused) for at, s, reused in spans]
    expected = 2
    assert count_most_at_once(steps) == expected


def report(outcome: str, when: str = "teardown", **attributes: Any) -> Any:  # noqa: ANN401 - pytest's
    """A test's last report."""
    return SimpleNamespace(
        nodeid="t.py::a", when=when, failed=outcome == "failed", longrepr="lost", **attributes
    )


def facts(outcome: Outcome) -> dict[str, Any]:
    """What travels with it."""
    found: dict[str, Any] = msgspec.to_builtins(TestFacts(seconds=1.0, outcome=outcome))
    return found


@pytest.mark.parametrize(
    ("reports", "selected", "lost", "expected"),
    [
        ([report("passed", **{FACTS: facts(Outcome.PASSED)})], {"t.py::a"}, None, 0),
        ([report("failed", **{FACTS: facts(Outcome.MISMATCH)})], {"t.py::a"}, None, 1),
        ([report("failed", when="???")], {"t.py::a"}, None, 1),
        ([report("passed", **{FACTS: facts(Outcome.PASSED)})], {"t.py::a", "t.py::b"}, None, 1),
        ([report("passed", **{FACTS: facts(Outcome.PASSED)})], {"t.py::a"}, "killed", 1),
    ],
    ids=["passed", "failed", "lost", "missing", "dead worker"],
)
def test_a_zero_is_kept_only_where_it_is_true(
    tmp_path: Path, reports: list[Any], selected: set[str], lost: str | None, expected: int
) -> None:
    """Failures, tests without a result and dead workers each turn a 0 into a 1, in the written report too."""
    with TrialStore.open(tmp_path) as store:
        writer = TrialWriter(tmp_path, store, "r1", tmp_path)
        recording = Recording("r1", 0.0, writer, str(tmp_path / "report.json"))
        recording.selected = selected
        for one in reports:
            recording.pytest_runtest_logreport(one)
        recording.pytest_testnodedown(SimpleNamespace(), lost)
        session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
        finishing = recording.pytest_sessionfinish(session)
        next(finishing)
        session.exitstatus = pytest.ExitCode.OK  # somebody else's hook
        with pytest.raises(StopIteration):
            finishing.send(None)
    written = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=RunReport)
    assert int(session.exitstatus) == expected
    assert written.exit_status == expected


def test_a_second_interrupt_is_one(tmp_path: Path) -> None:
    """If it came before pytest had a status, the report is of an interrupted run, and no test is missed."""
    with TrialStore.open(tmp_path) as store:
        writer = TrialWriter(tmp_path, store, "r1", tmp_path)
        recording = Recording("r1", 0.0, writer, str(tmp_path / "report.json"))
        recording.selected = {"test_a.py::test"}
        session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:  # as within pytest's own `finally`
            finishing = recording.pytest_sessionfinish(session)
            next(finishing)
            with pytest.raises(StopIteration):
                finishing.send(None)
    written = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=RunReport)
    assert written.exit_status == int(pytest.ExitCode.INTERRUPTED)
