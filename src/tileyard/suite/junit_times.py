"""How long tests took according to JUnit XML, read as a stream that trusts nobody."""

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from tileyard.errors import UsageError
from tileyard.model import Record


class JunitRow(Record):
    """One test that ran: its class or suite, its name, its time as it is written, and where."""

    group: str
    name: str
    time: str
    line: int


def read_junit(path: Path, text: str) -> list[JunitRow]:
    """All tests that have a time and were not skipped. Raises UsageError that names file and line.

    A file that declares a document type is refused: it is what entities, which can grow without
    bounds or name other files, are declared in.
    """
    reader = _Reader(path)
    try:
        reader.parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        problem = expat.errors.messages[error.code]
        raise UsageError(f"{path}:{error.lineno}: is not XML: {problem}") from error
    return reader.rows


class _Reader:
    """Takes in elements as they begin and end."""

    def __init__(self, path: Path) -> None:
        self.rows: list[JunitRow] = []
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._path = path
        self._suites: list[str] = []
        self._test: JunitRow | None = None

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
            self._test = JunitRow(group=group or name, name=name, time=time, line=line)
        elif element == "skipped":
            self._test = None

    def _end(self, element: str) -> None:
        if element in ("testsuites", "testsuite"):
            self._suites.pop()
        elif element == "testcase" and self._test is not None:
            if self._test.time:
                self.rows.append(self._test)
            self._test = None

    def _refuse_doctype(self, *_: object) -> None:
        self._fail("declares a document type, which is not read")

    def _fail(self, problem: str) -> NoReturn:
        raise UsageError(f"{self._path}:{self.parser.CurrentLineNumber}: {problem}")
