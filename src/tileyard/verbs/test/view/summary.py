"""A run of a suite as JSON; docs/reference/summary.md describes its content."""

import json

import msgspec

from tileyard.base.model import Outcome, Record
from tileyard.verbs.test.result.result import SuiteResult
from tileyard.verbs.test.view.files import Report

VERSION = 1
"""Raised if a reader of the last version would misread the file; new keys alone do not raise it."""


class Summary(Record):
    """The whole file. ``counts`` has every outcome, including those of no case. ``failures`` fail the run;
    ``faults``, of devices, queues or hosts, would too; ``quarantined`` ones failed and do not gate; ``flaky``
    ones passed after failures.
    """

    version: int
    exit_status: int
    counts: dict[str, int]
    failures: tuple[str, ...]
    faults: tuple[str, ...]
    quarantined: tuple[str, ...]
    flaky: tuple[str, ...]
    result: SuiteResult


def summarize(result: SuiteResult) -> Summary:
    """The summary of a run."""
    counts = result.count()
    return Summary(
        version=VERSION,
        exit_status=result.exit_status,
        counts={str(outcome): counts[outcome] for outcome in Outcome},
        failures=tuple(verdict.case for verdict in result.failures),
        faults=tuple(verdict.case for verdict in result.faults),
        quarantined=tuple(verdict.case for verdict in result.spared),
        flaky=tuple(verdict.case for verdict in result.flaky),
        result=result,
    )


def write_summary(result: SuiteResult, report: Report) -> None:
    """Write the file. Raises UsageError if it cannot be written."""
    report.write((_encode(summarize(result)), b"\n"))


def _encode(summary: Summary) -> bytes:
    try:
        encoded = msgspec.json.encode(summary)
    except UnicodeEncodeError:
        # Names of files need not be text, and JSON is always text.
        plain = json.dumps(msgspec.to_builtins(summary), ensure_ascii=False)
        encoded = plain.encode("utf-8", "replace")
    return msgspec.json.format(encoded, indent=1)
