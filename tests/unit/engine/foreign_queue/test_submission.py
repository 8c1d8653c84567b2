"""What a task's output and end come to: lines and exit codes in, verdicts out."""

from functools import partial

import pytest

from tileyard.base.model import Outcome
from tileyard.devices.foreign import ForeignQueue
from tileyard.engine.foreign_queue.submission import ClientEnd, Submission
from tileyard.workers.task_lines import (
    CaseResult,
    CaseTurnedTo,
    Line,
    TaskEnded,
    TaskStarted,
    exit_code,
    format_line,
)

LAB = partial(ForeignQueue, name="lab", submit=("run", "{command}"), device="cpu:0", identity="i")
START = TaskStarted(token="t", host="h", device="cpu:0", identity="i")


def turn(case: str, token: str = "t") -> Line:
    """The runner turns to a case."""
    return CaseTurnedTo(token=token, case=case)


def result(case: str, outcome: Outcome = Outcome.PASSED, token: str = "t") -> Line:
    """A case ended."""
    return CaseResult(token=token, case=case, outcome=outcome, seconds=1.0, device="cpu:0")


def submission(*lines: Line, cut: int = 0) -> Submission:
    """A task with cases a, b and c whose client printed these lines, the last cut by so much."""
    task = Submission("t", ["a", "b", "c"])
    text = "\n".join(map(format_line, lines))
    task.read("stdout", text[:-cut] if cut else text + "\n")
    return task


def end(code: int | None = 0, **fields: object) -> ClientEnd:
    """The client's end."""
    return ClientEnd(argv=("run", "x y"), cwd="/w", code=code, **fields)  # type: ignore[arg-type]


def verdicts(task: Submission, ended: ClientEnd) -> dict[str, str]:
    """The verdicts that are left to give."""
    results, faults = task.conclude(ended)
    assert not {r.case for r in results} & {f.case for f in faults}
    return {r.case: r.outcome.value for r in results} | {f.case: "fault" for f in faults}


def test_a_result_is_certain_once_the_far_side_went_on() -> None:
    """The next line releases it, and it comes once however often it is repeated."""
    task = Submission("t", ["a", "b"])
    news = [
        [type(item).__name__ for item in task.read("stdout", format_line(line) + "\n")]
        for line in (START, turn("a"), result("a"), result("a"), turn("a"), turn("b"), result("b"))
    ]
    turned, ended = "CaseTurnedTo", "CaseResult"
    expected = [[], [turned], [], [], [], [ended, turned], []]
    assert news == expected
    assert verdicts(task, end(0)) == {"b": "passed"}


def test_lines_that_the_far_side_has_written_stand_for_what_was_lost() -> None:
    """What was at work is seen, and what is certain, though the client printed the last line alone."""
    lines = (START, turn("a"), result("a"), turn("b"), result("b"), turn("c"))
    task = submission(result("b"))
    written = task.take_over("".join(f"{format_line(line)}\n" for line in lines))
    assert [one.case for one in written] == ["a", "b"]
    assert verdicts(task, end(137)) == {"c": "fault"}


def test_lines_may_come_in_any_pieces() -> None:
    """Character by character as well as all at once; a last line needs no end."""
    text = "".join(format_line(line) + "\n" for line in (START, turn("a"), result("a"), turn("b")))
    task = Submission("t", ["a", "b"])
    news = [type(item).__name__ for character in text for item in task.read("stdout", character)]
    expected = ["CaseTurnedTo", "CaseResult", "CaseTurnedTo"]
    assert news == expected
    assert verdicts(submission(turn("a"), result("a"), cut=0), end(0)) == {"a": "passed"}


@pytest.mark.parametrize(
    ("outcome", "code", "expected"),
    [
        (Outcome.PASSED, 0, "passed"),
        (Outcome.PASSED, 1, "fault"),
        (Outcome.PASSED, None, "fault"),
        (Outcome.MISMATCH, 1, "mismatch"),
        (Outcome.MISMATCH, 0, "mismatch"),
        (Outcome.MISMATCH, 3, "fault"),
        (Outcome.MISMATCH, 137, "fault"),
        (Outcome.INFRA_ERROR, 3, "infra_error"),
    ],
)
def test_a_verdict_needs_line_and_code(outcome: Outcome, code: int | None, expected: str) -> None:
    """A code that contradicts the line spoils it; a swallowed code leaves the worse of the two."""
    assert verdicts(submission(turn("a"), result("a", outcome)), end(code)) == {"a": expected}


def test_a_limit_of_ours_spoils_the_last_line() -> None:
    """Whatever the code was: the client did not end by itself."""
    task = submission(turn("a"), result("a"))
    expected = {"a": "fault"}
    assert verdicts(task, end(0, limit="run limit")) == expected


def test_code_0_without_a_line_is_a_fault_with_everything_known() -> None:
    """Code, signal, argv, folder and the ends of both streams stand in the message."""
    task = submission(START, turn("a"))
    task.read("stderr", "something\n")
    _, faults = task.conclude(end(0))
    expected = ["a"]
    assert [fault.case for fault in faults] == expected
    for part in ("code 0", "no signal", "['run', 'x y']", "in /w", "something", "TILEYARD_CASE"):
        assert part in faults[0].message
    assert "\n" not in faults[0].message


def test_a_cut_result_is_none() -> None:
    """Its case is begun and unanswered."""
    expected = {"a": "fault"}
    assert verdicts(submission(turn("a"), result("a"), cut=1), end(0)) == expected


def test_a_lost_result_is_seen_although_the_task_went_on() -> None:
    """The case is a fault, the others are not."""
    task = submission(turn("a"), turn("b"), result("b"))
    expected = {"a": "fault", "b": "passed"}
    assert verdicts(task, end(0)) == expected


def test_lines_of_others_count_for_nothing() -> None:
    """Another task's token, or a case that this task does not hold."""
    task = submission(turn("a", "u"), result("a", token="u"), turn("d"), result("d"))
    expected: dict[str, str] = {}
    assert verdicts(task, end(0)) == expected


def test_what_was_never_begun_is_left() -> None:
    """Only the case that ran is answered when a task ends early."""
    task = submission(START, turn("a"), result("a"), turn("b"))
    expected = {"b": "fault"}
    assert verdicts(task, end(137)) == expected


@pytest.mark.parametrize(
    ("lines", "ended", "expected"),
    [
        ([], end(None, limit="queue limit of 5 s"), Outcome.QUEUE_TIMEOUT),
        ([], end(1), Outcome.INFRA_ERROR),
        ([], end(75), Outcome.QUEUE_TIMEOUT),
        ([START], end(75), Outcome.INFRA_ERROR),
        ([START], end(None, limit="run limit"), Outcome.INFRA_ERROR),
        ([], end(126), Outcome.INFRA_ERROR),
        ([], end(None, error="cannot run x"), Outcome.INFRA_ERROR),
        ([TaskEnded(token="t", code=3, cases=0, message="cut")], end(75), Outcome.INFRA_ERROR),
    ],
)
def test_why_nothing_began(lines: list[Line], ended: ClientEnd, expected: Outcome) -> None:
    """A queue time-out is one only while our runner has not begun."""
    task = submission(*lines)
    assert verdicts(task, ended) == {}
    queue = LAB(exit_codes={75: "timed_out", 126: "rejected"})
    outcome, message = task.find_loss(ended, queue)
    assert outcome is expected
    assert message


def test_the_cause_comes_first() -> None:
    """The client's last word comes before all that is known of the call."""
    task = submission()
    task.read("stderr", "warming up\nno licence left\n")
    _, message = task.find_loss(end(3), LAB())
    assert message.startswith("run ended with code 3: no licence left; no result line came [code 3")


def test_exit_codes() -> None:
    """0 all well, 1 a case failed, 3 infrastructure only."""
    expected = [0, 0, 1, 3, 1]
    sets: list[set[Outcome]] = [
        set(),
        {Outcome.PASSED, Outcome.UNCHECKED, Outcome.SKIPPED},
        {Outcome.PASSED, Outcome.MISMATCH},
        {Outcome.PASSED, Outcome.INFRA_ERROR},
        {Outcome.TIMEOUT, Outcome.INFRA_ERROR},
    ]
    assert [exit_code(outcomes) for outcomes in sets] == expected
