"""Checks are run one by one, and none can keep the others from being heard."""

from collections.abc import Iterator

from tileyard.base.errors import HomeError
from tileyard.base.settings import Settings
from tileyard.verbs.doctor.plan.checks import CHECKS
from tileyard.verbs.doctor.plan.findings import Finding, Level, run_checks


def well(_: Settings) -> list[Finding]:
    """A check that finds nothing wrong."""
    return [Finding(subject="a", level=Level.OK, message="fine")]


def wary(_: Settings) -> list[Finding]:
    """A check that finds something to be improved."""
    return [Finding(subject="b", level=Level.WARN, message="so so", todo="improve it")]


def refusing(_: Settings) -> Iterator[Finding]:
    """A check that gives up half-way."""
    yield Finding(subject="c", level=Level.OK, message="so far")
    raise HomeError("the home is gone", "make one")


def failing(_: Settings) -> list[Finding]:
    """A check that the system does not let finish."""
    raise PermissionError(13, "Permission denied", "/x")


def test_warnings_are_no_failure(settings: Settings) -> None:
    """Findings keep their order, and the diagnosis fails only if one of them does."""
    diagnosis = run_checks([("b", wary), ("a", well)], settings)
    expected = ["b", "a"]
    assert [finding.subject for finding in diagnosis.findings] == expected
    assert not diagnosis.has_failed


def test_a_check_that_cannot_be_finished_is_a_failure(settings: Settings) -> None:
    """It is named, says what to do where it knows, keeps what it found, and others go on."""
    diagnosis = run_checks([("c", refusing), ("d", failing), ("a", well)], settings)
    expected = [
        ("c", Level.OK, "so far", ""),
        ("c", Level.FAIL, "the home is gone", "make one"),
        ("d", Level.FAIL, "[Errno 13] Permission denied: '/x'", ""),
        ("a", Level.OK, "fine", ""),
    ]
    found = [(f.subject, f.level, f.message, f.todo) for f in diagnosis.findings]
    assert found == expected
    assert diagnosis.has_failed


def test_checks_have_names_of_their_own() -> None:
    """Each name stands for one check."""
    names = [name for name, _ in CHECKS]
    expected = sorted(set(names))
    assert sorted(names) == expected
