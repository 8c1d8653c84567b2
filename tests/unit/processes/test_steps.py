"""Programs as steps: what is kept of what they print, what a log says of them, what memory they have."""

import os
import sys
from pathlib import Path

import pytest

from tileyard.processes import steps
from tileyard.processes.steps import (
    Heard,
    StepEnd,
    StepOrder,
    describe_complaints,
    describe_end,
    find_telling,
    run_step,
)

pytestmark = pytest.mark.slow


def run(folder: Path, script: str, title: str = "", **changes: object) -> StepEnd:
    """The end of a shell script whose log is ``log`` in the folder."""
    fields: dict[str, object] = {
        "argv": ("sh", "-c", script),
        "env": dict(os.environ),
        "cwd": str(folder),
        "log": str(folder / "log"),
        "title": title,
        "limit_s": 20.0,
        **changes,
    }
    return run_step(StepOrder(**fields))  # type: ignore[arg-type]  # fields of an order


def test_of_very_much_output_the_begin_and_the_end_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says how much is missing; the program is not held up."""
    monkeypatch.setattr(steps, "LOG_BYTES", 1000)
    monkeypatch.setattr(steps, "TAIL_BYTES", 8)
    end = run(tmp_path, "echo first; yes | head -c 3000000; echo last")
    expected = "==== 2999011 bytes more were printed; the last of them:\n"
    text = (tmp_path / "log").read_text()
    assert end.ok
    assert end.printed == 3_000_011
    assert text.startswith("first\ny\n")
    assert text.partition(expected)[2].endswith("y\nlast\n")
    assert len(text) < 1100


def test_a_program_is_timed_without_what_watches_it(tmp_path: Path) -> None:
    """Waiting takes time from start to exit, and none of a CPU; a child that was waited for counts."""
    slept = run(tmp_path, "sleep 0.05; exit 3")
    assert slept.cpu_ns < 50_000_000 <= slept.ran_ns
    worked = run(tmp_path, f"{sys.executable} -S -c 'sum(range(3000000))'; true")
    assert worked.cpu_ns > 10_000_000


def test_a_log_says_what_was_run_and_how_it_ended(tmp_path: Path) -> None:
    """Each step under a heading of its own, one after another."""
    run(tmp_path, "echo one", "golden")
    run(tmp_path, "exit 3", "run")
    run(tmp_path, "", "check", argv=("no-such-program",))
    lines = [line.partition(" after ")[0] for line in (tmp_path / "log").read_text().splitlines()]
    expected = [
        "==== golden: sh -c 'echo one'",
        f"==== in {tmp_path}",
        "one",
        "==== ended with exit code 0",
        "==== run: sh -c 'exit 3'",
        f"==== in {tmp_path}",
        "==== ended with exit code 3",
        "==== check: no-such-program",
        f"==== in {tmp_path}",
        "==== no-such-program cannot be started: No such file or directory",
    ]
    assert lines == expected


def test_a_log_without_a_title_is_the_programs_own(tmp_path: Path) -> None:
    """Nothing of ours is in it."""
    run(tmp_path, "printf one")
    assert (tmp_path / "log").read_text() == "one"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo fine", ""),
        ("echo >&2; echo '  ' >&2", ""),
        ("echo one >&2", "run step wrote 1 line to stderr, kept in its log"),
        ("printf 'a\\n\\nb' >&2", "run step wrote 2 lines to stderr, kept in its log"),
        ("yes | head -n 5000 >&2", "run step wrote 5000 lines to stderr, kept in its log"),
    ],
)
def test_complaints_are_counted(script: str, expected: str, tmp_path: Path) -> None:
    """Lines of stderr that hold something."""
    assert describe_complaints(run(tmp_path, script), "run step ") == expected


MAP = """
import mmap, resource, sys, time
end = time.monotonic() + 30  # a limit is set from outside, right after the start
while sys.argv[1] != "0" and resource.getrlimit(resource.RLIMIT_AS)[0] < 0 and time.monotonic() < end:
    time.sleep(0.001)
mmap.mmap(-1, 40 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
"""


@pytest.mark.parametrize(("memory_bytes", "expected"), [(0, True), (1 << 30, False)])
def test_address_space_is_free_unless_it_is_limited(
    memory_bytes: int, expected: bool, tmp_path: Path
) -> None:
    """Sanitizers and virtual machines reserve more than any machine has."""
    argv = (sys.executable, "-c", MAP, str(memory_bytes))
    end = run(tmp_path, "", argv=argv, memory_bytes=memory_bytes)
    assert end.ok == expected


class Lines(Heard):
    """Sends lines to the log that they name, and keeps what that log held when it was told of them."""

    reads_lines = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.seen: list[str] = []

    def log_of(self, text: str) -> str:
        """The first word."""
        return str(self._folder / text.split()[0])

    def line(self, text: str) -> None:
        """Look into the log."""
        self.seen.append(Path(self.log_of(text)).read_text())

    def log(self) -> str:
        """All complaints go to one."""
        return str(self._folder / "stderr")


def test_a_line_is_in_its_log_before_it_is_told_of(tmp_path: Path) -> None:
    """Whoever hears of the end of a case finds its log whole."""
    heard = Lines(tmp_path)
    script = "echo a 1; echo b 2; echo a 3; echo oh >&2"
    order = StepOrder(
        argv=("sh", "-c", script),
        env=dict(os.environ),
        cwd=str(tmp_path),
        log=str(tmp_path / "log"),
    )
    assert run_step(order, heard).ok
    assert heard.seen == ["a 1\n", "b 2\n", "a 1\na 3\n"]
    assert (tmp_path / "stderr").read_text() == "oh\n"
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("note\nwrong\n", "wrong"),
        ("a/tadd/../common.h:3:1: error: no\nmake: stopped", "a/common.h:3:1: error: no"),
        ("x/y/../../c.h:3: error: no\n", "c.h:3: error: no"),
        ("../c.h:3: error: no\n", "../c.h:3: error: no"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    raise ValueError(x)\n'
            "    ~~~~^^^\nValueError: bad\n  shape\nsee it\n",
            "ValueError: bad shape see it",
        ),
        ('ile "b.py", line 2, in f\n  File "a.py", line 3, in f\nE: 1\n2\n', "E: 1 2"),
        (
            '  File "a.py", line 3\n    x(\n     ^\nSyntaxError: never closed\n',
            "SyntaxError: never closed",
        ),
        ('  File "a.py", line 3\n    x(', "x("),
        ("", ""),
    ],
)
def test_what_a_program_said_of_its_failure_is_one_line(tail: str, expected: str) -> None:
    """A compiler's first error with its shortest path; all of an exception; else the last line."""
    assert find_telling(tail) == expected


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_decides_about_the_log_alone(tmp_path: Path) -> None:
    """The program ends as it would have, and its last words are known."""
    end = run(tmp_path, "echo wrong; exit 4", "run", log="/dev/full")
    order = StepOrder(argv=("sh",), env={}, cwd="/", log="")
    assert (end.code, describe_end(end, order)) == (4, "sh ended with exit code 4: wrong")
