"""Copies of a process: what they tell, how they end, and when their limit counts."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.base.model import Record
from tileyard.processes.keeper.tree import read_process, session_of
from tileyard.pytest_plugin.far_records import Answered, DeviceRefused, DeviceWanted
from tileyard.pytest_plugin.forked import (
    Forked,
    ForkEnd,
    Teller,
    cut_stack,
    follow,
    make_lane,
    run_loop,
    wait_any,
)


def run(
    work: Callable[[Teller], None], log: Path, limit_s: float = 60.0
) -> tuple[list[Record], ForkEnd]:
    """Everything that a copy told, and how it ended."""
    copy = fork(work, limit_s, log)
    told: list[Record] = []
    while copy.end is None:
        wait_any([copy])
        told += copy.read()
    copy.lane.close()
    return told, copy.end


def fork(work: Callable[[Teller], None], limit_s: float, log: Path) -> Forked:
    """A copy in a lane of its own."""
    return Forked(make_lane(lambda _, teller: work(teller)), 0, limit_s, log)


def is_zombie(pid: int) -> bool:
    """Whether a process is dead, and nobody has taken note."""
    return read_process(pid, "stat").rpartition(b")")[2].split()[:1] == [b"Z"]


def test_a_copy_tells_what_its_closure_knows(tmp_path: Path) -> None:
    """Messages come in order, of any size, from a function that could not be pickled."""
    expected = ["small", "x" * 1_000_000, "last"]

    def work(teller: Teller) -> None:
        for text in expected:
            teller.tell(Answered(reply=text))

    told, end = run(work, tmp_path / "log")
    assert [message.reply for message in told if isinstance(message, Answered)] == expected
    assert (end.code, end.signal, end.timed_out) == (0, None, False)


def test_a_copy_that_raises_leaves_its_traceback(tmp_path: Path) -> None:
    """An exception ends the copy with a code that is not 0 and is found in its log."""

    def work(_: Teller) -> None:
        raise ValueError("no good")

    _, end = run(work, tmp_path / "log")
    expected = "ValueError: no good"
    assert end.code
    assert expected in end.tail
    assert "ended with exit code" in end.describe(1.0)


def test_a_crash_says_where_it_was(tmp_path: Path) -> None:
    """A copy that dies of a signal names it, and the user's frames at that moment."""

    def crash_here(_: Teller) -> None:
        ctypes.string_at(0)

    _, end = run(crash_here, tmp_path / "log")
    expected = signal.SIGSEGV
    assert end.signal == expected
    assert "in crash_here" in end.stack
    assert "in be_copy" not in end.stack


@pytest.mark.slow
def test_a_hang_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Past its limit a copy says where it is and is killed, even if it ignores that, with its children."""
    child_pid = tmp_path / "pid"

    def work(_: Teller) -> None:
        signal.signal(signal.SIGABRT, signal.SIG_IGN)
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        child_pid.write_text(str(child.pid))
        while True:
            signal.pause()

    _, end = run(work, tmp_path / "log", limit_s=2.0)
    expected = signal.SIGKILL
    assert end.timed_out
    assert end.signal == expected
    assert session_of(int(child_pid.read_text())) == 0 or is_zombie(int(child_pid.read_text()))


@pytest.mark.slow
def test_waits_for_a_core_count_for_tests(tmp_path: Path) -> None:
    """A test on a sixteenth of a core has used all the time that passed; test_pytest_kernels.py has steps."""

    def work(_: Teller) -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        subprocess.Popen(["sh", "-c", "for _ in $(seq 15); do while :; do :; done & done; wait"])
        time.sleep(0.1)  # until these run
        until_s = time.process_time() + 0.045
        while time.process_time() < until_s:
            pass

    _, end = run(work, tmp_path / "log", 0.6)
    assert end.timed_out


@pytest.mark.slow
def test_a_limit_stands_still_while_it_is_paused(tmp_path: Path) -> None:
    """Time for which a copy is paused does not count, and is told."""

    def work(teller: Teller) -> None:
        teller.tell(DeviceWanted())
        time.sleep(2.5)
        teller.tell(DeviceRefused())

    copy = fork(work, 2.0, tmp_path / "log")
    while copy.end is None:
        wait_any([copy])
        for message in copy.read():
            if isinstance(message, DeviceWanted):
                copy.pause()
            else:
                copy.resume()
    copy.lane.close()
    expected = 0
    assert copy.end.code == expected
    assert copy.paused_s > 0


def test_a_copy_is_followed_within_an_event_loop(tmp_path: Path) -> None:
    """A coroutine gets messages as they come, and what it leaves behind is ended."""

    def work(teller: Teller) -> None:
        teller.tell(Answered(reply=1))
        signal.pause()

    async def take_one() -> tuple[object, Forked]:
        copy = fork(work, 60.0, tmp_path / "log")
        messages = follow(copy)
        message = await anext(messages)
        await messages.aclose()
        return message, copy

    message, copy = asyncio.run(take_one())
    expected = Answered(reply=1)
    assert message == expected
    assert copy.end is not None


def test_a_second_interrupt_in_a_loop_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What it leaves undone is not told; what else fails unseen is."""

    async def fail(error: BaseException) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            raise error

    async def main(error: BaseException) -> None:
        task = asyncio.create_task(fail(error))
        await asyncio.sleep(0)
        raise KeyboardInterrupt(task)

    for error, count in ((KeyboardInterrupt(), 0), (ValueError(), 1)):
        with pytest.raises(KeyboardInterrupt):
            run_loop(main(error))
        assert len(caplog.records) == count


def test_all_copies_of_a_lane_begin_alike(tmp_path: Path) -> None:
    """They are copies of the process at the lane's start, also after one has killed its parent."""
    state = ["before"]

    def work(number: int, teller: Teller) -> None:
        teller.tell(Answered(reply=state[-1]))
        if number == 1:
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()

    lane = make_lane(work)
    state.append("after")
    told: list[Record] = []
    ends = []
    for number in range(3):
        copy = Forked(lane, number, 60.0, tmp_path / "log")
        while copy.end is None:
            wait_any([copy])
            told += copy.read()
        ends.append((copy.end.code, copy.end.is_lost))
    lane.close()
    assert told == [Answered(reply="before")] * 3
    assert ends == [(0, False), (None, True), (0, False)]


def test_a_stack_is_cut_at_the_frames_of_pytest() -> None:
    """Only what the user wrote is shown."""
    text = (
        'Fatal\n  File "/a/test_x.py", line 3 in f\n  File "/v/_pytest/python.py", line 1 in g\n  x'
    )
    expected = 'Fatal\n  File "/a/test_x.py", line 3 in f'
    assert cut_stack(text) == expected


ABANDONED = """
import os, select, signal
from tileyard.processes.keeper.tree import descendants_of
from tileyard.pytest_plugin.lanes import Lane

lane = Lane(lambda number, fds: os._exit(number))
lane.start(0, [])
select.select([lane.channel], [], [])
(guard, _), (forker, _) = descendants_of(os.getpid())
os.kill(guard, signal.SIGSTOP)  # or it might end the forker before that finds out
print(guard, forker, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lane_whose_process_is_killed_ends_quietly() -> None:
    """That nobody has read how a copy ended is not an error of the process that told it."""
    with subprocess.Popen(
        [sys.executable, "-c", ABANDONED],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as asker:
        guard, forker = map(int, asker.stdout.readline().split())
        while not is_zombie(forker):
            time.sleep(0.01)
        os.kill(guard, signal.SIGCONT)
        assert asker.stdout.read() == ""
