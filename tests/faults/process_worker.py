"""A worker that does as it is told. Requests and answers are Notes; run by test_processes.py."""

import ctypes
import os
import signal
import sys
from pathlib import Path

from tileyard.base.events import Note
from tileyard.processes.wire import Channel
from tileyard.workers.local_builder import wait_for_lease


def start_daemon() -> int:
    """A grandchild that is nobody's child, in a session of its own, deaf to TERM, without files."""
    read_fd, write_fd = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.write(write_fd, str(os.getpid()).encode())
            os.closerange(0, 1024)
            while True:
                signal.pause()
        os._exit(0)
    pid = int(os.read(read_fd, 32))
    os.close(read_fd)
    os.close(write_fd)
    os.wait()
    return pid


def answer(verb: str, rest: str) -> str:
    """Do one thing."""
    match verb:
        case "echo":
            return rest
        case "daemon":
            return str(start_daemon())
        case "lease":
            return str(wait_for_lease(os.environ))
        case "cores":
            return repr(sorted(os.sched_getaffinity(0)))
        case "files":
            return repr(sorted(map(int, os.listdir("/proc/self/fd")))[:-1])  # noqa: PTH208
        case "variable":
            return os.environ.get(rest, "unset")
        case "session":
            return repr(
                (os.getsid(0), os.getcwd(), Path("/proc/self/oom_score_adj").read_text())  # noqa: PTH109
            )
        case "leave_channel":
            os.closerange(3, 1024)
            while True:
                signal.pause()
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            start_daemon()
            while True:
                pass
        case "crash":
            ctypes.string_at(0)
        case "allocate":
            return str(len(bytearray(int(rest))))
        case "exit":
            os._exit(int(rest))
        case _:
            return "what"
    return "still here"


def main() -> None:
    """Serve until the engine closes the channel."""
    channel = Channel.inherited()
    while (request := channel.receive(Note)) is not None:
        verb, _, rest = request.text.partition(" ")
        channel.send(Note(text=answer(verb, rest)))
    sys.exit(5)


if __name__ == "__main__":
    main()
