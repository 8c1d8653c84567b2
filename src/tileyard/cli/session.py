"""One tuning run as the command line shows it: progress, result, Ctrl-C, exit status."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tileyard.cli.opening import print_json
from tileyard.model import INFRASTRUCTURE
from tileyard.report.console import Console, silence
from tileyard.report.progress import Progress
from tileyard.report.study import print_study
from tileyard.service.client import RunClient
from tileyard.service.verbs import StartTune
from tileyard.settings import read_settings

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(start: StartTune, *, as_json: bool) -> int:
    """Carry out the run, show it, and return the exit status."""
    settings = read_settings(os.environ, Path.cwd())
    client = RunClient(start, settings)
    console = Console(stderr=as_json)
    with stop_on_interrupt(client), Progress(console) as progress:
        result = client.run(progress)
    if as_json:
        print_json(result)
    else:
        print_study(console, result, settings.home)
    if result.reason == "interrupted":
        return 130
    if result.best is not None:
        return 0
    ended = {trial.outcome for trial in result.trials}
    return 3 if ended and ended <= INFRASTRUCTURE else 1


@contextlib.contextmanager
def stop_on_interrupt(client: RunClient[Any]) -> Iterator[None]:
    """Ctrl-C once: what runs is finished; twice, SIGTERM or SIGHUP: everything is ended at once.

    The terminal of a SIGHUP is gone: nothing more is printed there. What is ignored stays so.
    """
    pressed = 0

    def press(number: int, _frame: object) -> None:
        nonlocal pressed
        pressed += 1
        if number == signal.SIGHUP:
            for stream in (sys.stdout, sys.stderr):
                if stream.isatty():
                    silence(stream)
        client.stop(now=pressed > 1 or number != signal.SIGINT)

    before = {number: signal.getsignal(number) for number in STOPPING}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, press)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
