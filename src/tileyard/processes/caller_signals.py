"""Signals that the caller of a wrapped command sends: heard here, to be passed on to the command."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

TO_GROUP: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
"""What a terminal would have sent to all of its foreground processes."""
ENDING: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP})
PASSED_ON: Final = (*ENDING, signal.SIGWINCH, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)  # fmt: skip


@contextmanager
def heed_signals() -> Iterator[int]:
    """Gives a descriptor from which the numbers of signals can be read, instead of dying of them.

    What is ignored stays so, here and in the command: ``nohup`` works.
    """
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.getsignal(number) for number in PASSED_ON}
    wakeup = signal.set_wakeup_fd(write_end)
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        yield read_end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(read_end)
        os.close(write_end)
