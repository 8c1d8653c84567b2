"""Findings of checks: one line each, with advice."""

import enum
import time
from collections.abc import Callable, Iterable, Sequence

from tileyard.base.errors import TileyardError
from tileyard.base.model import Record
from tileyard.base.settings import Settings

DIAGNOSIS_VERSION = 1


class Level(enum.StrEnum):
    """``fail``: something will not work. ``warn``: it works, but not as well or as safely."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Record):
    """One line: the subject, the finding, and advice unless all is well."""

    subject: str
    level: Level
    message: str
    todo: str = ""


Check = Callable[[Settings], Iterable[Finding]]
"""Examines one subject and changes nothing. A TileyardError or OSError that it raises is a failure."""


class Diagnosis(Record):
    """All findings, ``at`` a time in seconds since the epoch."""

    at: float
    findings: tuple[Finding, ...]
    version: int = DIAGNOSIS_VERSION

    @property
    def has_failed(self) -> bool:
        """Whether there is a failure."""
        return any(finding.level is Level.FAIL for finding in self.findings)


def run_checks(checks: Sequence[tuple[str, Check]], settings: Settings) -> Diagnosis:
    """Run named checks in their order. A check that cannot be finished is a failure of its own."""
    findings: list[Finding] = []
    for subject, check in checks:
        try:
            for finding in check(settings):
                findings.append(finding)  # noqa: PERF402 - what was found before a failure is kept
        except TileyardError as error:
            findings.append(_failure(subject, error.message, error.hint))
        except OSError as error:
            findings.append(_failure(subject, str(error), ""))
    return Diagnosis(at=time.time(), findings=tuple(findings))


def _failure(subject: str, message: str, todo: str) -> Finding:
    return Finding(subject=subject, level=Level.FAIL, message=message, todo=todo)
