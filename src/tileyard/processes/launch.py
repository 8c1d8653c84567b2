"""The client's side of the engine: start it as a separate process, talk to it, let it end.

The engine takes its end with ``AsyncChannel.inherited()``. That channel ends when the client ends, in
any way; the engine must then end its workers and itself.
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
        """Close the channel and wait for the engine's end; kill it after ``limit_s``.

        Returns its exit code, or the negative number of the signal that killed it. Its workers
        end with it in any case. Harmless when repeated.
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
    """Start an engine with its own session and no terminal; it may be called from any thread.

    Its stdout is discarded, its stderr is the caller's. Raises OSError if it cannot be started.
    """
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
