"""The far side of a task does what the task holds in turn; and what goes into one task of a queue."""

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from tileyard.base.model import Device, Outcome
from tileyard.pytest_plugin.far import Turns, run_far
from tileyard.pytest_plugin.far_records import Answered, FarCall, FarTask, TestFacts, TurnedTo
from tileyard.pytest_plugin.far_tasks import find_due
from tileyard.pytest_plugin.forked import ForkEnd, Teller
from tileyard.workers.task_lines import (
    INFRASTRUCTURE_CODE,
    CaseResult,
    CaseTurnedTo,
    Line,
    TaskEnded,
)


def make_task(folder: Path, calls: tuple[FarCall, ...], devices: int = 1) -> FarTask:
    """A task of a queue of NPUs."""
    return FarTask(
        token="t",
        device="npu:{device}",
        environment={},
        cwd="",
        paths=(),
        arguments=(),
        rootdir="",
        folder=str(folder),
        limit_s=100.0,
        devices=devices,
        calls=calls,
    )


def test_fewer_devices_than_a_task_needs_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before anything runs, in the last line, whatever the queue has granted them for."""
    file = tmp_path / "task.json"
    file.write_bytes(msgspec.json.encode(make_task(tmp_path, (), devices=3)))
    assert run_far(file, ["--device", "3,4"]) == INFRASTRUCTURE_CODE
    (line,) = capfd.readouterr().out.splitlines()
    assert "the queue gave npu:3,4, and the task needs 3 devices" in line


@pytest.mark.slow
def test_one_copy_goes_on_until_it_dies_or_has_no_time(tmp_path: Path) -> None:
    """The current one is to blame, a new one goes on with the next, and what may be too long is not begun."""
    limits = {"first": 20.0, "dies": 20.0, "early": 20.0, "ends": 20.0, "never": 1000.0}
    calls = tuple(
        FarCall(name=name, limit_s=limit_s, modules={}, given="", answer="")
        for name, limit_s in limits.items()
    )
    task = make_task(tmp_path, calls)
    lines: list[Line] = []
    turns = Turns(task, Device(name="cpu:0", kind="cpu", identity="a core"), lines.append)

    def work(number: int, teller: Teller) -> None:
        if calls[number].name == "early":
            os.kill(os.getpid(), signal.SIGTERM)
        for call in calls[number:]:
            if call is not calls[number] and not turns.has_time(call):
                return
            teller.tell(TurnedTo(test=call.name, at=time.monotonic()))
            if call.name == "dies":
                os.kill(os.getpid(), signal.SIGTERM)
            teller.tell(Answered(reply=os.getpid()))

    seen: list[str] = []
    pids: dict[str, int] = {}
    for number, _, message in turns.run(calls, work):
        match message:
            case Answered(reply=pid):
                pids[calls[number].name] = pid
            case ForkEnd():
                seen.append(f"{calls[number].name}: {message.signal}")
            case _:
                pass
        if isinstance(message, Answered):
            turns.end(calls[number], TestFacts(seconds=0.1, outcome=Outcome.PASSED), "digest")
    assert seen == [f"dies: {signal.SIGTERM}", f"early: {signal.SIGTERM}", "ends: None"]
    assert list(pids) == ["first", "ends"]
    assert len(set(pids.values())) == len(pids)
    begun = [line.case for line in lines if isinstance(line, CaseTurnedTo)]
    assert begun == ["first", "dies", "early", "ends"]
    assert turns.finish() == 0
    ended = [line.case for line in lines if isinstance(line, CaseResult)]
    assert ended == ["first", "ends"]
    assert isinstance(lines[-1], TaskEnded)


@pytest.mark.parametrize(
    ("waiting", "busy", "due"),
    [
        ("", 0, None),
        ("ab", 1, None),
        ("ab", 0, "a"),
        ("aba", 1, None),
        ("abab", 1, None),
        ("abbb", 1, "b"),
        ("ababab", 1, "a"),
    ],
)
def test_a_task_begins_once_it_is_full_or_nobody_could_fill_it(
    waiting: str, busy: int, due: str | None
) -> None:
    """One holds parts of one kind only, up to three here; the others do not fill it."""
    cases = 3
    assert find_due(waiting, cases, busy) == due
