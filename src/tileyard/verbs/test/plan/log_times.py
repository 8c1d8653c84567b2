"""Recognizes log lines with a test's time, of known tools or by a pattern; ``imports`` judges them."""

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.wording import count_of

UNITS_S = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
}
GROUPS = {"case": True, "seconds": True, "testcase": False, "unit": False}
"""The groups of a pattern, and whether they are required."""
MOST_SHOWN = 60
"""Characters that a message shows of a line."""


class TimedLine(Record):
    """A test's time as written; lines count from 1. Phases of a test add up; else its last time counts."""

    number: int
    testcase: str
    case: str
    given: str
    unit_s: float = 1.0
    phase: str = "run"


Line = tuple[int, str]


# ---- logs of known tools ---------------------------------------------------------------------------

_NOISE = re.compile(r"\x1b\[[0-9;]*m|^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ")
"""Colours, and the timestamp with which CI services begin each line."""
_PYTEST = re.compile(r"\s*(\d+(?:\.\d+)?)s\s+(setup|call|teardown)\s+(\S.*?)\s*")
_CTEST = re.compile(r"\s*\d+/\d+\s+Test\s+#\d+:\s+(\S+)\s.*?(\d+(?:\.\d+)?)\s+sec\b.*")
_GOOGLE_TEST = re.compile(
    r"\s*\[ +(?:OK|FAILED) +\] ([^\s.,]+)\.([^\s,]+)(?:, where .*)? \((\d+) ms\)\s*"
)
_LIT = re.compile(r"\s*(\d+(?:\.\d+)?)s: (\S.*?) :: (\S.*?)\s*")
_LIT_TIMES = re.compile(r"-?(\d\.\d+e[+-]\d+) (\S.*?)\s*")
_TESTCASE = re.compile(
    r"running testcase: (\S+)|===== testcase (\S+) output begin|^# testcase: (\S+)"
)
_TESTCASE_END = re.compile(r"===== testcase \S+ output end")
_CASE = re.compile(r"=== case: (\S+)")
_RUN_TIME = re.compile(r"\bModel RUN TIME:?\s*(\d+(?:\.\d+)?)\s*(us|ms|s)\b")


def scan_log(lines: Iterable[Line]) -> list[TimedLine]:
    """The lines of pytest, ctest, Google Test, lit and the serial simulator that have times. Times of Google
    Test within ctest are part of ctest's own.
    """
    found: dict[str, list[TimedLine]] = {name: [] for name in (*_READERS, "simulator")}
    simulator = _Simulator()
    for number, written in lines:
        line = _NOISE.sub("", written)
        for name, (pattern, read) in _READERS.items():
            if match := pattern.fullmatch(line):
                found[name].append(read(number, match))
                break
        else:
            found["simulator"] += simulator.take(number, line)
    if found["ctest"]:
        found["Google Test"] = []
    return [one for rows in found.values() for one in rows]


def _read_pytest(number: int, match: re.Match[str]) -> TimedLine:
    testcase, _, case = match[3].partition("::")
    return TimedLine(number=number, testcase=testcase, case=case, given=match[1], phase=match[2])


def _read_ctest(number: int, match: re.Match[str]) -> TimedLine:
    return TimedLine(number=number, testcase=match[1], case="", given=match[2])


def _read_google_test(number: int, match: re.Match[str]) -> TimedLine:
    return TimedLine(
        number=number, testcase=match[1], case=match[2], given=match[3], unit_s=UNITS_S["ms"]
    )


def _read_lit(number: int, match: re.Match[str]) -> TimedLine:
    return TimedLine(number=number, testcase=match[2], case=match[3], given=match[1])


def _read_lit_times(number: int, match: re.Match[str]) -> TimedLine:
    return TimedLine(number=number, testcase=match[2], case="", given=match[1])


_READERS: dict[str, tuple[re.Pattern[str], Callable[[int, re.Match[str]], TimedLine]]] = {
    "pytest": (_PYTEST, _read_pytest),
    "ctest": (_CTEST, _read_ctest),
    "Google Test": (_GOOGLE_TEST, _read_google_test),
    "lit": (_LIT, _read_lit),
    "lit's times": (_LIT_TIMES, _read_lit_times),
}


class _Simulator:
    """A log that names a testcase, then its cases, then the model's time: the single case's since the last
    time, else the testcase's.
    """

    def __init__(self) -> None:
        self._testcase = ""
        self._cases: list[str] = []

    def take(self, number: int, line: str) -> Iterator[TimedLine]:
        """The time of a line, if it has one and its test is known."""
        if match := _TESTCASE.search(line):
            self._testcase, self._cases = next(filter(None, match.groups())), []
        elif _TESTCASE_END.search(line):
            self._testcase, self._cases = "", []
        elif match := _CASE.search(line):
            self._cases.append(match[1])
        elif match := _RUN_TIME.search(line):
            case = self._cases[0] if len(self._cases) == 1 else ""
            self._cases = []
            if self._testcase:
                yield TimedLine(
                    number=number,
                    testcase=self._testcase,
                    case=case,
                    given=match[1],
                    unit_s=UNITS_S[match[2]],
                )


# ---- logs that a pattern describes ---------------------------------------------------------------


def read_pattern(text: str) -> re.Pattern[str]:
    """A user's pattern. Raises UsageError if it is invalid, or its groups are not those of a time."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--durations-pattern: {text!r} is not a regular expression: {error}"
        ) from error
    for group in pattern.groupindex:
        if group not in GROUPS:
            near = get_close_matches(group, GROUPS, n=1)
            raise UsageError(
                f"--durations-pattern: unknown group (?P<{group}>...)",
                f"did you mean {near[0]!r}?" if near else f"known are {', '.join(GROUPS)}",
            )
    for group, is_needed in GROUPS.items():
        if is_needed and group not in pattern.groupindex:
            raise UsageError(f"--durations-pattern: {text!r} has no group (?P<{group}>...)")
    return pattern


def scan_by_pattern(lines: Iterable[Line], pattern: re.Pattern[str]) -> Iterator[TimedLine]:
    """The times that a pattern finds. A line that only names a case or testcase names it for the next time.
    Raises UsageError for an unknown unit; the caller adds the file.
    """
    testcase = case = ""
    for number, written in lines:
        match = pattern.search(_NOISE.sub("", written))
        if match is None:
            continue
        groups = match.groupdict()
        if groups.get("testcase"):
            testcase, case = groups["testcase"], ""
        case = groups["case"] or case
        if not groups["seconds"] or not (testcase or case):
            continue
        unit = groups.get("unit") or "s"
        if unit not in UNITS_S:
            near = get_close_matches(unit, UNITS_S, n=1)
            raise UsageError(
                f"{number}: unit: {unit!r} is none",
                f"did you mean {near[0]!r}?" if near else f"known are {', '.join(UNITS_S)}",
            )
        owner, name = (testcase, case) if testcase else _split(case)
        yield TimedLine(
            number=number, testcase=owner, case=name, given=groups["seconds"], unit_s=UNITS_S[unit]
        )
        case = ""


def _split(name: str) -> tuple[str, str]:
    """The testcase and the case of an id; an id without a slash is a testcase."""
    testcase, _, case = name.rpartition("/")
    return (testcase, case) if testcase else (name, "")


# ---- logs without times -----------------------------------------------------------------------------


class _Look(NamedTuple):
    """The tool that a line indicates, and how to get times from it."""

    pattern: re.Pattern[str]
    words: str


_LOOKS = (
    _Look(re.compile(r"=+ test session starts =+"), "a log of pytest without --durations=0"),
    _Look(re.compile(r"\[=+\] Running \d+ test"), "a log of Google Test with --gtest_print_time=0"),
    _Look(re.compile(r"-- Testing: \d+ tests?"), "a log of lit without --time-tests"),
    _Look(re.compile(r"\s*Start +\d+: \S"), "a log of ctest that ended before its first test did"),
    _Look(_RUN_TIME, "a log of the simulator that names no testcase before its times"),
)


def describe_look(lines: Iterable[Line]) -> str:
    """Describes the apparent origin of a log without times."""
    first, count = "", 0
    for number, written in lines:
        line = _NOISE.sub("", written)
        for look in _LOOKS:
            if look.pattern.search(line):
                return f"{look.words} (line {number})"
        first, count = first or line.strip(), count + 1
    if not count:
        return "an empty file"
    shown = first[:MOST_SHOWN] + ("..." if len(first) > MOST_SHOWN else "")
    return f"{count_of(count, 'line')} of text that begin{'' if count > 1 else 's'} with {shown!r}"
