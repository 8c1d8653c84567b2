"""What is said of a case of a suite, the same way while it runs and after it."""

import shlex
from collections.abc import Callable
from pathlib import Path

from tileyard.model import INFRASTRUCTURE, WELL, Mismatch, Outcome
from tileyard.report.words import clean_line
from tileyard.suite.records import ATTEMPT_MARK
from tileyard.suite.result import Attempted, CaseVerdict

Rerun = Callable[[str], str]
"""The command line that runs just the case with that id."""


def rerun_command(suite: str) -> Rerun:
    """How to run one case of ``suite`` again: its path, as the user gave it."""

    def command(case: str) -> str:
        return shlex.join(("tileyard", "test", suite, "--case", case))

    return command


def split_attempt(case: str) -> tuple[str, int]:
    """The suite's case and the number of the attempt, from the id of an engine's case."""
    name, mark, attempt = case.rpartition(ATTEMPT_MARK)
    return (name, int(attempt)) if mark and attempt.isdecimal() else (case, 1)


def format_case(case: str, attempt: int) -> str:
    """A case for people; a first attempt is not numbered."""
    shown = clean_line(case)
    return f"{shown}, attempt {attempt}" if attempt > 1 else shown


def say_why(message: str, mismatch: Mismatch | None, outcome: Outcome) -> str:
    """One line that says what went wrong, whatever is known of it."""
    return clean_line(message or (mismatch.describe() if mismatch else "") or str(outcome))


def why(verdict: CaseVerdict) -> str:
    """One line that says how a case ended."""
    return say_why(verdict.message, verdict.mismatch, verdict.outcome)


def log_of(verdict: CaseVerdict, home: Path) -> Path | None:
    """The log of the last attempt that left one."""
    for attempt in reversed(verdict.attempts):
        if attempt.log:
            return home / attempt.log
    return None


def failed_attempts(verdict: CaseVerdict) -> tuple[Attempted, ...]:
    """The attempts that did not end well, in their order."""
    return tuple(attempt for attempt in verdict.attempts if attempt.outcome not in WELL)


def is_infrastructure(verdict: CaseVerdict) -> bool:
    """Devices, queues or hosts failed the case; nothing is known of the case itself."""
    return verdict.outcome in INFRASTRUCTURE


def count_of(number: int, what: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
