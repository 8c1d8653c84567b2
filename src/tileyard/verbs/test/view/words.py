"""Phrases about cases of a suite, the same during and after a run, and the files that it wrote."""

import contextlib
import errno
import heapq
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar

from tileyard.base.decoding import draft_of
from tileyard.base.errors import UsageError
from tileyard.base.model import WELL, Outcome, Trial
from tileyard.base.modes import write_on
from tileyard.base.wording import count_of, describe_unrecorded
from tileyard.show.words import ask_about_reference, clean_line, format_seconds, why
from tileyard.verbs.test.result.result import Attempted, CaseVerdict, Makespan, Plan, SuiteResult

SHORT_S = 10.0
"""Seconds; in a shorter run, starting processes takes most of the time: its makespan is not described."""
VAGUE = 2.0
"""A guess whose upper end is more than this factor above its lower end is not shown once a run has ended."""
NAMED = 5
"""Number of testcases that are named if all of their cases are wrong in the same way."""
T = TypeVar("T")
Rerun = Callable[[str], str]
"""The command line that runs just the case with that id."""
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""Control sequences of programs that colour their output, move a cursor, or name a window."""


ALIKE, SHARED = 3, 2
"""From this number on failures with one message are reported as one; of a shared step already two are."""


def rerun_command(*suite: str) -> Rerun:
    """How to run one case again: the arguments that name the suite, and options, as the user gave them."""

    def command(case: str) -> str:
        return shlex.join(("tileyard", "test", *suite, "--case", case))

    return command


def group_alike(verdicts: Iterable[CaseVerdict]) -> list[list[CaseVerdict]]:
    """Cases that ended alike with one message, in the order of their first ones; a few are each alone."""
    return group_by(verdicts, lambda one: (one.outcome, why(one)), count_alike)


def group_by(
    ended: Iterable[T],
    say: Callable[[T], tuple[str, str]],
    fewest: Callable[[T], int] = lambda _: ALIKE,
) -> list[list[T]]:
    """Groups of equal outcome and message, ordered by their first; fewer than ``fewest`` are each alone."""
    groups: dict[tuple[str, str], list[T]] = {}
    for one in ended:
        groups.setdefault(say(one), []).append(one)
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) >= fewest(group[0]) else [[one] for one in group])
    ]


def count_alike(ended: CaseVerdict | Trial) -> int:
    """From how many failures with the message of this one on they are reported as one."""
    is_shared = ended.outcome is Outcome.COMPILE_ERROR or ended.message.startswith("golden step")
    return SHARED if is_shared else ALIKE


def ask_about_references(result: SuiteResult) -> str:
    """A question about the testcases of which all cases are wrong in the same way; empty if there is none."""
    testcases: dict[str, list[CaseVerdict]] = {}
    for verdict in result.verdicts:
        testcases.setdefault(verdict.testcase, []).append(verdict)
    asked = {name: ask_about_reference(v, f"cases of {name}") for name, v in testcases.items()}
    names = [name for name, question in asked.items() if question]
    if len(names) < 2:
        return "".join(asked.values())
    named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return f"all cases of each of {named} differ in the same way from the reference: is the reference right?"


def describe_alike(group: Sequence[CaseVerdict]) -> str:
    """``79 cases, the same message: ...``."""
    return f"{count_of(len(group), 'case')}, the same message: {why(group[0])}"


def log_of(verdict: CaseVerdict, home: Path) -> Path | None:
    """The log of the last attempt that left one."""
    return next((home / one.log for one in reversed(verdict.attempts) if one.log), None)


def find_telling(group: Sequence[CaseVerdict], home: Path) -> CaseVerdict:
    """The case of a group whose log says most: where cases share a step, it is in the log of one of them."""

    def size(verdict: CaseVerdict) -> int:
        log = log_of(verdict, home)
        return log.stat().st_size if log is not None and log.is_file() else 0

    return max(group, key=size)


def failed_attempts(verdict: CaseVerdict) -> tuple[Attempted, ...]:
    """The attempts that did not end well, in their order."""
    return tuple(attempt for attempt in verdict.attempts if attempt.outcome not in WELL)


def run_s(verdict: CaseVerdict) -> float:
    """Run time of the last attempt."""
    return verdict.attempts[-1].run_s if verdict.attempts else 0.0


def find_longest(result: SuiteResult, number: int) -> list[tuple[CaseVerdict, float, float]]:
    """The cases that ran longest, each with its time and share of the total; empty for a single case."""
    total_s = sum(map(run_s, result.verdicts))
    if len(result.verdicts) < 2 or not total_s:
        return []
    ordered = heapq.nlargest(number, result.verdicts, key=run_s)
    return [(one, run_s(one), run_s(one) / total_s) for one in ordered if run_s(one)]


def group_by_reason(cases: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Ids of cases by their phrase, the largest group first."""
    groups: dict[str, list[str]] = {}
    for case, reason in cases:
        groups.setdefault(reason, []).append(case)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def group_by_kind(cases: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Ids of cases by the kind of their phrase, what is before its first colon, the largest group first. A
    single phrase of a kind is itself the kind.
    """
    kinds: dict[str, list[tuple[str, str]]] = {}
    for case, reason in cases:
        kinds.setdefault(reason.partition(": ")[0], []).append((case, reason))
    told: list[tuple[str, str]] = []
    for kind, those in kinds.items():
        reasons = {reason for _, reason in those}
        text = those[0][1] if len(reasons) == 1 else f"{kind} ({len(reasons)} reasons)"
        told += [(case, text) for case, _ in those]
    return group_by_reason(told)


def describe_guess(guess: Makespan | Plan) -> str:
    """States that a prediction is a guess, its range, and why."""
    return (
        f"a guess, between {format_seconds(guess.low_s)} and {format_seconds(guess.high_s)}:"
        f" nothing was known of {count_of(guess.guessed, 'case')}"
    )


def describe_time(span: Makespan) -> str:
    """Lower bound, prediction, time achieved, gap and its reason; empty for a short run. A gap above the
    bound, and a vague prediction, are left out.
    """
    if span.achieved_s < SHORT_S:
        return ""
    predicted = gap = ""
    if not span.guessed or span.high_s <= VAGUE * span.low_s:
        guess = f" ({describe_guess(span)})" if span.guessed else ""
        predicted = f"predicted {format_seconds(span.predicted_s)}{guess}, "
    gap_s = span.achieved_s - span.bound_s
    if 0 <= gap_s <= span.bound_s:
        gap = f"; gap {format_seconds(gap_s)}, {gap_s / span.bound_s:.1%}"
    reason = f": {clean_line(span.reason)}" if span.reason else ""
    return (
        f"{format_seconds(span.total_s)} of work on {count_of(span.slots, 'slot')}; "
        f"lower bound max(longest piece, total/slots) {format_seconds(span.bound_s)}, "
        f"{predicted}achieved {format_seconds(span.achieved_s)}{gap}{reason}"
    )


def describe_end(result: SuiteResult) -> str:
    """What went wrong in a run, in a few words; empty if everything that gates is well."""
    said = (
        (len(result.failed), "failed"),
        (sum(one.gates and not one.is_skipped for one in result.never_ran), "never ran"),
        (sum(one.is_skipped for one in result.never_ran), "skipped"),
        (len(result.faults), "met faults of devices, queues or hosts"),
    )
    wrong = [f"{count_of(number, 'case')} {what}" for number, what in said if number]
    if result.unrecorded:
        wrong.append(describe_unrecorded(result.unrecorded))
    return ", ".join(wrong)


class Report(contextlib.AbstractContextManager["Report"]):
    """A file that is never visible half written, and its folders. As a context manager it can reserve disk
    space, which is dropped if the block fails. All methods raise UsageError naming the path if it cannot be
    written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = contextlib.ExitStack()
        self._file: BinaryIO | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._draft.__exit__(kind, error, trace)

    def reserve(self, room_bytes: int) -> None:
        """Reserve a place for the file, and so many bytes if available: a full disk then cannot prevent it.
        One that is not plain, as a pipe, is opened when written.
        """
        if not self._path.exists() or self._path.is_file():
            with self._explained():
                self._open(room_bytes)

    def write(self, *versions: Iterable[bytes]) -> None:
        """Write the first version that fits, once."""
        with self._explained(), self._draft:
            file = self._file or self._open(0)
            for number, chunks in enumerate(versions, start=1):
                try:
                    _write_whole(file, b"".join(chunks))
                except OSError as error:
                    if error.errno != errno.ENOSPC or number == len(versions):
                        raise
                else:
                    return

    def _open(self, room_bytes: int) -> BinaryIO:
        self._path.resolve().parent.mkdir(parents=True, exist_ok=True)
        self._file = self._draft.enter_context(draft_of(self._path, room_bytes))
        return self._file

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error


class CaseLogs:
    """Copies of cases' logs, made as these end: ``CASE.log`` below a folder, all attempts in one. Raises
    UsageError if that is impossible; ``error`` is the first later failure.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self.error: UsageError | None = None
        self._folder = folder
        self._home = home
        self._begun: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror}") from error

    def keep(self, trial: Trial) -> None:
        """Copy the log of an attempt, if it has one."""
        source, target = self._home / trial.log, self._folder / f"{trial.case}.log"
        if not trial.log or not source.is_file():
            return
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with (
                source.open("rb") as read,
                target.open("ab" if trial.case in self._begun else "wb") as write,
            ):
                shutil.copyfileobj(read, write)
        except OSError as error:
            self.error = self.error or UsageError(f"cannot write {target}: {error.strerror}")
        self._begun.add(trial.case)


def write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a ``Report`` at once."""
    Report(path).write(chunks)


def require_writable(path: Path) -> None:
    """Make its folders. Raises UsageError where a ``Report`` cannot be written there."""
    with contextlib.suppress(_DroppedError), Report(path) as report:
        report.reserve(0)
        raise _DroppedError


class _DroppedError(Exception):
    """It was an attempt, and leaves nothing."""


def _write_whole(file: BinaryIO, data: bytes) -> None:
    """Write from the beginning, over existing content: reserved space stays reserved."""
    if file.seekable():
        file.seek(0)
    write_on(file.fileno(), bytearray(data))
    if file.seekable():
        file.seek(len(data))  # where a draft is cut off


def read_tail(path: Path, size: int) -> str:
    """The last whole lines of a log, at most ``size`` bytes, without terminal codes, below a line on what
    precedes them; empty if unreadable.
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            begin = max(0, length - size)
            file.seek(begin)
            content = file.read(size)
    except (OSError, ValueError):  # the latter for a name that no file can have
        return ""
    if begin:
        cut = content.find(b"\n") + 1  # 0 if one line is longer than the limit
        content = content[cut:]
        begin += cut
    text = _TERMINAL.sub("", content.decode("utf-8", errors="replace"))
    return f"({begin} bytes before this are in {path})\n{text}" if begin else text
