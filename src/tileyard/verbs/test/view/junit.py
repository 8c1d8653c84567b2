"""A run of a suite as JUnit XML, in the form of Maven Surefire: a ``testsuite`` per testcase, a ``testcase``
per case. A failed case has a ``failure`` with its outcome as type; one that did not run, or for faults of
devices, queues or hosts, an ``error``; one after ``--fail-fast`` is ``skipped``, and so is a failed one in
quarantine, as readers gate by this file. Failed attempts are a ``flakyFailure`` (or ``flakyError``) each if
the case passed, else after the first a ``rerunFailure`` (or ``rerunError``). Paths below the working
directory are relative, as servers look for them in the repository.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, assert_never
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement
from xml.sax.saxutils import quoteattr

from tileyard.base.model import INFRASTRUCTURE, Outcome, Record
from tileyard.base.wording import shorten_path
from tileyard.show.words import MESSAGE_LENGTH, clean_line, why
from tileyard.verbs.test.result.result import Attempted, CaseVerdict, LeftOut, SuiteResult
from tileyard.verbs.test.view.words import Report, failed_attempts, read_tail, run_s

TAIL_BYTES = 16 << 10
"""Maximum bytes quoted of a log."""
LOG_BYTES = 8 << 20
"""Maximum bytes of all logs together: servers refuse files of tens of megabytes."""
ERRORS = INFRASTRUCTURE | {Outcome.NOT_RUN}
ORDER = (
    *("failure", "rerunFailure", "flakyFailure", "skipped"),
    *("error", "rerunError", "flakyError", "system-out"),
)
"""The order in which Surefire's schema requires the children of a ``testcase``."""

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may contain, not even escaped."""


_Kind = Literal["passed", "failures", "errors", "skipped"]
"""The kind under which readers count a case."""


class _Suite(Record):
    """The content of one ``testsuite``."""

    verdicts: list[CaseVerdict]
    left_out: list[LeftOut]

    def count(self) -> dict[str, int]:
        """The counts that a ``testsuite`` states."""
        kinds = Counter(map(_kind_of, self.verdicts))
        kinds["skipped"] += len(self.left_out)
        stated: tuple[_Kind, ...] = ("failures", "errors", "skipped")
        return {"tests": kinds.total(), **{kind: kinds[kind] for kind in stated}}


def write_junit(result: SuiteResult, report: Report) -> None:
    """Write the file, without logs if there is no room. Raises UsageError if it cannot be written."""
    report.write(_render(result, LOG_BYTES), _render(result, 0))


def _render(result: SuiteResult, log_bytes: int) -> Iterator[bytes]:
    suites = _divide(result)
    total: Counter[str] = Counter()
    for suite in suites.values():
        total.update(suite.count())
    stated = {"name": result.suite, "id": result.run, "time": _time(result.seconds)}
    stated |= {name: str(number) for name, number in total.items()}
    attributes = "".join(f" {name}={quoteattr(_clean(text))}" for name, text in stated.items())
    yield f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites{attributes}>\n'.encode()
    quotes = _Quotes(Path(result.home), log_bytes)
    for name, suite in suites.items():
        element = _testsuite(name, suite, quotes)
        ElementTree.indent(element, level=1)
        yield b"  " + ElementTree.tostring(element, encoding="utf-8") + b"\n"
    yield b"</testsuites>\n"


def _divide(result: SuiteResult) -> dict[str, _Suite]:
    """All cases by testcase, in the order of the suite."""
    suites: dict[str, _Suite] = {}
    for verdict in result.verdicts:
        suites.setdefault(verdict.testcase, _Suite(verdicts=[], left_out=[])).verdicts.append(
            verdict
        )
    known = set(suites)
    for one in result.left_out:
        name = _testcase_of(one.case, known)
        suites.setdefault(name, _Suite(verdicts=[], left_out=[])).left_out.append(one)
    return suites


def _testcase_of(case: str, known: set[str]) -> str:
    """The testcase of a case that did not run: one that did, else all but the last part of the id."""
    name = case
    while "/" in name:
        name = name.rpartition("/")[0]
        if name in known:
            return name
    return case.rpartition("/")[0]


def _testsuite(name: str, suite: _Suite, quotes: "_Quotes") -> Element:
    counts = {key: str(number) for key, number in suite.count().items()}
    time = _time(sum(map(run_s, suite.verdicts)))
    element = _element(None, "testsuite", name=name, time=time, **counts)
    for verdict in suite.verdicts:
        _testcase(element, verdict, quotes)
    for one in suite.left_out:
        case = one.case.removeprefix(f"{name}/")
        left = _element(element, "testcase", name=case, classname=name, time=_time(0.0))
        _element(left, "skipped", message=clean_line(one.reason))
    return element


def _testcase(suite: Element, verdict: CaseVerdict, quotes: "_Quotes") -> None:
    element = _element(
        suite,
        "testcase",
        name=verdict.case.removeprefix(f"{verdict.testcase}/"),
        classname=verdict.testcase,
        time=_time(run_s(verdict)),
    )
    file, _, line = verdict.where.rpartition(":")
    if file and line.isdecimal():
        element.set("file", _clean(shorten_path(file)))
        element.set("line", line)
    failed = failed_attempts(verdict)
    match _kind_of(verdict):
        case "skipped":
            _element(element, "skipped", message=_skip_reason(verdict))
            for attempt in failed[-1:]:
                _quote(element, attempt, quotes)
        case "passed":
            for attempt in failed:
                _add_attempt(element, "flaky", attempt, quotes)
        case "failures" | "errors":
            _add_failures(element, verdict, quotes)
        case kind:
            assert_never(kind)
    element[:] = sorted(element, key=lambda child: ORDER.index(child.tag))


def _add_failures(element: Element, verdict: CaseVerdict, quotes: "_Quotes") -> None:
    """Add a case's failure or error, the first attempt of the verdict's kind, as in Surefire; and retries."""
    is_error = verdict.outcome in ERRORS
    failed = failed_attempts(verdict)
    main = next((one for one in failed if (one.outcome in ERRORS) is is_error), None)
    outcome, reason = verdict.outcome, verdict.message or why(verdict)
    if main is not None:
        outcome, reason = main.outcome, _why(main)
    tag = "error" if is_error else "failure"
    message = clean_line(reason, MESSAGE_LENGTH)
    found = _element(element, tag, message=message, type=str(outcome))
    details = [reason]
    if verdict.mismatch is not None and verdict.mismatch.describe() not in reason:
        details.append(verdict.mismatch.describe())
    if verdict.where:
        details.append(f"at {shorten_path(verdict.where)}")
    found.text = _clean("\n".join(details))
    for attempt in failed:
        if attempt is not main:
            _add_attempt(element, "rerun", attempt, quotes)
    if main is not None:
        _quote(element, main, quotes)


def _add_attempt(element: Element, prefix: str, attempt: Attempted, quotes: "_Quotes") -> None:
    tag = f"{prefix}{'Error' if attempt.outcome in ERRORS else 'Failure'}"
    message = clean_line(_why(attempt), MESSAGE_LENGTH)
    found = _element(element, tag, message=message, type=str(attempt.outcome))
    _element(found, "stackTrace").text = _clean(_why(attempt))
    _quote(found, attempt, quotes)


def _quote(element: Element, attempt: Attempted, quotes: "_Quotes") -> None:
    if attempt.log:
        _element(element, "system-out").text = quotes.quote(attempt.log)


class _Quotes:
    """The ends of logs, as long as there is room for them."""

    def __init__(self, home: Path, room: int) -> None:
        self._home = home
        self._room = room

    def quote(self, log: str) -> str:
        """The path of a log, and its end."""
        path = self._home / log
        text = _clean(read_tail(path, min(TAIL_BYTES, self._room))) if self._room else ""
        self._room = max(0, self._room - len(text.encode()))
        return _clean(f"log: {path}\n") + text


def _kind_of(verdict: CaseVerdict) -> _Kind:
    if verdict.outcome is Outcome.SKIPPED or verdict.is_skipped:
        return "skipped"
    if not verdict.is_bad:
        return "passed"
    if not verdict.gates:
        return "skipped"
    return "errors" if verdict.outcome in ERRORS else "failures"


def _skip_reason(verdict: CaseVerdict) -> str:
    spared = verdict.quarantine
    if spared is None or verdict.outcome is Outcome.SKIPPED or verdict.is_skipped:
        return clean_line(verdict.message or "skipped")
    who = f"in quarantine until {spared.until} ({spared.owner}: {spared.reason})"
    return clean_line(f"{verdict.outcome}, {who}: {why(verdict)}")


def _why(attempt: Attempted) -> str:
    return attempt.message or str(attempt.outcome)


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _element(parent: Element | None, tag: str, **attributes: str) -> Element:
    clean = {name: _clean(text) for name, text in attributes.items()}
    return Element(tag, clean) if parent is None else SubElement(parent, tag, clean)


def _clean(text: str) -> str:
    """Text that XML 1.0 can contain: forbidden characters become U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", text)
