"""The client's side of the engine: start it, talk to it, let it end. Its channel ends when the
client does; the engine then ends its workers and itself.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tileyard.processes.keeper.tree import descendants_of, signal_child
from tileyard.processes.wire import CHANNEL_VARIABLE, Channel, format_channel, open_pipes

CLOSE_LIMIT_S = 30.0


@dataclass(frozen=True)
class EngineProcess(AbstractContextManager["EngineProcess"]):
    """A started engine. ``channel`` leads to it; leaving the ``with`` block lets it end."""

    process: subprocess.Popen[bytes]
    channel: Channel

    def go_on(self) -> None:
        """Continue the engine and all processes below it if they were stopped."""
        pid = self.process.pid
        if self.process.poll() is None:
            for child, parent in ((pid, os.getpid()), *descendants_of(pid)):
                signal_child(child, parent, signal.SIGCONT)

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> int:
        """Close the channel, wait for the engine's end, kill it after ``limit_s``; its workers end
        with it. Returns its exit code, or the negative signal number. Repeatable.
        """
        self.channel.close()
        self.go_on()
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __exit__(self, *_: object) -> None:
        self.close()


def start_engine_process(argv: Sequence[str], env: Mapping[str, str]) -> EngineProcess:
    """Start an engine in its own session, from any thread; stderr is the caller's. Raises OSError."""
    with open_pipes() as (ours, theirs):
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**env, CHANNEL_VARIABLE: format_channel(*theirs)},
            pass_fds=theirs,
            start_new_session=True,  # Ctrl-C reaches the client, which tells the engine
        )
    return EngineProcess(process, Channel(*ours))
