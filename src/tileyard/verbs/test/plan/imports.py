"""Reads test durations of other tools, whose kind their content decides: tables (``testcase,seconds`` or
``testcase,case,seconds`` by column names; ``#`` begins a comment), ``.test_durations`` of pytest-split, the
JSON of lit, JUnit XML, and logs as in ``log_times``. null or nothing in place of a time is none; what else is
no time is a mistake.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from tileyard.base.clock import LONGEST_S
from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.verbs.test.plan import log_times
from tileyard.verbs.test.plan.log_times import TimedLine

_BRACKETED = re.compile(r"\[\s*([A-Za-z=-][^]\"]*|\d+\s*[%/][^]]*)\]")
"""Beginnings of log lines that are not JSON: ``[INFO]``, ``[=====]``, ``[ 50%]``, ``[3/71]``."""


class ImportedTime(Record):
    """Recorded time of a testcase, or of one case of it."""

    testcase: str
    seconds: float
    case: str = ""

    @property
    def id(self) -> str:
        """The suite's name for the case: ``testcase/case``, or the testcase if it is taken as a whole."""
        return f"{self.testcase}/{self.case}" if self.case else self.testcase


class _JunitRow(Record):
    """One test that ran: its class or suite, its name, its time as written, and its place."""

    group: str
    name: str
    time: str
    line: int


def read_times(path: Path, pattern: str = "") -> tuple[ImportedTime, ...]:
    """The times of a file, or of a folder's JUnit files, each case once; with a pattern, those that it finds
    in lines. Raises UsageError naming file, line and key.
    """
    if path.is_dir():
        files = sorted(path.rglob("*.xml"))
        if not files:
            raise UsageError(f"{path}: holds no JUnit file *.xml")
        return tuple({one.id: one for file in files for one in read_times(file, pattern)}.values())
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        # A log may contain anything that its programs have printed.
        text = data.decode("utf-8-sig", "replace" if pattern else "strict")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: is not UTF-8 text") from error
    read = partial(_read_by_pattern, pattern=pattern) if pattern else _choose_reader(text)
    found = {time.id: time for time in read(path, text)}  # of several the last
    if not found:
        raise UsageError(f"{path}: contains no times of tests")
    return tuple(found.values())


def _choose_reader(text: str) -> Callable[[Path, str], Iterator[ImportedTime]]:
    first = next((line for _, line in _content_lines(text)), "").strip()
    if first.startswith("<"):
        return read_junit
    if first.startswith(("{", "[")) and not _BRACKETED.match(first):
        return _read_json
    columns = {column.strip(' "') for column in first.split(",")}
    return _read_log if columns.isdisjoint(("testcase", "seconds")) else _read_table


def _fail(path: Path, line: int, problem: str) -> NoReturn:
    raise UsageError(f"{path}:{line}: {problem}")


def _content_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with content, with their numbers."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def _try_seconds(given: object) -> float | None:
    """A time given as text or number; some writers of JUnit XML group thousands."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", given) if isinstance(given, str) else given
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        seconds = float(text)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= LONGEST_S else None


def _refuse_time(path: Path, line: int, key: str, given: object) -> NoReturn:
    _fail(path, line, f"{key}: {given!r} is not a number of seconds up to {LONGEST_S:.0f}")


def _read_table(path: Path, text: str) -> Iterator[ImportedTime]:
    lines = _content_lines(text)
    number, first = next(lines)
    columns = _split(path, number, first)
    for name in ("testcase", "seconds"):
        if columns.count(name) != 1:
            _fail(path, number, f"needs one column {name!r}; its columns are {', '.join(columns)}")
    stands: dict[str, int] = {}
    wholes: dict[str, int] = {}
    parts: dict[str, int] = {}
    for number, line in lines:
        fields = _split(path, number, line)
        if len(fields) != len(columns):
            wanted = count_of(len(columns), "column")
            _fail(path, number, f"has {count_of(len(fields), 'field')} for {wanted}")
        row = dict(zip(columns, fields, strict=True))
        if not row["testcase"]:
            _fail(path, number, "testcase: is empty")
        if not row["seconds"]:
            continue
        seconds = _try_seconds(row["seconds"])
        if seconds is None:
            _refuse_time(path, number, "seconds", row["seconds"])
        time = ImportedTime(testcase=row["testcase"], case=row.get("case", ""), seconds=seconds)
        if time.id in stands:
            _fail(path, number, f"testcase: {time.id} stands on line {stands[time.id]} already")
        stands[time.id] = number
        (parts if time.case else wholes)[time.testcase] = number
        if time.testcase in parts and time.testcase in wholes:  # the same time would count twice
            _fail(
                path,
                number,
                f"case: lines {parts[time.testcase]} and {wholes[time.testcase]} have"
                f" a part of {time.testcase} and all of it",
            )
        yield time


def _split(path: Path, number: int, line: str) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line], strict=True))]
    except csv.Error as error:
        _fail(path, number, f"is not a row of a table: {error}")


def _read_json(path: Path, text: str) -> Iterator[ImportedTime]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        _fail(path, error.lineno, f"is not JSON: {error.msg}")
    except RecursionError:
        _fail(path, 1, "is nested too deeply")
    except ValueError as error:  # an integer of thousands of digits
        _fail(path, 1, f"is not JSON: {error}")
    if isinstance(content, dict) and isinstance(content.get("tests"), list):
        yield from _read_lit_json(path, text, content["tests"])
        return
    # Older versions of pytest-split wrote a list of pairs.
    pairs = content.items() if isinstance(content, dict) else content
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            _fail(path, 1, "is not an object that holds the seconds of each test")
        test, given = pair
        if given is None:
            continue
        testcase, _, case = test.partition("::")
        seconds = _try_seconds(given)
        if seconds is None:
            _refuse_time(path, _line_of(text, test), test, given)
        if not testcase:
            _fail(path, _line_of(text, test), f"{test!r} names no test")
        yield ImportedTime(testcase=testcase, case=case, seconds=seconds)


def _read_lit_json(path: Path, text: str, tests: list[object]) -> Iterator[ImportedTime]:
    for test in tests:
        name = test.get("name") if isinstance(test, dict) else None
        if not isinstance(test, dict) or not isinstance(name, str):
            _fail(path, 1, "tests: is not the list of tests that lit writes, with their names")
        testcase, _, case = name.partition(" :: ")
        if not testcase.strip():
            _fail(path, _line_of(text, name), f"{name!r} names no test")
        if (given := test.get("elapsed")) is None:
            continue
        seconds = _try_seconds(given)
        if seconds is None:
            _refuse_time(path, _line_of(text, name), f"elapsed of {name}", given)
        yield ImportedTime(testcase=testcase, case=case, seconds=seconds)


def _line_of(text: str, key: str) -> int:
    """The line of a key in JSON, 1 if it is written in another way."""
    place = max(text.find(json.dumps(key)), text.find(json.dumps(key, ensure_ascii=False)), 0)
    return text.count("\n", 0, place) + 1


def read_junit(path: Path, text: str) -> Iterator[ImportedTime]:
    """All tests that have a time and were not skipped. A document type is refused: its entities could grow
    without bounds or name files. Raises UsageError naming file and line.
    """
    reader = _Reader(path)
    try:
        reader.parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        problem = expat.errors.messages[error.code]
        raise UsageError(f"{path}:{error.lineno}: is not XML: {problem}") from error
    for row in reader.rows:
        seconds = _try_seconds(row.time)
        if seconds is None:
            _refuse_time(path, row.line, f"time of {row.name}", row.time)
        yield ImportedTime(testcase=row.group, case=row.name, seconds=seconds)


class _Reader:
    """Processes elements of JUnit XML as they begin and end."""

    def __init__(self, path: Path) -> None:
        self.rows: list[_JunitRow] = []
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = lambda *_: self._fail(
            "declares a document type, which is not read"
        )
        self._path = path
        self._suites: list[str] = []
        self._test: _JunitRow | None = None

    def _begin(self, element: str, attributes: Mapping[str, str]) -> None:
        if not self._suites and element not in ("testsuites", "testsuite"):
            self._fail(f"is not JUnit XML: it begins with <{element}>")
        if element in ("testsuites", "testsuite"):
            self._suites.append(attributes.get("name", ""))
        elif element == "testcase":
            name, time = attributes.get("name", ""), attributes.get("time", "")
            group = attributes.get("classname") or self._suites[-1]
            if not name:
                self._fail("name: a testcase has none")
            line = self.parser.CurrentLineNumber
            self._test = _JunitRow(group=group or name, name=name, time=time, line=line)
        elif element == "skipped":
            self._test = None

    def _end(self, element: str) -> None:
        if element in ("testsuites", "testsuite"):
            self._suites.pop()
        elif element == "testcase" and self._test is not None:
            if self._test.time:
                self.rows.append(self._test)
            self._test = None

    def _fail(self, problem: str) -> NoReturn:
        _fail(self._path, self.parser.CurrentLineNumber, problem)


def _read_log(path: Path, text: str) -> Iterator[ImportedTime]:
    rows = log_times.scan_log(_content_lines(text))
    if not rows:
        raise UsageError(
            f"{path}:1: is not a table with the columns testcase and seconds, no JSON, no JUnit "
            f"XML, and no log of"
            " pytest, ctest, Google Test, lit or the simulator with run times: it looks like"
            f" {log_times.describe_look(_content_lines(text))}",
            "--durations-pattern says which of its lines have a time",
        )
    return _join_phases(path, rows)


def _read_by_pattern(path: Path, text: str, pattern: str) -> Iterator[ImportedTime]:
    compiled = log_times.read_pattern(pattern)
    lines = list(enumerate(text.splitlines(), start=1))
    try:
        rows = list(log_times.scan_by_pattern(lines, compiled))
    except UsageError as error:
        raise UsageError(f"{path}:{error.message}", error.hint) from error
    if not rows:
        _fail(
            path,
            1,
            f"no line has a time by --durations-pattern {pattern!r}: it looks like "
            f"{log_times.describe_look(lines)}",
        )
    return _join_phases(path, rows)


def _join_phases(path: Path, rows: Iterable[TimedLine]) -> Iterator[ImportedTime]:
    """Adds up a test's setup, call and teardown; of several runs of it the last counts."""
    phases: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        seconds = _try_seconds(row.given)
        if seconds is None or seconds * row.unit_s > LONGEST_S:
            name = f"{row.testcase}/{row.case}" if row.case else row.testcase
            _refuse_time(path, row.number, name, row.given)
        phases.setdefault((row.testcase, row.case), {})[row.phase] = seconds * row.unit_s
    for (testcase, case), times_s in phases.items():
        yield ImportedTime(testcase=testcase, case=case, seconds=sum(times_s.values()))
