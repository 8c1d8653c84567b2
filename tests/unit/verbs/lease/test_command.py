"""The command line of ``tileyard lease``: what is ours, what is the user's, and what is neither."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.processes.records import LeaseStatus, State
from tileyard.verbs.lease.command import Wanted, exit_status


def test_what_stands_after_the_dashes_is_the_users() -> None:
    """Options of ours, further dashes and bytes that are not text are passed through."""
    expected = ["prog", "--count", "3", "--", "--help", "a b", "\udcff", ""]
    wanted = Wanted(["--count", "2", "--devices=cuda:0", "--devices", "cuda:1", "--", *expected])
    assert wanted.argv == expected
    assert (wanted.count, wanted.devices, wanted.is_help) == (2, ["cuda:0", "cuda:1"], False)


def test_defaults() -> None:
    """One device of any kind, with no limits."""
    wanted = Wanted(["--", "true"])
    assert (wanted.devices, wanted.count, wanted.priority) == (["auto"], 1, 0)
    assert (wanted.limits.queue_s, wanted.limits.run_s) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["true"], "'true' is not an option"),
        (["--", ""][:1], "no command"),
        ([], "no command"),
        (["--", ""], "no command"),
        (["--colour", "red", "--", "true"], "'--colour' is not an option"),
        (["--device", "cpu", "--", "true"], "there is --devices; the command goes after --"),
        (["-c", "1", "--", "true"], "'-c' is not an option"),
        (["--count"], "--count needs a value"),
        (["--count", "--", "true"], "--count needs a value"),
        (["--count", "two", "--", "true"], "'two' is not a number"),
        (["--count", "0", "--", "true"], "not between 1"),
        (["--priority=5000", "--", "true"], "not between -1000"),
        (["--run-limit", "soon", "--", "true"], "'soon' is not a duration"),
        (["--run-limit", "0s", "--", "true"], "--run-limit leaves no time at all"),
        (["--count=1", "--count=2", "--", "true"], "given twice"),
    ],
)
def test_bad_usage_is_refused(arguments: list[str], expected: str) -> None:
    """Nothing that is not understood becomes part of the command."""
    with pytest.raises(UsageError, match=expected):
        Wanted(arguments)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (LeaseStatus(state=State.ENDED, code=0), 0),
        (LeaseStatus(state=State.ENDED, code=75), 75),
        (LeaseStatus(state=State.ENDED, signal=9), 137),
        (LeaseStatus(state=State.INTERRUPTED, signal=2), 130),
        (LeaseStatus(state=State.QUEUE_TIMEOUT), 75),
        (LeaseStatus(state=State.MAX_TIME), 124),
        (LeaseStatus(state=State.DEVICE_SICK), 69),
        (LeaseStatus(state=State.NO_DEVICE), 69),
        (LeaseStatus(state=State.NESTED), 69),
        (LeaseStatus(state=State.KEEPER_LOST), 69),
        (LeaseStatus(state=State.NOT_RUN, code=126), 126),
    ],
)
def test_exit_status(status: LeaseStatus, expected: int) -> None:
    """The command's own code, and ours where it has none."""
    assert exit_status(status) == expected
