"""The process that forks keepers, where the one that asks it dies half-way."""

import os
import socket
import subprocess

import pytest

from tileyard.processes.keeper_line import PYTHON, START

TEXT = b"1\0step=1\0"


@pytest.mark.parametrize("sent", [0, 3, 8, 12, 8 + len(TEXT) - 1])
def test_who_dies_in_the_middle_of_a_request_is_not_served(sent: int) -> None:
    """The fork server ends as it does when nobody asks any more, and says nothing."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [*PYTHON, START, "serve", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
        )
    pipes = [os.pipe() for _ in range(2)]
    fds = [fd for pair in pipes for fd in pair]
    with ours:
        request = (len(TEXT).to_bytes(8, "little") + TEXT)[:sent]
        if request:
            socket.send_fds(ours, [request], fds)
    for fd in fds:
        os.close(fd)
    printed, _ = server.communicate(timeout=60)
    assert (printed, server.returncode) == (b"", 0)
