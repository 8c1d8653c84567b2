"""The processes of one command: found by a mark in their environment, and told apart by what they run."""

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "TILEYARD_TEST_MARK"
"""A variable that a command's processes inherit, and no other process has with this value."""
COMPILERS = ("cc", "gcc", "cc1", "as", "collect2", "ld")
STEP = re.compile(r"(build|golden|run|check)\.sh$")
WORKER = re.compile(r"tileyard\.workers\.(\w+)$")


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process at one moment. ``case`` is what its step was told to be for, empty for none."""

    pid: int
    parent: int
    started: int
    state: str
    argv: tuple[str, ...]
    kind: str = ""
    case: str = ""

    def __str__(self) -> str:
        said = " ".join(Path(word).name for word in self.argv)
        return f"{self.pid} of {self.parent} {self.state} {self.kind}: {said[-100:]}"

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this process and no other; False if it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            now = read_process(self.pid)
            if now is None or now.started != self.started:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def read_process(pid: int) -> Process | None:
    """What ``/proc`` says of a process; None if it is gone or has ended."""
    try:
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        argv = _read(pid, "cmdline").decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return None
    if fields[0] in b"ZX" or not argv:
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        state=fields[0].decode(),
        argv=tuple(argv),
    )


class Family:
    """All processes that carry a mark. What was there before this object was made is never looked at."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._strangers = set(_pids())
        self._is_ours: dict[tuple[int, int, tuple[str, ...]], bool] = {}

    def look(self, root: int = 0) -> list[Process]:
        """Those that live now, parents before their children if they have any; ``root`` is the command's."""
        found = {}
        for pid in _pids():
            process = read_process(pid) if pid not in self._strangers else None
            if process is not None and self._is_marked(process):
                found[pid] = process
        return [_name(process, found, root) for process in found.values()]

    def _is_marked(self, process: Process) -> bool:
        """Looked at once, and again once it runs another program."""
        key = process.pid, process.started, process.argv
        if key not in self._is_ours:
            try:
                variables = _read(process.pid, "environ")
            except OSError:
                return False
            if not variables:  # it is about to run its program
                return False
            self._is_ours[key] = self._mark in variables.split(b"\0")
        return self._is_ours[key]


def _read(pid: int, name: str) -> bytes:
    return Path("/proc", str(pid), name).read_bytes()


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal())


def _name(process: Process, family: dict[int, Process], root: int) -> Process:
    """The process with its kind and case."""
    line = [process]
    while (above := family.get(line[-1].parent)) is not None and above not in line:
        line.append(above)
    step = next(filter(None, map(_step_of, line)), None)
    return Process(
        **{
            **vars(process),
            "kind": _kind_of(process, line, root),
            "case": step[1] if step is not None else "",
        }
    )


def _step_of(process: Process) -> tuple[str, str] | None:
    """The step whose script a process is, and the case that it was told."""
    for script, case in zip(process.argv, (*process.argv[1:], ""), strict=False):
        if match := STEP.search(script):
            return match[1], case
    return None


def _kind_of(process: Process, line: list[Process], root: int) -> str:
    argv = process.argv
    if process.pid == root:
        return "client"
    if "tileyard.service.process" in argv:
        return "engine"
    if Path(argv[0]).name in COMPILERS:
        return "compiler child"
    copies = sum(1 for above in line[1:3] if above.argv == argv)
    if (
        "serve" in argv
    ):  # a fork server, its copy that keeps a program, and that program before it begins
        of = _worker_of(line[1].argv) if len(line) > 1 else ""
        return (f"fork server of {of}", "keeper of a step", "program to be")[copies]
    if any(word.endswith("keeper/start.py") for word in argv):
        worker = _worker_of(argv) or "a program"
        return f"{worker} to be" if copies else f"keeper of {worker}"
    if worker := _worker_of(argv):
        return worker
    if step := _step_of(process):
        return f"{step[0]} program"
    for above in line[1:]:
        if step := _step_of(above):
            return f"child of {step[0]} program"
    if root and argv == next((p.argv for p in line if p.pid == root), None):
        return "copy"
    if module := next((word for word in argv if word.startswith("tileyard.")), None):
        return module
    return Path(argv[0]).name


def _worker_of(argv: tuple[str, ...]) -> str:
    """The kind of the worker that is named among the arguments."""
    return next((match[1] for word in argv if (match := WORKER.search(word))), "")
