"""The submitting process cancels what is not wanted any more, whatever hits it meanwhile."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tileyard.processes.wire import Channel
from tileyard.workers.submitter import Asked, Submit, SubmitEnded, Submitter, SubmitterReply
from tileyard.workers.task_lines import Side

pytestmark = pytest.mark.slow

CLIENT = "import signal; print('task 7 queued', flush=True); signal.pause()"


class Stopped(Submitter):
    """One that is told to stop once it knows the task's name."""

    def _look_at(self, side: Side, text: str) -> None:
        super()._look_at(side, text)
        if self._job:
            self.stopping.set()


def run(request: Submit, kind: type[Submitter] = Stopped) -> tuple[str, SubmitEnded]:
    """Carry out a request; what was printed, and the end."""
    read_fd, write_fd = os.pipe()
    ours = Channel(read_fd, os.dup(write_fd))
    theirs = Channel(os.dup(read_fd), write_fd)

    async def main() -> None:
        await kind(theirs, request).run()

    asyncio.run(main())
    printed = ""
    while not isinstance(reply := ours.receive(SubmitterReply), SubmitEnded):
        printed += reply.text
    ours.close()
    theirs.close()
    return printed, reply


def request(tmp_path: Path, code: str, cancel: tuple[str, ...], **changes: object) -> Submit:
    """Submit a Python program."""
    fields: dict[str, object] = {
        "argv": (sys.executable, "-c", code),
        "cwd": str(tmp_path),
        "env": dict(os.environ),
        "cancel": cancel,
        "job": r"task (\d+)",
        "cancel_limit_s": 5.0,
        **changes,
    }
    return Submit(**fields)  # type: ignore[arg-type]


def test_a_cancel_command_that_term_hits_is_run_again(tmp_path: Path) -> None:
    """The keeper's TERM is for the whole tree, and comes once."""
    script = '[ -e once ] && echo "$0" > done || {{ touch once; kill -TERM $$; }}'
    _, ended = run(request(tmp_path, CLIENT, ("/bin/sh", "-c", script, "{job}")))
    expected = "7\n"
    assert (tmp_path / "done").read_text() == expected
    assert "ended with code 0" in ended.cancelled
    assert ended.signal == 15


def test_a_name_that_is_about_to_come_is_waited_for(tmp_path: Path) -> None:
    """A task is cancelled by name although it was not known yet when that was asked for."""

    class StoppedAtOnce(Submitter):
        async def _wait_named(self, ending: asyncio.Task[int]) -> None:
            (tmp_path / "go").write_text("", encoding="ascii")
            await super()._wait_named(ending)

        def __init__(self, channel: Channel, request: Submit) -> None:
            super().__init__(channel, request)
            self.stopping.set()

    os.mkfifo(tmp_path / "go")
    code = f"open('go').read(); {CLIENT}"
    _, ended = run(request(tmp_path, code, ("touch", "done-{job}")), StoppedAtOnce)
    expected = "touch done-7 ended with code 0"
    assert ended.cancelled == expected
    assert (tmp_path / "done-7").exists()


def test_a_cancel_command_that_hangs_is_ended(tmp_path: Path) -> None:
    """And that is said."""
    cancel = (sys.executable, "-c", "import signal; signal.pause()")
    _, ended = run(request(tmp_path, CLIENT, cancel, cancel_limit_s=0.2))
    expected = "took longer than 0.2 s"
    assert expected in ended.cancelled


def test_a_task_without_a_known_name_is_told(tmp_path: Path) -> None:
    """Nothing is run with an empty name."""
    _, ended = run(request(tmp_path, "print('x')", ("touch", "{job}")), Submitter)
    expected = "name was not seen"
    assert expected in ended.cancelled
    assert ended.code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_finished_task_is_not_cancelled(tmp_path: Path) -> None:
    """Our last line says that the far side is done."""
    code = "print('task 7 queued'); print('TILEYARD_BATCH {}'); raise SystemExit(3)"
    printed, ended = run(request(tmp_path, code, ("touch", "{job}")), Submitter)
    expected = (3, "", "7")
    assert (ended.code, ended.cancelled, ended.job) == expected
    assert printed.startswith("task 7 queued\n")
    assert list(tmp_path.iterdir()) == []


def ask(tmp_path: Path, *, wait: str = "", status: str = "", output: str = "") -> Asked:
    """Ask shell scripts that run in this folder; their ``$0`` is the task's name."""
    asked = {"wait": wait, "status": status, "output": output}
    commands = {
        name: ("/bin/sh", "-c", text, "{job}") if text else () for name, text in asked.items()
    }
    ended = r"^exit=(\S+)" if status else ""
    return Asked(ended=ended, poll_s=0.01, **commands)


COUNT = 'echo x >> polls; [ "$(wc -l < polls)" -ge 3 ]'


SPLIT = "printf '\\303\\251!' | head -c $(wc -l < polls)"
"""Each time a byte more of what was printed, also within a letter."""


@pytest.mark.parametrize(
    ("asked", "code", "printed"),
    [
        ({"wait": 'echo "waited for $0"; exit 5'}, 5, "waited for 7\n"),
        ({"status": f"{COUNT} && echo exit=4"}, 4, ""),
        (
            {"status": f"{COUNT} && echo exit=0", "output": "cat polls; echo TILEYARD_BATCH"},
            0,
            "x\nTILEYARD",
        ),
        ({"wait": "echo waited", "status": "echo exit=6"}, 6, "waited\n"),
        ({"status": f"{COUNT} && echo exit=4 || ! echo busy >&2"}, 4, "busy\nbusy\n"),
        (
            {"status": f"{COUNT} && echo exit=0", "output": SPLIT},
            0,
            "é!",
        ),
    ],
)
def test_a_queue_is_asked_for_a_task_that_its_client_has_left(
    tmp_path: Path, asked: dict[str, str], code: int, printed: str
) -> None:
    """Until it has ended: with a command that waits, or one whose answer has the exit code."""
    submit = request(tmp_path, "print('task 7 queued')", (), asked=ask(tmp_path, **asked))
    text, ended = run(submit, Submitter)
    assert (ended.code, ended.error, ended.job) == (code, "", "7")
    assert text.startswith(f"task 7 queued\n{printed}")


def test_a_task_that_is_asked_for_is_cancelled_by_name(tmp_path: Path) -> None:
    """Also while nothing but its state is asked."""

    class StoppedWhileAsking(Submitter):
        async def _read(self, argv: list[str]) -> bytes:
            self.stopping.set()
            return await super()._read(argv)

    asked = ask(tmp_path, status="echo running")
    submit = request(tmp_path, "print('task 7 queued')", ("touch", "done-{job}"), asked=asked)
    _, ended = run(submit, StoppedWhileAsking)
    expected = "touch done-7 ended with code 0"
    assert ended.cancelled == expected


def test_a_client_ends_whatever_it_leaves_behind(tmp_path: Path) -> None:
    """What it has started may hold its pipes still."""
    os.mkfifo(tmp_path / "end")
    script = "echo task 7 queued; (read x < end) & wait"
    submit = request(tmp_path, "", ("touch", "{job}"), argv=("/bin/sh", "-c", script))
    _, ended = run(submit)
    (tmp_path / "end").write_text("x\n")
    assert ended.signal == 15


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("print('submitted')", "echo exit=0", "did not say how its task is called"),
        ("print('task 7 queued')", "echo exit=killed", "ended with 'killed'"),
    ],
)
def test_what_cannot_be_asked_is_said(tmp_path: Path, code: str, status: str, said: str) -> None:
    """No exit code is made up."""
    submit = request(tmp_path, code, (), asked=ask(tmp_path, status=status))
    _, ended = run(submit, Submitter)
    assert said in ended.error
    assert ended.code is None


def test_a_client_that_is_not_there(tmp_path: Path) -> None:
    """The program is named."""
    _, ended = run(request(tmp_path, "", (), argv=("/no/such",)), Submitter)
    expected = "cannot run /no/such: No such file or directory"
    assert ended.error == expected
