"""The client's side of the engine: start it as a process of its own, talk to it, let it end.

The engine takes its end with ``AsyncChannel.inherited()``. That one ends when the client does, in
whatever way; the engine is then expected to end its workers and itself.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tileyard.processes.wire import CHANNEL_VARIABLE, Channel, format_channel

CLOSE_LIMIT_S = 30.0


class EngineProcess:
    """A started engine. ``channel`` leads to it; leaving the ``with`` block lets it end."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel) -> None:
        """For ``start_engine_process``."""
        self.channel = channel
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> int:
        """Close the channel and wait for the engine's end; kill it after ``limit_s``.

        Returns its exit code, or the negative number of the signal that it died of. Its workers
        end with it in any case. Harmless when repeated.
        """
        self.channel.close()
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_engine_process(
    argv: Sequence[str], env: Mapping[str, str], log: Path | None = None
) -> EngineProcess:
    """Start an engine with its own session and no terminal; it may be called from any thread.

    ``log`` gets its stdout and stderr appended; without it stderr is the caller's. Raises OSError
    if the program or the log cannot be opened.
    """
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    theirs = (requests_out, replies_in)
    channel = Channel(replies_out, requests_in)
    try:
        with open(log or os.devnull, "ab") as output:  # noqa: PTH123 - either a path or a device
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output if log else None,
                env={**env, CHANNEL_VARIABLE: format_channel(*theirs)},
                pass_fds=theirs,
                start_new_session=True,  # Ctrl-C reaches the client, which tells the engine
            )
    except OSError:
        channel.close()
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return EngineProcess(process, channel)
