"""From the end of a worker to the outcome of the case that it ran."""

import signal

import pytest

from tileyard.base.model import Outcome
from tileyard.processes.records import Ended, Verdict, describe_signal, judge_end

GIB = 1 << 30


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (
            Ended(signal=signal.SIGSEGV, confirmed=True),
            Verdict(outcome=Outcome.CRASHED, message="died of SIGSEGV (Segmentation fault)"),
        ),
        (
            Ended(code=3, confirmed=True),
            Verdict(outcome=Outcome.CRASHED, message="ended with exit code 3 before it answered"),
        ),
        (
            Ended(signal=signal.SIGKILL, confirmed=True),
            Verdict(
                outcome=Outcome.INFRA_ERROR,
                message="died of SIGKILL (Killed), which the engine had not sent",
            ),
        ),
        (
            Ended(signal=signal.SIGTERM, confirmed=True, overdue="npu:0 was held for 5 s"),
            Verdict(
                outcome=Outcome.INFRA_ERROR,
                message="was ended by its keeper: npu:0 was held for 5 s",
            ),
        ),
        (
            Ended(signal=signal.SIGKILL, confirmed=True, oom_kill=True),
            Verdict(
                outcome=Outcome.OUT_OF_MEMORY,
                message="died of SIGKILL (Killed): the kernel killed it because the host, or its "
                "container, was out of memory",
            ),
        ),
        (
            Ended(code=1, confirmed=True, memory_bytes=2 * GIB, log_tail="...\nMemoryError\n"),
            Verdict(
                outcome=Outcome.OUT_OF_MEMORY,
                message="ended with exit code 1 before it answered: it could not allocate within "
                "its limit of 2 GiB",
            ),
        ),
        (
            Ended(
                signal=signal.SIGABRT,
                confirmed=True,
                memory_bytes=2 * GIB,
                log_tail="LLVM ERROR: out of memory\n",
            ),
            Verdict(
                outcome=Outcome.OUT_OF_MEMORY,
                message="died of SIGABRT (Aborted): it could not allocate within its limit of 2 GiB",
            ),
        ),
        (
            Ended(
                signal=signal.SIGSEGV,
                confirmed=True,
                memory_bytes=2 * GIB,
                peak_rss_bytes=int(1.95 * GIB),
            ),
            Verdict(
                outcome=Outcome.OUT_OF_MEMORY,
                message="died of SIGSEGV (Segmentation fault): it had used 1.95 GiB of its limit "
                "of 2 GiB",
            ),
        ),
        (
            Ended(signal=signal.SIGSEGV, confirmed=True, oom_kill=True, memory_bytes=2 * GIB),
            Verdict(outcome=Outcome.CRASHED, message="died of SIGSEGV (Segmentation fault)"),
        ),
        (
            Ended(signal=signal.SIGKILL, confirmed=False, survivors=(12, 34)),
            Verdict(
                outcome=Outcome.INFRA_ERROR,
                message="left processes that could not be confirmed gone: 12, 34",
            ),
        ),
        (
            Ended(),
            Verdict(
                outcome=Outcome.INFRA_ERROR,
                message="lost its keeper: it is not known whether its process tree is gone",
            ),
        ),
        (
            Ended(signal=signal.SIGTERM, confirmed=True, reason="the run ended"),
            Verdict(outcome=Outcome.INFRA_ERROR, message="was ended by the engine: the run ended"),
        ),
    ],
)
def test_an_end_has_one_outcome_and_says_why(ended: Ended, expected: Verdict) -> None:
    """The message names the signal, and the limit where one was reached."""
    assert judge_end(ended) == expected


def test_a_time_limit_is_named() -> None:
    """A worker that was killed for a limit is a timeout, whatever signal it took."""
    ended = Ended(signal=signal.SIGKILL, confirmed=True, reason="time limit")
    expected = Verdict(
        outcome=Outcome.TIMEOUT,
        message="ran past its run limit of 60 s and was killed with SIGKILL (Killed); "
        "its process tree is gone",
    )
    assert judge_end(ended, limit="run limit of 60 s") == expected


def test_an_end_before_the_kill_is_no_timeout() -> None:
    """A crash that the kill came too late for stays a crash."""
    ended = Ended(signal=signal.SIGSEGV, confirmed=True)
    assert judge_end(ended, limit="run limit of 60 s").outcome is Outcome.CRASHED


def test_a_tree_that_is_not_gone_is_no_timeout() -> None:
    """A device with survivors on it is a matter of infrastructure, even after a time limit."""
    ended = Ended(signal=signal.SIGKILL, survivors=(5,), reason="time limit")
    assert judge_end(ended, limit="run limit of 60 s").outcome is Outcome.INFRA_ERROR


def test_a_signal_without_a_name_keeps_its_number() -> None:
    """Real-time signals are described by number."""
    expected = "signal 99"
    assert describe_signal(99) == expected
