"""The engine as a child of its client: it answers, and it never outlives its client."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tileyard.base.events import Note
from tileyard.service.client import start_engine_process

CLIENT = str(Path(__file__).with_name("process_client.py"))
DEADLINE_S = 30.0

pytestmark = pytest.mark.slow


def test_engine_answers_and_ends_with_its_channel() -> None:
    """Messages go both ways; closing lets the engine end by itself, with its own exit code."""
    argv = [sys.executable, CLIENT, "engine"]
    with start_engine_process(argv, os.environ) as engine:
        expected = Note(text="x" * 300_000)
        engine.channel.send(expected)
        assert engine.channel.receive(Note) == expected
        assert os.getsid(engine.process.pid) == engine.process.pid
        assert engine.close() == 7
        assert engine.close() == 7


def test_an_engine_that_does_not_end_is_killed() -> None:
    """Past the limit the client does not wait any longer."""
    argv = ["sleep", "1000"]
    with start_engine_process(argv, os.environ) as engine:
        expected = -signal.SIGKILL
        assert engine.close(0.01) == expected


def test_a_missing_engine_leaves_nothing_open() -> None:
    """A program that is not there is an OSError, and no descriptor is lost."""
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    with pytest.raises(FileNotFoundError):
        start_engine_process(["/no/such/engine"], os.environ)
    assert {path.name for path in Path("/proc/self/fd").iterdir()} <= set(before)


@pytest.mark.parametrize("mode", ["plain", "fork"])
def test_an_engine_ends_with_its_killed_client(mode: str) -> None:
    """SIGKILL to the client is noticed, even while a fork of it keeps copies of the pipes."""
    with subprocess.Popen([sys.executable, CLIENT, mode], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        engine, copy = map(int, client.stdout.readline().split())
        handle = os.pidfd_open(engine)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        client.kill()
        try:
            assert poll.poll(DEADLINE_S * 1000)
        finally:
            os.close(handle)
            if copy:
                os.kill(copy, signal.SIGKILL)
